"""What a soak looks at over time: the processes, and what the broker tells of the topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import psutil
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from spark_eos.testing.broker import run_tool

ROLES = ("driver JVM", "driver Python", "workers", "broker")
TASKS = ["pyspark.daemon", "pyspark.worker"]
ANSWER_S = 20
PATIENCE_S = 60
MIB = 1024 * 1024

Place = tuple[str, int]
Answer = TypeVar("Answer")


def job_processes(pid: int) -> dict[str, list[psutil.Process]]:
    """The job's processes by role: its JVM, the JVM's parent (the driver's Python), and the JVM's children.

    Args:
        pid: of the job, or of what it was started by.
    """
    roles: dict[str, list[psutil.Process]] = {role: [] for role in ROLES[:3]}
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(pid).children(recursive=True)
        jvm = next((each for each in family if _is_java(each)), None)
        if jvm is not None:
            roles["driver JVM"] = [jvm]
            roles["driver Python"] = [each for each in [jvm.parent()] if each is not None]
            roles["workers"] = jvm.children(recursive=True)
    return roles


def task_workers(pid: int) -> list[psutil.Process]:
    """The job's Python workers that run tasks.

    Spark forks them from a daemon, and their command line is the daemon's, which names what its children are for.
    Others plan and look up data sources for the driver: without one of those a query fails, which Spark does not mend.
    """
    return [worker for worker in job_processes(pid)["workers"] if _runs_tasks(worker)]


def _runs_tasks(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return parent is not None and process.cmdline()[-2:] == parent.cmdline()[-2:] == TASKS
    return False


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == "java"
    return False


def usage(processes: Iterable[psutil.Process]) -> dict[str, float] | None:
    """Resident memory in MiB, open files and threads, summed; None where nothing runs."""
    found: list[tuple[int, int, int]] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found.append((process.memory_info().rss, process.num_fds(), process.num_threads()))
    if not found:
        return None
    memory, files, threads = map(sum, zip(*found, strict=True))
    return {"memory": round(memory / MIB, 1), "files": files, "threads": threads}


def transactional_ids(bootstrap: str) -> int:
    """How many transactional.ids the broker knows, by Kafka's own command."""
    command = ["--bootstrap-server", bootstrap, "list"]
    lines = run_tool("org.apache.kafka.tools.TransactionsCommand", command).splitlines()
    return sum(1 for line in lines[1:] if line.strip())


def _patient(ask: Callable[[], Answer]) -> Answer:
    """Ask again for a while: a broker under load answers late, and a group's first coordinator has to be found."""
    retry = retry_if_exception_type(KafkaException)
    return Retrying(retry=retry, stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.2), reraise=True)(ask)


class Ends:
    """Where partitions end: for readers of everything, and for read_committed readers.

    Args:
        bootstrap: the broker.
        topics: which.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        known = self._admin.list_topics(timeout=ANSWER_S).topics
        self.places: list[Place] = [(topic, partition) for topic in topics for partition in known[topic].partitions]

    def high(self) -> dict[Place, int]:
        return self._ask(IsolationLevel.READ_UNCOMMITTED)

    def stable(self) -> dict[Place, int]:
        return self._ask(IsolationLevel.READ_COMMITTED)

    def _ask(self, isolation: IsolationLevel) -> dict[Place, int]:
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self.places}

        def answer() -> dict[Place, int]:
            futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=ANSWER_S)
            return {(key.topic, key.partition): future.result(ANSWER_S).offset for key, future in futures.items()}

        return _patient(answer)


def records_held_back(ends: Ends) -> int:
    """How many records read_committed readers do not get yet."""
    # In this order: what is committed in between makes it smaller, and never negative.
    high, stable = ends.high(), ends.stable()
    return sum(max(0, high[place] - stable[place]) for place in stable)


@dataclass
class HeldBack:
    """How far and for how long open transactions hold readers back, since it was last asked."""

    ends: Ends
    records: int = 0
    seconds: float = 0.0
    _since: dict[Place, tuple[int, float]] = field(default_factory=dict)

    def look(self) -> None:
        """Note the LSO's lag. The longest of what is seen counts, until `take`."""
        high, stable = self.ends.high(), self.ends.stable()
        now = time.monotonic()
        for place, end in stable.items():
            if end >= high[place]:
                self._since.pop(place, None)
                continue
            known = self._since.get(place)
            since = known[1] if known is not None and known[0] == end else now
            self._since[place] = (end, since)
            self.seconds = max(self.seconds, now - since)
        self.records = max(self.records, sum(max(0, high[place] - stable[place]) for place in stable))

    def take(self) -> dict[str, float]:
        """The most records and seconds since the last call."""
        found = {"records": self.records, "seconds": round(self.seconds, 1)}
        self.records, self.seconds = 0, 0.0
        return found


class Lag:
    """How far a group's committed offsets are behind.

    Args:
        bootstrap: the broker.
        group: whose offsets.
        topic: that it reads.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._ends = Ends(bootstrap, [topic])
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    def close(self) -> None:
        self._consumer.close()

    def now(self) -> dict[str, int]:
        """Records processed, and records still to process."""
        asked = [TopicPartition(*place) for place in self._ends.places]
        found = _patient(lambda: self._consumer.committed(asked, ANSWER_S))
        done = sum(max(0, each.offset) for each in found)
        return {"processed": done, "lag": max(0, sum(self._ends.high().values()) - done)}
