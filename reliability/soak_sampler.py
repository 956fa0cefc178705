"""The thread that measures while a soak runs, and writes what it finds at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from pipeline import Pipeline
from soak_job import Job
from soak_load import Load
from soak_sample import Ends, HeldBack, Lag, job_processes, transactional_ids, usage

from spark_eos.errors import SparkEosError

SAMPLE_EVERY_S = 10
LOOK_EVERY_S = 0.2
IDS_EVERY = 6
"""Samples: it takes a JVM to ask for the transactional.ids."""


class Lines:
    """A file of JSON lines that is complete at any moment.

    Args:
        path: of the file, which is made anew.
        began: `time.monotonic()` of the run's start; each line gets the seconds since as `at`.
    """

    def __init__(self, path: Path, began: float) -> None:
        self._file, self._began = path.open("w", encoding="utf-8", buffering=1), began
        self.written: list[dict[str, Any]] = []

    def write(self, line: dict[str, Any]) -> None:
        self.written.append({"at": round(time.monotonic() - self._began, 1), **line})
        self._file.write(json.dumps(self.written[-1]) + "\n")

    def close(self) -> None:
        self._file.close()


class Sampler:
    """Takes a sample every 10 s, and looks five times a second how far readers are held back. A context manager.

    Args:
        broker: its process.
        pipeline: what runs against it.
        job: the pipeline's.
        load: on its input.
        lines: where samples go.
    """

    def __init__(self, broker: psutil.Process, pipeline: Pipeline, job: Job, load: Load, lines: Lines) -> None:
        self._broker, self._bootstrap = broker, pipeline.bootstrap
        self._job, self._load, self._lines = job, load, lines
        self._held = HeldBack(Ends(pipeline.bootstrap, pipeline.outputs))
        self._lag = Lag(pipeline.bootstrap, pipeline.name, pipeline.source)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self.missed: list[str] = []
        """Why there are samples that could not be taken."""

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._lag.close()

    def lag(self) -> dict[str, int]:
        """Records processed, and still to process."""
        return self._lag.now()

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._ended.wait(LOOK_EVERY_S):
            self._try(self._held.look)
            if time.monotonic() >= due:
                self._try(lambda: self._sample(number % IDS_EVERY == 0))  # noqa: B023 (called at once)
                number, due = number + 1, due + SAMPLE_EVERY_S
        self._try(lambda: self._sample(ids=True))

    def _try(self, take: Callable[[], None]) -> None:
        """A broker that does not answer once must not end what runs for hours."""
        try:
            take()
        except (KafkaException, SparkEosError, psutil.Error) as error:
            self.missed.append(str(error))

    def _sample(self, ids: bool) -> None:
        roles = job_processes(self._job.pid) | {"broker": [self._broker]}
        line: dict[str, Any] = {role: usage(processes) for role, processes in roles.items()}
        written = sum(self._held.ends.high().values())
        line["topics"] = {"produced": self._load.sent, **self._lag.now(), "output offsets": written}
        line["held back"] = self._held.take()
        if ids:
            line["transactional ids"] = {"known": transactional_ids(self._bootstrap)}
        self._lines.write(line)
