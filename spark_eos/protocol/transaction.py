"""A lane, step by step. The only place with this control flow; DESIGN.md numbers the steps the same way.

    1 peek     the first rows; a lane without any ends here, with no producer
    2 fence    a fresh producer, `init_transactions`
    3 check    the lane's and the query's ledger rows: write, skip or refuse
    4 write    begin, every row; then flush. `protocol/limit.py` holds how long it may take
    5 offsets  the lane's ledger row and the source offsets into the same transaction
    6 commit   acknowledged, aborted, or unconfirmed: never a guess

Exactly once, because rows, ledger row and source offsets become visible in one transaction, and because a later
attempt fences before it reads the ledger: what it then reads is final (KIP-98, KIP-447).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from enum import Enum
from itertools import chain
from types import MappingProxyType

from spark_eos.errors import Fenced, SparkEosError
from spark_eos.protocol.decide import Verb, decide_lane
from spark_eos.protocol.ledger import LaneRow
from spark_eos.protocol.limit import time_limit
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.ports import BeforeStep, LaneLedger, LanePorts, Rows, Transaction
from spark_eos.protocol.positions import Fingerprint, Offsets, SourceRange, Tally, TopicPartition, offsets_after
from spark_eos.protocol.refusals import adoption_blind, taken_over
from spark_eos.protocol.replay import check_replay
from spark_eos.protocol.stats import LaneStats, Stopwatch

NO_OFFSETS: Mapping[TopicPartition, int] = MappingProxyType({})


class Step(str, Enum):
    """The steps of a lane, in order; REPORT is after the last, when the driver has yet to be told."""

    PEEK = "peek"
    FENCE = "fence"
    CHECK = "check"
    WRITE = "write"
    FLUSH = "flush"
    OFFSETS = "offsets"
    COMMIT = "commit"
    REPORT = "report"


class Outcome(str, Enum):
    """How a lane's attempt ended well. Every other end is an error."""

    EMPTY = "empty"
    SKIPPED = "skipped"
    COMMITTED = "committed"


@dataclass(frozen=True)
class LaneReport:
    """What a lane tells the driver.

    Args:
        batch, lane: which one.
        outcome: EMPTY, SKIPPED (an earlier attempt had committed it) or COMMITTED.
        fingerprint: all rows of the lane, dropped ones too.
        dropped: rows below the floor, which an adopted query had processed before.
        ranges: where the rows came from.
        stats: what the attempt did and took.
        dead: rows that went to the dead letters; 0 where SKIPPED, as this attempt wrote nothing.
    """

    batch: int
    lane: int
    outcome: Outcome
    fingerprint: Fingerprint
    dropped: int = 0
    ranges: tuple[SourceRange, ...] = ()
    stats: LaneStats = field(default_factory=LaneStats)
    dead: int = 0

    def to_json(self) -> str:
        ranges = [[r.topic, r.partition, r.first, r.last, r.rows] for r in self.ranges]
        print_ = astuple(self.fingerprint)
        stats = self.stats.to_json()
        return json.dumps([self.batch, self.lane, self.outcome.value, print_, self.dropped, ranges, stats, self.dead])

    @classmethod
    def from_json(cls, text: str) -> LaneReport:
        batch, lane, outcome, print_, dropped, ranges, stats, dead = json.loads(text)
        found = tuple(SourceRange(*each) for each in ranges)
        return cls(batch, lane, Outcome(outcome), Fingerprint(*print_), dropped, found, LaneStats(**stats), dead)


def run_lane(
    task: LaneTask,
    stream: Iterator[Rows],
    ports: LanePorts,
    *,
    before_step: Callable[[Step], None],
    floor: Mapping[TopicPartition, int] = NO_OFFSETS,
    known: Mapping[TopicPartition, int] | None = NO_OFFSETS,
    keep: bool = False,
) -> LaneReport:
    """Write one lane of one batch exactly once, or find that it is written.

    Args:
        task: who writes what.
        stream: the lane's rows in order, in pieces; each piece has at least one row.
        ports: Kafka.
        before_step: told each step before it begins.
        floor, known, keep: as of `BatchPlan`.

    Raises:
        TransactionTooLong: rows took nearly as long as a transaction may be open, see `protocol/limit.py`.
        SparkEosError: with query, batch and lane filled in. Nothing of this attempt is or becomes visible,
            except after `Unconfirmed`, where the next attempt's fence and check settle it.
    """
    watch = Stopwatch(ports.clock)

    def announce(step: Step) -> None:
        watch.begin(step.value)
        before_step(step)

    try:
        return _Lane(task, ports, floor, known, keep, announce, watch).run(stream)
    except Fenced as error:
        raise _explained(error, task, ports.ledger) from error
    except SparkEosError as error:
        raise error.at(task.run.query, task.batch, task.lane) from error.__cause__


@dataclass
class _Lane:
    task: LaneTask
    ports: LanePorts
    floor: Mapping[TopicPartition, int]
    known: Mapping[TopicPartition, int] | None
    keep: bool
    before_step: Callable[[Step], None]
    watch: Stopwatch
    tally: Tally = field(default_factory=Tally)
    dropped: int = 0
    written: int = 0
    bytes: int = 0
    queue_waits: int = 0
    dead: int = 0

    def run(self, stream: Iterator[Rows]) -> LaneReport:
        self.before_step(Step.PEEK)
        first = next(stream, None)
        if first is None:
            return self._report(Outcome.EMPTY)
        stream = chain([first], stream)
        # A run that was taken over must not fence its successor's lanes; the check after the fence decides.
        self._refuse_if_taken_over()

        self.before_step(Step.FENCE)
        with self.ports.open_transaction(self.task.transactional_id) as transaction:
            transaction.fence()
            self.before_step(Step.CHECK)
            query, row = self.ports.ledger.lane(self.task.lane)
            decision = decide_lane(self.task, query, row)
            had_none = decision.case.startswith("L6 ")
            if decision.error and not (self.keep and had_none):
                raise decision.error
            if decision.verb is not Verb.WRITE:
                return self._skip({self.task.lane: row} if row and not had_none else {}, stream)
            self._transact(transaction, stream, query.adoptions if query else 0)
            report = self._report(Outcome.COMMITTED)
        self.before_step(Step.REPORT)
        return report

    def _transact(self, transaction: Transaction, stream: Iterator[Rows], adoptions: int) -> None:
        self.before_step(Step.WRITE)
        with time_limit(self.task, self.ports.timeout_s, self.ports.clock, self.ports.alarm) as limit:
            transaction.begin()
            try:
                for rows in stream:
                    limit.check(self.tally.rows)
                    self._write(transaction, self._kept(rows))
                limit.check(self.tally.rows)
                self.before_step(Step.FLUSH)
                transaction.flush()
                limit.check(self.tally.rows)
                self.before_step(Step.OFFSETS)
                transaction.commit_offsets([self._row(adoptions)], self._offsets())
                limit.check(self.tally.rows)
            except BaseException:
                transaction.abort()
                raise
            self.before_step(Step.COMMIT)
            transaction.commit()

    def _write(self, transaction: Transaction, rows: Rows) -> None:
        dead = transaction.write(rows)
        self.dead += dead
        self.written += len(rows) - dead
        self.bytes += rows.payload_bytes()
        self.queue_waits = transaction.queue_waits

    def _kept(self, rows: Rows) -> Rows:
        self._count(rows)
        if not self.floor:
            return rows
        known = {topic for topic, _ in self.floor}
        ranges = rows.ranges()
        for each in ranges:
            if each.topic not in known:
                raise adoption_blind(f"a row comes from {each.topic}, which is no Kafka source of the query")
        if sum(each.rows for each in ranges) < len(rows):
            raise adoption_blind("a row has no source position")
        kept = rows.beyond(self.floor)
        self.dropped += len(rows) - len(kept)
        return kept

    def _skip(self, committed: Mapping[int, LaneRow], stream: Iterator[Rows]) -> LaneReport:
        for rows in stream:
            self._count(rows)
        check_replay(committed, {self.task.lane: self.tally.fingerprint}, sealed=True, keep=self.keep)
        return self._report(Outcome.SKIPPED)

    def _count(self, rows: Rows) -> None:
        self.tally.add(len(rows), rows.ranges(), rows.digests())

    def _offsets(self) -> Offsets:
        """Source offsets to commit with the rows: none below what is committed already."""
        if self.known is None:
            return {}
        found = {each.key for each in self.tally.ranges}
        asked = self.ports.ledger.offsets(found - self.known.keys(), stable=False)
        return offsets_after(self.tally.ranges, {**asked, **self.known})

    def _row(self, adoptions: int) -> LaneRow:
        task = self.task
        return LaneRow(
            lane=task.lane,
            next_batch=task.batch + 1,
            checkpoint=task.run.checkpoint,
            run=task.run.run,
            attempt=task.attempt,
            lanes=task.lanes,
            fingerprint=self.tally.fingerprint,
            content=task.content,
            adoptions=adoptions,
        )

    def _refuse_if_taken_over(self) -> None:
        query = self.ports.ledger.query()
        if query is not None and query.run != self.task.run.run:
            raise taken_over(self.task.run, query)

    def _report(self, outcome: Outcome) -> LaneReport:
        task, tally = self.task, self.tally
        stats = LaneStats(task.attempt, self.written, self.bytes, self.queue_waits, self.watch.stop())
        ranges = tally.ranges
        return LaneReport(task.batch, task.lane, outcome, tally.fingerprint, self.dropped, ranges, stats, self.dead)


def traced(task: LaneTask, before_step: BeforeStep | None) -> Callable[[Step], None]:
    """A user's `before_step` (or none), as `run_lane` calls it."""
    if before_step is None:
        return lambda _: None
    return lambda step: before_step(step.value, task)


def _explained(error: Fenced, task: LaneTask, ledger: LaneLedger) -> Fenced:
    """A fenced attempt, with the run that fenced it where the ledger knows."""
    try:
        query = ledger.query()
    except SparkEosError:
        query = None
    newer = query is not None and query.run != task.run.run
    found = taken_over(task.run, query) if newer and query else error
    return found.at(task.run.query, task.batch, task.lane)
