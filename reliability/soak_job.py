"""The proof's job during a soak: killed, and started again on the same checkpoint."""

from __future__ import annotations

import random
import sys
from contextlib import suppress

import psutil
from demo_runs import JobProcess
from pipeline import JOB, Pipeline
from soak_sample import task_workers


class Job:
    """One life after the other. A context manager: at the end the last one is asked to stop.

    Args:
        pipeline: what runs.
        rng: chooses the worker to kill.
    """

    def __init__(self, pipeline: Pipeline, rng: random.Random) -> None:
        self._pipeline, self._rng = pipeline, rng
        # Rows at a time as by default: as few as in the fault matrix would be a load of their own.
        conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
        self._command = [sys.executable, str(JOB), pipeline.plan(continuous=True, conf=conf).to_json()]
        self._life = self._start()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipeline.stop(self._life)
        self._life.end()

    @property
    def pid(self) -> int:
        return self._life.pid

    def kill_driver(self) -> bool:
        """SIGKILL the driver with all it has started, and start it again."""
        self._life.kill(whole_tree=True)
        self._again()
        return True

    def kill_worker(self) -> bool:
        """SIGKILL one of the workers that run tasks, at work or not; False if there is none just now."""
        workers = task_workers(self.pid)
        if not workers:
            return False
        with suppress(psutil.NoSuchProcess):
            self._rng.choice(workers).kill()
            return True
        return False

    def revive(self) -> bool:
        """Start it again if it has ended by itself, which it never should; whether it had."""
        if self._life.exit_code is None:
            return False
        self._again()
        return True

    def _again(self) -> None:
        self._life.end()
        self._life = self._start()

    def _start(self) -> JobProcess:
        return JobProcess(self._command, self._pipeline.folder, self._pipeline.log)
