"""The proof's pipeline: an input topic, the job that copies each row to two topics, and the check of what came out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from demo_runs import Checkpoint, JobProcess, RunFailed
from fault_points import Marks
from job import JobPlan

from spark_eos.checker import Findings, JavaReader, Watch, check
from spark_eos.testing import EmbeddedKafka

JOB = Path(__file__).with_name("job.py")
KEYS_PER_PARTITION = 3
LOOK_EVERY_S = 0.05
LIFE_S = 900.0
"""Of a job: 50 faults of some seconds each in one life."""
STOP_S = 30.0
GRACE_S = 15.0
"""A batch that was hit is committed this long after its transactions' timeout, at the latest."""

CLUSTER = {
    # What a dead producer left open is ended at its timeout, and not up to 10 s later.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.max.timeout.ms": "120000",
    # As by default: a lane's part of the coordinator's log is hardly ever the other lane's too.
    "transaction.state.log.num.partitions": "50",
}


@dataclass
class World:
    """A Kafka cluster, and a folder for what runs against it."""

    kafka: EmbeddedKafka
    folder: Path

    @classmethod
    @contextmanager
    def open(cls, brokers: int = 1, config: Mapping[str, str] | None = None) -> Iterator[World]:
        with ExitStack() as stack:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="reliability-", ignore_cleanup_errors=True))
            folder = Path(made)
            config = CLUSTER | dict(config or {})
            yield cls(stack.enter_context(EmbeddedKafka(brokers, config, data_dir=folder / "kafka")), folder)

    def broker(self, index: int = 0) -> psutil.Process:
        """The process of a broker, by its number."""
        ours = psutil.Process().children(recursive=True)
        return next(each for each in ours if _runs_broker(each, index))

    def keep(self, name: str) -> Path:
        """A copy of the folder, brokers' logs included, that stays when this is gone; where it is."""
        kept = Path(tempfile.mkdtemp(prefix=f"reliability-{name}-"))
        indexes = shutil.ignore_patterns("*.index", "*.timeindex")  # large, and made anew from the logs
        shutil.copytree(self.folder, kept, dirs_exist_ok=True, symlinks=True, ignore=indexes)
        return kept

    def pipeline(self, name: str, **settings: Any) -> Pipeline:
        """A pipeline with topics, a query id and a folder that no other has; settings as of `Pipeline`."""
        unique = f"{name}-{uuid.uuid4().hex[:6]}"
        folder = self.folder / unique
        (folder / "marks").mkdir(parents=True)
        pipeline = Pipeline(self.kafka.bootstrap_servers, unique, folder, **settings)
        for topic in (pipeline.source, *pipeline.outputs):
            self.kafka.create_topic(topic, partitions=pipeline.partitions)
        return pipeline


def _runs_broker(process: psutil.Process, index: int) -> bool:
    with suppress(psutil.Error):
        command = process.cmdline()
        return "java" in command[0] and "kafka.Kafka" in command and f"broker-{index}/" in command[-1]
    return False


@dataclass
class Pipeline:
    """One query from its topic to its two.

    Args:
        bootstrap: brokers, as the harness reaches them.
        name: query id, group, and beginning of the topics' names.
        folder: of the job.
        partitions: of each topic; one lane for each of the input's.
        rows: of each lane in a batch.
        timeout_s: transaction.timeout.ms of the sink, in seconds.
    """

    bootstrap: str
    name: str
    folder: Path
    partitions: int = 2
    rows: int = 12
    timeout_s: float = 10
    _sequence: Counter[str] = field(default_factory=Counter)
    _fed: Counter[int] = field(default_factory=Counter)

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def outputs(self) -> tuple[str, str]:
        return f"{self.name}-out-a", f"{self.name}-out-b"

    @property
    def limit_s(self) -> float:
        """By when a batch that was hit must be committed, in seconds since the fault."""
        return self.timeout_s + GRACE_S

    @property
    def marks(self) -> Marks:
        return Marks(str(self.folder / "marks"))

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.folder / "checkpoint")

    def feed(self, batches: int) -> None:
        """Rows for so many batches: keys `k<i>`, values `k<i>:<sequence>`, each key in one partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        for row in range(batches * self.rows):
            for partition in range(self.partitions):
                key = f"k{partition + self.partitions * (row % KEYS_PER_PARTITION)}"
                producer.produce(self.source, f"{key}:{self._sequence[key]}", key, partition)
                self._sequence[key] += 1
                self._fed[partition] += 1
        if producer.flush(60):
            raise RunFailed("the input could not be written")

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """The checker's reader and its watch over the group's offsets, to run beside everything."""
        with Watch(self.bootstrap, outputs=self.outputs, group=self.name, inputs=(self.source,)) as watch:
            yield watch

    def check(self, watch: Watch) -> Findings:
        """What the independent checker finds, now that the job is done; its reader in Java takes 2 s."""
        how: dict[str, Any] = {"java_reader": JavaReader(self.bootstrap), "wait_s": self.limit_s + 30}
        return check(self.bootstrap, (self.source,), self.outputs, group=self.name, watch=watch, **how)

    def plan(self, **settings: Any) -> JobPlan:
        """What the job is started with; settings as of `JobPlan`."""
        sink = {"kafka.transaction.timeout.ms": str(int(self.timeout_s * 1000))} | settings.pop("sink", {})
        given = {"bootstrap": self.bootstrap, "rows_per_batch": self.rows * self.partitions} | settings
        return JobPlan(
            source=self.source, outputs=self.outputs, query_id=self.name, folder=str(self.folder), sink=sink, **given
        )

    def job(self, plan: JobPlan) -> JobProcess:
        """One life of the job; whoever starts it calls its `end`, after which nothing of it is left."""
        return JobProcess([sys.executable, str(JOB), plan.to_json()], self.folder, self.log)

    def run(self, plan: JobPlan) -> bool:
        """One life of the job, to its end; whether it was killed by a planned fault of the driver.

        Raises:
            RunFailed: it failed, or does not end; with the tail of its log.
        """
        marks = self._driver_marks()
        with ended(self.job(plan)) as job:
            deadline = time.monotonic() + LIFE_S
            while (code := job.exit_code) is None:
                if time.monotonic() > deadline:
                    raise RunFailed(f"{self.name} did not end in {LIFE_S:.0f} s.\n{self.log_tail()}")
                time.sleep(LOOK_EVERY_S)
        killed = self._driver_marks() > marks
        if code != 0 and not killed:
            raise RunFailed(f"{self.name} ended with code {code}.\n{self.log_tail()}")
        return killed

    @contextmanager
    def running(self, plan: JobPlan) -> Iterator[Running]:
        """A continuous job, which is started again where it fails; stopped at the end."""
        running = Running(self, plan)
        try:
            yield running
            running.stop()
        finally:
            running.end()

    def _driver_marks(self) -> int:
        return len(list((self.folder / "marks").glob("*-driver")))

    def stop(self, job: JobProcess) -> None:
        """SIGTERM to a continuous job, and wait until it has ended."""
        with suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while job.exit_code is None and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)

    def committed_at(self, batch: int) -> float | None:
        """When Spark noted that a batch is done, seconds since 1970; None if it has not."""
        path = self.checkpoint.folder / "commits" / str(batch)
        return path.stat().st_mtime if path.exists() else None

    def all_done(self) -> bool:
        """Whether Spark noted as done what was fed."""
        batch = self.checkpoint.last_done
        log = self.checkpoint.folder / "offsets" / str(batch)
        if not log.exists():
            return False
        ends = json.loads(log.read_text().splitlines()[-1]).get(self.source, {})
        return all(ends.get(str(partition)) == count for partition, count in self._fed.items())

    @property
    def log(self) -> Path:
        return self.folder / "job.log"

    def log_tail(self, lines: int = 30) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(line[:300] for line in text.splitlines()[-lines:])


@contextmanager
def ended(job: JobProcess) -> Iterator[JobProcess]:
    """A job of which nothing is left at the end."""
    try:
        yield job
    finally:
        job.end()


class Running:
    """A continuous job. A query that failed is started again, as whoever runs queries does.

    Args:
        pipeline: whose.
        plan: how it is started.
    """

    def __init__(self, pipeline: Pipeline, plan: JobPlan) -> None:
        self._pipeline, self._plan = pipeline, plan
        self._job = pipeline.job(plan)
        self.restarts = 0

    @property
    def pid(self) -> int:
        """Of the job's first process; Python, its JVM and workers are below it."""
        return self._job.pid

    def look(self) -> None:
        """Start the job again if it has ended."""
        if self._job.exit_code is not None:
            self._job.end()
            self._job = self._pipeline.job(self._plan)
            self.restarts += 1

    def wait(self, until: Callable[[], bool], limit_s: float = LIFE_S) -> bool:
        """Until something holds; whether it did in time."""
        deadline = time.monotonic() + limit_s
        while not (holds := until()) and time.monotonic() < deadline:
            self.look()
            time.sleep(LOOK_EVERY_S)
        return holds

    def drain(self) -> None:
        """Wait until all that was fed is done."""
        self.wait(self._pipeline.all_done)

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended."""
        self._pipeline.stop(self._job)

    def end(self) -> None:
        """Leave nothing of it behind."""
        self._job.end()
