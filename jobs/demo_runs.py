"""A job under SIGKILL: the process, the moments at which it is killed, and the loop that starts it again."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from spark_eos.checker.topic_log import Topics
from spark_eos.testing import leash, worker_python

LOOK_EVERY_S = 0.02
LIFE_S = 240.0
"""No life of a job takes this long: a start of Spark and some batches."""


class RunFailed(Exception):
    """A job ended with an error, or did not end; the text has the tail of its log."""


@dataclass(frozen=True)
class Kill:
    """When and how to kill: so many batches into a life, with so large a share of the next one written."""

    after_batches: int
    share: float
    whole_tree: bool
    """Python workers too, at once. Otherwise they outlive driver and JVM for an instant, as in a real crash."""


def kill_plan(seed: int, kills: int) -> list[Kill]:
    """The same seed gives the same plan."""
    rng = random.Random(seed)
    return [Kill(rng.choice((0, 1, 1, 2)), rng.uniform(0.05, 0.75), rng.random() < 0.5) for _ in range(kills)]


def events_per_batch(events: int, kills: int) -> int:
    """Such that the plan does not run out of batches."""
    return max(1, events // (2 * kills + 2))


class JobProcess:
    """One life of a job: Python, its JVM, and the JVM's Python workers."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        environment = os.environ | spark_environment(folder)
        # On the leash it ends even if this process is SIGKILLed.
        leashed = [sys.executable, leash.__file__, str(os.getpid()), "", *command]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                leashed,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its own process group, to be killed as one
            )
        self._known: set[psutil.Process] = set()
        self._looked = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        if time.monotonic() - self._looked > 2:
            self._remember()
        return self._process.poll()

    def kill(self, whole_tree: bool) -> None:
        """SIGKILL driver and JVM in one go, and the workers with them or not."""
        self._remember()
        os.killpg(self._process.pid, signal.SIGKILL)
        if whole_tree:
            self._kill_known()
        self._process.wait()

    def end(self) -> None:
        """Leave nothing of it behind, however it ended."""
        if self._process.poll() is None:
            self.kill(whole_tree=True)
        deadline = time.monotonic() + 3
        while any(map(_is_alive, self._known)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._kill_known()

    def _remember(self) -> None:
        """Note the processes of the tree: once the driver is dead, its orphans can't be found any more."""
        self._looked = time.monotonic()
        with suppress(psutil.NoSuchProcess):
            self._known.update(psutil.Process(self._process.pid).children(recursive=True))

    def _kill_known(self) -> None:
        for process in self._known:
            with suppress(psutil.NoSuchProcess):
                process.kill()  # psutil looks at the start time too: never a stranger with the same id


def _is_alive(process: psutil.Process) -> bool:
    """Zombies are dead: where nobody is there to reap orphans, they stay listed."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def spark_environment(folder: Path) -> dict[str, str]:
    """A Spark that starts quickly, listens on loopback only, and leaves its files in the folder when killed."""
    conf = {
        "spark.driver.extraJavaOptions": f'-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Djava.io.tmpdir={folder}"',
        "spark.local.dir": str(folder),
        "spark.sql.codegen.wholeStage": "false",  # compiling costs more than it saves in so short a life
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",  # of 50, for a small table
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    arguments = ["--driver-memory", "700m"]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    return {
        "PYSPARK_PYTHON": str(worker_python(folder)),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),
    }


@dataclass(frozen=True)
class Checkpoint:
    """Which batches a query's checkpoint knows."""

    folder: Path

    @property
    def last_planned(self) -> int:
        return self._newest("offsets")

    @property
    def last_done(self) -> int:
        return self._newest("commits")

    @property
    def open_batch(self) -> int | None:
        """The batch that was begun and is not done."""
        planned = self.last_planned
        return planned if planned > self.last_done else None

    def _newest(self, name: str) -> int:
        folder = self.folder / name
        if not folder.is_dir():
            return -1
        return max((int(file) for file in os.listdir(folder) if file.isdigit()), default=-1)


@dataclass
class Outcome:
    """What a run went through until its input was processed."""

    kills: list[str] = field(default_factory=list)
    missed: int = 0
    starts: int = 0
    seconds: float = 0.0


Report = Callable[[str], None]


def growth(topics: Topics) -> dict[str, Any]:
    """`written` and `idle` of a run that writes to topics. A restarted job may first write markers: no rows."""
    return {"written": lambda: sum(topics.ends().values()), "idle": 2 * len(topics.places)}


@dataclass(frozen=True)
class KilledRun:
    """Runs a job until it has processed its input, killing it by plan on the way.

    Args:
        name: for messages.
        command: starts the job; it must end with code 0 once its input is processed (trigger available-now).
        folder: working folder of the job.
        checkpoint: the job's checkpoint folder.
        written: how much stands in the job's outputs; its growth shows that a batch is being written.
        idle: by how much they may grow though no batch is written, such as by markers that abort old transactions.
        batch_rows: about how much a batch writes to them.
        status: told now and then where the run is.
        note: told of each kill.
        unit: what `written` counts.
    """

    name: str
    command: Sequence[str]
    folder: Path
    checkpoint: Checkpoint
    written: Callable[[], int]
    idle: int
    batch_rows: int
    status: Report
    note: Report
    unit: str = "records"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def run(self, plan: Sequence[Kill]) -> Outcome:
        """Raises RunFailed when the job fails by itself."""
        outcome, left = Outcome(), list(plan)
        began = time.monotonic()
        while True:
            outcome.starts += 1
            job = JobProcess(self.command, self.folder, self.log)
            try:
                found = self._wait_for_moment(job, left[0] if left else None, outcome, len(plan))
                if found is None:
                    outcome.seconds = time.monotonic() - began
                    return outcome
                job.kill(left[0].whole_tree)
                if self._count(outcome, left[0], *found, planned=len(plan)):
                    left.pop(0)
            finally:
                # Workers that a kill left out end by themselves once their JVM is gone. This makes sure of it.
                job.end()

    def _wait_for_moment(
        self, job: JobProcess, kill: Kill | None, outcome: Outcome, planned: int
    ) -> tuple[int, int] | None:
        """Batch and rows written of it, at the moment to kill; None when the job has ended."""
        first, batch, base, written = self.checkpoint.last_done + 1, -1, 0, 0
        deadline = time.monotonic() + LIFE_S
        while (code := job.exit_code) is None:
            current = self.checkpoint.open_batch
            if current is not None:
                total = self.written()
                if current != batch:
                    batch, base = current, total
                written = total - base
            if kill and current is not None and self._is_moment(kill, current - first, written):
                return current, written
            self.status(
                f"{self.name}: kills {len(outcome.kills)} of {planned}, batch {max(batch, 0)}, "
                f"{base + written:,} {self.unit}"
            )
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.name} did not end in {LIFE_S:.0f} s.\n{self.log_tail()}")
            time.sleep(LOOK_EVERY_S)
        if code != 0:
            raise RunFailed(f"{self.name} ended with code {code}.\n{self.log_tail()}")
        return None

    def _is_moment(self, kill: Kill, batches: int, written: int) -> bool:
        return batches >= kill.after_batches and written > max(self.idle, kill.share * self.batch_rows)

    def _count(self, outcome: Outcome, kill: Kill, batch: int, written: int, planned: int) -> bool:
        """Whether the kill came before the batch was done."""
        if self.checkpoint.last_done >= batch:
            outcome.missed += 1
            return False
        victims = "driver, JVM and workers" if kill.whole_tree else "driver and JVM"
        outcome.kills.append(f"batch {batch}, {written:,} {self.unit} of it written, {victims}")
        self.note(f"{self.name}: kill {len(outcome.kills)} of {planned}: {outcome.kills[-1]}")
        return True

    def log_tail(self, lines: int = 30) -> str:
        """The end of the job's log, and where all of it is."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        short = (line[:200] for line in text.splitlines()[-lines:])  # Spark prints whole query plans
        return f"The last lines of {self.log}:\n" + "\n".join(short)
