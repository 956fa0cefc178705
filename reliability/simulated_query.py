"""A query in the simulation: its rows, its checkpoint, its drivers and tasks; and what must hold of it.

What must hold, by number:

 1 lost: every row of every batch that Spark's checkpoint has as committed is there, and in the end every row;
 2 doubled: none is there twice;
 3 torn: of a lane's batch all rows are there, or none, whatever partitions they went to; and none is seen whose
   ledger row is not committed with it;
 4 seen and gone: what a read_committed reader has seen stays, in its place (no aborted row, no row before its commit);
 5 order: a lane's rows stand in each partition in the order of the query;
 6 back: committed offsets, the ledger's rows among them, never move back;
 7 held back: in the end nothing keeps readers from the end of the log;
 8 false report: a lane that reported "committed" or "skipped" is committed;
 9 false seal: a batch that the ledger has as sealed has all its rows;
10 no way on: without further mishaps a restarted query comes to its end;
11 unexpected: no error but those that spark_eos promises.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b

from processes import Scheduler

from spark_eos.errors import SparkEosError
from spark_eos.kafka.topics import Record
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.decide import Policy
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.parallel import one_by_one
from spark_eos.protocol.ports import LanePorts
from spark_eos.protocol.positions import Fingerprint, SourceRange, TopicPartition
from spark_eos.protocol.replay import fingerprint_of
from spark_eos.protocol.transaction import LaneReport, Outcome, run_lane
from spark_eos.testing.simulated.client import Client
from spark_eos.testing.simulated.kafka import LEDGER_TOPIC, SimulatedKafka

QUERY, CHECKPOINT, TOPIC = "q", "checkpoint", "out"
ATTEMPTS = 3
"""Of a task, as spark.task.maxFailures has it (4 by default)."""


class Anomaly(AssertionError):
    """A numbered property does not hold."""


@dataclass(frozen=True)
class SourceRows:
    """Rows of one source partition, one after the other, to alternating partitions of the output."""

    partition: int
    first: int
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    def ranges(self) -> Sequence[SourceRange]:
        return [SourceRange("in", self.partition, self.first, self.first + len(self) - 1, len(self))]

    def beyond(self, floor: Mapping[TopicPartition, int]) -> SourceRows:
        drop = max(0, floor.get(("in", self.partition), 0) - self.first)
        return SourceRows(self.partition, self.first + drop, self.values[drop:])

    def digests(self) -> bytes:
        return b"".join(blake2b(value.encode(), digest_size=8).digest() for value in self.values)

    def payload_bytes(self) -> int:
        return sum(map(len, self.values))

    def records(self) -> Iterator[Record]:
        for offset, value in enumerate(self.values, self.first):
            yield Record(TOPIC, None, value.encode(), offset % 2, None, 0, self)

    @property
    def source(self) -> str | None:
        return f"in-{self.partition}@{self.first}"


@dataclass
class Checkpoint:
    """What Spark keeps: which batches there are, and which it has as committed.

    Args:
        batches: each a list of lanes; a lane is a tuple of rows' pieces.
        committed: how many of them are.
    """

    batches: list[list[tuple[SourceRows, ...]]]
    committed: int = 0

    @classmethod
    def of(cls, batches: int, lanes: int, rows: int = 2) -> Checkpoint:
        """So many batches of so many lanes, each lane with so many rows in pieces of one.

        Of the last lane only every other batch has rows.
        """

        def lane(batch: int, number: int) -> tuple[SourceRows, ...]:
            if number and number == lanes - 1 and batch % 2:
                return ()
            firsts = range(batch * rows, (batch + 1) * rows)
            return tuple(SourceRows(number, first, (f"{number}:{first}",)) for first in firsts)

        return cls([[lane(batch, number) for number in range(lanes)] for batch in range(batches)])

    def places(self) -> dict[str, tuple[int, int]]:
        """Each row's batch and lane."""
        numbered = ((b, n, lane) for b, batch in enumerate(self.batches) for n, lane in enumerate(batch))
        return {value: (b, n) for b, n, lane in numbered for rows in lane for value in rows.values}

    def fingerprint(self, batch: int, lane: int) -> Fingerprint:
        """Of a lane of a batch."""
        return fingerprint_of(self.batches[batch][lane])

    def values(self, batch: int) -> set[str]:
        """A batch's rows."""
        return {value for lane in self.batches[batch] for rows in lane for value in rows.values}


class Query:
    """The query on simulated brokers."""

    def __init__(self, kafka: SimulatedKafka, checkpoint: Checkpoint) -> None:
        self.kafka, self.checkpoint = kafka, checkpoint
        self.ledger = kafka.ledger(QUERY)
        self._clients: dict[str, Client] = {}
        kafka.create_topic(TOPIC, 2)
        kafka.create_topic("in", 3)

    def client(self, run: str) -> Client:
        """What makes a run's producers, in its driver and its workers: no two runs share a process."""
        return self._clients.setdefault(run, self.kafka.client(QUERY))

    def clock(self) -> float:
        """The brokers' time: no process here has one of its own."""
        return self.kafka.brokers.now

    def run(self, name: str) -> QueryRun:
        """A run of the query, before it has begun."""
        identity = Run(QUERY, CHECKPOINT, name)
        return QueryRun(
            identity,
            self.ledger,
            self.client(name).open,
            Policy(),
            lambda: "now",
            for_each=one_by_one,
        )

    def attempt(self, run: Run, batch: int, lane: int, attempt: int, lanes: int) -> LaneReport:
        """What a task does."""
        task = LaneTask(run, batch, lane, lanes, attempt, f"content {batch}")
        rows = iter(self.checkpoint.batches[batch][lane])
        client = self.client(run.run)
        ports = LanePorts(self.ledger, client.open, client.timeout_s, self.clock, _no_alarm)
        return run_lane(task, rows, ports, before_step=_untraced)


@dataclass
class Driver:
    """Spark's driver with this query: goes on at the checkpoint, starts tasks, tries them again.

    Args:
        query: what it runs.
        scheduler: what its processes are.
        name: of the run.
        twice: whether a task may be taken for lost while it goes on, and started again.
    """

    query: Query
    scheduler: Scheduler
    name: str
    twice: bool = False
    reports: list[LaneReport] = field(default_factory=list)

    def __call__(self) -> None:
        """To the end of what there is, or to the first error."""
        checkpoint, run = self.query.checkpoint, self.query.run(self.name)
        for batch in range(checkpoint.committed, len(checkpoint.batches)):
            lanes = len(checkpoint.batches[batch])
            logged = BatchLog(f"content {batch}")
            plan = run.open(batch, lanes, logged)
            run.compare(batch, plan, {lane: checkpoint.fingerprint(batch, lane) for lane in plan.committed})
            if not plan.skip:
                run.seal(batch, lanes, self._run_lanes(run.run, batch, lanes), logged, plan)
            self.scheduler.stop("Spark's commit log")
            checkpoint.committed = max(checkpoint.committed, batch + 1)

    def _run_lanes(self, run: Run, batch: int, lanes: int) -> list[LaneReport]:
        tasks = [Task(self, run, batch, lane, lanes) for lane in range(lanes)]
        for task in tasks:
            task.start()
        while True:
            self.scheduler.wait(lambda: any(task.wants_driver() for task in tasks), "tasks")
            for task in tasks:
                task.look()
            if all(task.report for task in tasks):
                return [task.report for task in tasks if task.report]


@dataclass
class Task:
    """One lane of one batch, as the driver sees it."""

    driver: Driver
    run: Run
    batch: int
    lane: int
    lanes: int
    report: LaneReport | None = None
    attempts: list[object] = field(default_factory=list)
    _looked: int = 0

    def start(self) -> None:
        """The first attempt; a second one beside it, if the driver takes the first for lost."""
        self._try()
        if self.driver.twice and self.driver.scheduler.choices.choose(f"task {self.lane}", ["found", "lost"]):
            self._try()

    def wants_driver(self) -> bool:
        """An attempt has ended that the driver has not looked at."""
        return self.report is None and sum(each.over for each in self.attempts) > self._looked

    def look(self) -> None:
        """Take a report, or try again.

        Raises:
            SparkEosError: the last attempt's.
        """
        over = [each for each in self.attempts if each.over]
        self._looked = len(over)
        reports = [each.result for each in over if each.result is not None]
        if reports and self.report is None:
            self.report = reports[0]
        if self.report is None and len(over) == len(self.attempts):
            if len(self.attempts) >= ATTEMPTS:
                raise over[-1].error or SparkEosError("the task was killed once too often")
            self._try()

    def _try(self) -> None:
        number = len(self.attempts)
        name = f"{self.run.run}: batch {self.batch} lane {self.lane} attempt {number}"
        query = self.driver.query

        def body() -> LaneReport:
            report = query.attempt(self.run, self.batch, self.lane, number, self.lanes)
            self.driver.reports.append(report)
            return report

        self.attempts.append(self.driver.scheduler.start(name, body))


class Watch:
    """Looks at what stands there after each step, and at the end."""

    def __init__(self, query: Query) -> None:
        self._query, self._kafka = query, query.kafka
        self._seen: dict[int, list[bytes | None]] = {}
        self._unsettled = query.checkpoint.places()
        self._offsets: dict[TopicPartition, int] = {}
        self._looked_at = 0

    def __call__(self) -> None:
        """3, 4, 6: what is seen has its ledger row, nothing that was seen is gone, nothing went back."""
        brokers = self._kafka.brokers
        now = brokers.fingerprint()
        if now == self._looked_at:
            return
        self._looked_at = now
        for partition, values in self._read().items():
            before = self._seen.get(partition, [])
            _must(values[: len(before)] == before, "4 seen and gone", f"partition {partition}: {before}, now {values}")
            self._seen[partition] = values
        offsets = {place: each.offset for place, each in brokers.group(QUERY).all().items()}
        self._with_ledger_row(offsets)
        for place, offset in self._offsets.items():
            _must(offsets.get(place, -1) >= offset, "6 back", f"{place}: {offset}, now {offsets.get(place)}")
        self._offsets = offsets

    def _with_ledger_row(self, offsets: Mapping[TopicPartition, int]) -> None:
        seen = [value.decode() for values in self._seen.values() for value in values if value]
        new = {value: self._unsettled[value] for value in seen if value in self._unsettled}
        missing = {v: at for v, at in new.items() if offsets.get((LEDGER_TOPIC, 1 + at[1]), 0) <= at[0]}
        for value in new.keys() - missing.keys():
            del self._unsettled[value]
        on_its_way = any(each.place == QUERY and each.marker.commit for each in self._kafka.brokers.markers())
        _must(not missing or on_its_way, "3 torn", f"seen without their ledger rows: {sorted(missing)}")

    def at_the_end(self, reports: Sequence[LaneReport]) -> None:
        """All the others. The brokers have settled, and late requests are no more."""
        self()
        checkpoint = self._query.checkpoint
        found = Counter(value.decode() for values in self._read().values() for value in values if value)
        self._whole(checkpoint, found)
        for partition, values in self._read().items():
            for lane, of_lane in itertools.groupby(sorted(_parsed(values)), key=lambda each: each[0]):
                expected = [each[1] for each in of_lane]
                order = [offset for number, offset in _parsed(values) if number == lane]
                _must(order == expected, "5 order", f"partition {partition}, lane {lane}: {order}")
        for (topic, number), log in self._kafka.brokers.logs().items():
            _must(log.last_stable_offset == log.high_watermark, "7 held back", f"{topic}-{number}")
        for report in reports:
            if report.outcome is not Outcome.EMPTY:
                row = self._kafka.brokers.group(QUERY).all().get((LEDGER_TOPIC, 1 + report.lane))
                _must(row is not None and row.offset > report.batch, "8 false report", f"{report}, ledger row {row}")
        sealed = self._offsets.get((LEDGER_TOPIC, 0), 0)
        for batch in range(sealed):
            missing = checkpoint.values(batch) - found.keys()
            _must(not missing, "9 false seal", f"batch {batch} is sealed without {sorted(missing)}")

    def _whole(self, checkpoint: Checkpoint, found: Counter[str]) -> None:
        doubled = [value for value, times in found.items() if times > 1]
        _must(not doubled, "2 doubled", str(sorted(doubled)))
        for number, batch in enumerate(checkpoint.batches):
            for lane, pieces in enumerate(batch):
                values = [value for rows in pieces for value in rows.values]
                there = [value for value in values if value in found]
                _must(len(there) in (0, len(values)), "3 torn", f"batch {number} lane {lane}: {there} of {values}")
            lost = checkpoint.values(number) - found.keys()
            _must(number >= checkpoint.committed or not lost, "1 lost", f"batch {number}: {sorted(lost)}")

    def _read(self) -> dict[int, list[bytes | None]]:
        logs = {number: log for (topic, number), log in self._kafka.brokers.logs().items() if topic == TOPIC}
        return {number: [_value(entry) for entry in log.records()] for number, log in logs.items()}


def _value(entry: object) -> bytes | None:
    return entry.content.value


def _parsed(values: Sequence[bytes | None]) -> list[tuple[int, int]]:
    pairs = [value.decode().split(":") for value in values if value]
    return [(int(lane), int(offset)) for lane, offset in pairs]


def _must(holds: bool, label: str, shown: str) -> None:
    if not holds:
        raise Anomaly(f"{label}: {shown}")


def _untraced(_: object) -> None:
    """The network's log tells more."""


def _no_alarm(*_: object) -> AbstractContextManager[None]:
    """Nobody waits here for anything but requests."""
    return nullcontext()
