"""A run of a query on the driver: take over once, then open and seal each batch.

Take-over, in this order:
    1 look     read the ledger and decide, before anyone is disturbed: a run that must refuse fences nobody
    2 lease    `init_transactions` on the driver's id: an older driver's next seal fails
    3 sign     this run's id into the query's row: the older run's tasks refuse from now on
    4 fence    `init_transactions` on every lane an older run may have left open, used by this run or not
    5 decide   read the ledger again, stable, and decide for good

The driver's producer is the lease, so it is kept for the run and not made anew for each seal: a fresh one would
fence its successor. What a fresh producer guards lanes against (a late EndTxn of the last transaction lands on
the next one, KAFKA-17754) can't hurt here: after any error the producer is never used again, so only a commit can
be late; a seal is a single TxnOffsetCommit, and committing it early is right, since all lanes are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

from spark_eos.errors import Fenced, SparkEosError
from spark_eos.protocol.decide import BatchFacts, Decision, Verb, adoption_blind, decide_batch, taken_over
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.names import Run, driver_transactional_id, lane_transactional_id
from spark_eos.protocol.ports import OpenTransaction, QueryLedger, Transaction
from spark_eos.protocol.positions import Offsets, TopicPartition, is_aligned, offsets_after
from spark_eos.protocol.transaction import LaneReport

FENCES_AT_ONCE = 16
"""Fencing one lane is mostly waiting. Each is a producer of its own: 7 threads, and about 1 MiB (measured)."""


@dataclass(frozen=True)
class Policy:
    """What the user allows where the ledger and the batch disagree."""

    may_start: bool = False
    may_adopt: bool = False


@dataclass(frozen=True)
class BatchPlan:
    """What the lanes of an opened batch need to know.

    Args:
        skip: the batch is sealed: start no task.
        floor: rows below these source positions were processed before this checkpoint was adopted.
    """

    skip: bool
    floor: Offsets


class QueryRun:
    """One run of one query. Not for several threads: Spark opens and seals one batch at a time.

    Args:
        run: whose.
        ledger: the query's ledger.
        open_transaction: makes producers.
        policy: what the user allows.
        now: the time as the ledger shows it, ISO 8601.
    """

    def __init__(
        self,
        run: Run,
        ledger: QueryLedger,
        open_transaction: OpenTransaction,
        policy: Policy,
        now: Callable[[], str],
    ) -> None:
        self.run, self._ledger, self._policy, self._now = run, ledger, policy, now
        self._open_transaction = open_transaction
        self._held: AbstractContextManager[Transaction] | None = None
        self._lease: Transaction | None = None
        self._row: QueryRow | None = None
        self._floor: Offsets = {}
        self._ended: SparkEosError | None = None

    def open(self, batch: int, lanes: int, sources: Iterable[TopicPartition] = ()) -> BatchPlan:
        """Decide what becomes of a batch, before any of its tasks starts; the first time, take over.

        Args:
            batch: micro-batch id.
            lanes: partitions of its DataFrame.
            sources: source partitions that the query reads; only needed to adopt.

        Raises:
            LedgerRefusal: a REFUSE case of the batch table.
            Fenced: a newer run took over.
            ClusterError: Kafka can't be reached or is not as needed.
        """
        if self._ended is not None:
            # A caller that swallowed it must not take the query back from the run that took over.
            raise self._ended
        try:
            decision = self._take_over(batch, lanes, sources) if self._row is None else self._decide(batch, lanes)
            return BatchPlan(skip=decision.verb is Verb.SKIP, floor=self._floor)
        except SparkEosError as error:
            # A take-over that failed half-way (an adoption without its floor) must not be gone on with.
            self.close()
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def seal(self, batch: int, lanes: int, reports: Sequence[LaneReport], log_offsets: Offsets) -> None:
        """Note that every lane of a batch has committed.

        Args:
            batch, lanes: as opened.
            reports: one of each lane.
            log_offsets: the batch's end offsets from the query's offset log, committed for source partitions
                of which no row carried a position.

        Raises:
            Fenced: a newer run took over. Its lanes are not harmed: this run's are committed, and it skips them.
            Unconfirmed: no answer; the next run finds the batch sealed, or its lanes committed.
        """
        check_reports(batch, lanes, reports)
        ranges = [report.ranges for report in reports]
        aligned = is_aligned(ranges)
        spread = {} if aligned else offsets_after((r for each in ranges for r in each), self._floor)
        carried = {r.key for each in ranges for r in each}
        # Rows carry positions or they don't: a partition without rows in a batch that does has nothing to move.
        offsets = spread if carried else log_offsets
        try:
            self._commit(replace(self._signed(), next_batch=batch + 1, lanes=lanes, aligned=aligned), offsets)
        except SparkEosError as error:
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def raise_if_taken_over(self, batch: int, cause: BaseException) -> None:
        """After lanes failed: if a newer run took over, that is why, and what the operator must know first."""
        try:
            row = self._ledger.query()
        except SparkEosError:
            return
        if row is not None and row.run != self.run.run:
            raise taken_over(self.run, row).at(batch=batch) from cause

    def close(self) -> None:
        """Drop the lease's producer. The ledger stays as it is."""
        held, self._held, self._lease, self._row = self._held, None, None, None
        if held is not None:
            held.__exit__(None, None, None)

    # --- take-over ---------------------------------------------------------------------------------------------

    def _take_over(self, batch: int, lanes: int, sources: Iterable[TopicPartition]) -> Decision:
        self._ledger.ensure(lanes)
        self._decide_on(batch, lanes, stable=False)
        self._acquire_lease()
        self._sign(batch, lanes)
        self._fence_lanes()
        decision = self._decide_on(batch, lanes, stable=True)
        if decision.verb is Verb.ADOPT:
            self._adopt(batch, lanes)
        if self._signed().adopted:
            self._floor = self._ledger.offsets(sources)
            if not self._floor:
                raise adoption_blind("the query reads no Kafka topic that this cluster has")
        return decision

    def _acquire_lease(self) -> None:
        held = self._open_transaction(driver_transactional_id(self.run.query))
        lease = held.__enter__()
        self._held, self._lease = held, lease
        lease.fence()

    def _sign(self, batch: int, lanes: int) -> None:
        """Only now is the query's row final: the older driver is fenced."""
        row = self._ledger.query()
        if row is None:
            row = QueryRow(batch, self.run.checkpoint, self.run.run, self._now(), lanes)
        signed = replace(row, run=self.run.run, since=self._now(), lanes=max(row.lanes, lanes))
        self._commit(signed, {})

    def _fence_lanes(self) -> None:
        lanes = self._ledger.view(stable=False).lanes_to_fence
        with ThreadPoolExecutor(FENCES_AT_ONCE, "spark-eos fence") as pool:
            # After an error no further fence begins, those under way are waited for, and it is raised here.
            for _ in pool.map(self._fence_lane, range(lanes)):
                pass

    def _fence_lane(self, lane: int) -> None:
        with self._open_transaction(lane_transactional_id(self.run.query, lane)) as transaction:
            transaction.fence()

    def _adopt(self, batch: int, lanes: int) -> None:
        adopted = replace(
            self._signed(),
            next_batch=batch,
            checkpoint=self.run.checkpoint,
            lanes=lanes,
            aligned=None,
            adopted=True,
        )
        self._commit(adopted, {})

    # --- every batch -------------------------------------------------------------------------------------------

    def _decide(self, batch: int, lanes: int) -> Decision:
        row = self._signed()
        self._ledger.ensure(lanes)
        decision = self._decide_on(batch, lanes, stable=True)
        if decision.verb is Verb.WRITE and lanes > row.lanes:
            # Before any task starts: a run that comes after must know how many lanes it has to fence.
            self._commit(replace(row, lanes=lanes), {})
        return decision

    def _decide_on(self, batch: int, lanes: int, stable: bool) -> Decision:
        view = self._ledger.view(stable)
        # Of a run that has signed, the look is over: another run's name in the row means it was taken over.
        if self._row is not None and view.query is not None and view.query.run != self.run.run:
            raise taken_over(self.run, view.query)
        facts = BatchFacts(self.run, batch, lanes, view, self._policy.may_start, self._policy.may_adopt)
        decision = decide_batch(facts)
        if decision.error:
            raise decision.error
        return decision

    def _commit(self, row: QueryRow, offsets: Offsets) -> None:
        lease = self._lease
        if lease is None:
            raise AssertionError("the lease is held from the take-over on")
        try:
            lease.begin()
            lease.commit_offsets([row], offsets)
            lease.commit()
        except BaseException:
            lease.abort()
            self.close()
            raise
        self._row = row

    def _signed(self) -> QueryRow:
        if self._row is None:
            raise Fenced("this run has lost its lease", do="Restart the query.", query=self.run.query)
        return self._row

    def _explained(self, error: SparkEosError) -> SparkEosError:
        """A fenced driver, with the run that fenced it where the ledger knows. Its run has ended."""
        if not isinstance(error, Fenced):
            return error
        self._ended = error
        with suppress(SparkEosError):
            row = self._ledger.query()
            if row is not None and row.run != self.run.run:
                self._ended = taken_over(self.run, row)
        return self._ended


def check_reports(batch: int, lanes: int, reports: Iterable[LaneReport]) -> None:
    """Hold that every lane of the batch has reported once, and nothing else has.

    Raises:
        SparkEosError: Spark did not run the lanes as planned; the batch stays unsealed.
    """
    listed = list(reports)
    wrong = [r for r in listed if r.batch != batch]
    if wrong or sorted(r.lane for r in listed) != list(range(lanes)):
        told = ", ".join(f"{r.batch}/{r.lane}" for r in listed) or "none"
        raise SparkEosError(
            f"{lanes} lanes were started, and the reports (batch/lane) are: {told}",
            do="Restart the query: what is committed is skipped. Report this; it is a bug in spark-eos or in Spark.",
            batch=batch,
        )
