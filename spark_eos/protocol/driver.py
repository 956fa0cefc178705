"""A run of a query on the driver: take over once, then open and seal each batch.

Take-over, in this order:
    1 look     read the ledger and decide, before anyone is disturbed: a run that must refuse fences nobody
    2 lease    `init_transactions` on the driver's id: an older driver's next seal fails
    3 sign     this run's id into the query's row: the older run's tasks refuse from now on
    4 fence    `init_transactions` on every lane an older run may have left open, used by this run or not
    5 decide   read the ledger again, stable, and decide for good

The lease (`protocol/lease.py`) is taken anew for each batch. A run that is taken over can do so between 2 and 3: then
the new run starts again at 2, and the older one gives way at its next commit. So whoever started last goes on.

Where Spark gives the sink no process that lives as long as the run (its writer format), a run is one batch: one process
takes over and opens the batch, and another resumes and seals it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from spark_eos.errors import Fenced, LedgerRefusal, SparkEosError
from spark_eos.protocol.decide import BatchFacts, Decision, Verb, decide_batch
from spark_eos.protocol.lease import TRIES, Lease
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow
from spark_eos.protocol.names import Run, lane_transactional_id
from spark_eos.protocol.parallel import ForEach, at_once
from spark_eos.protocol.ports import OpenTransaction, QueryLedger
from spark_eos.protocol.positions import Offsets, TopicPartition, is_aligned, offsets_after
from spark_eos.protocol.refusals import adoption_blind, ledger_lost, taken_over
from spark_eos.protocol.reports import aligned_after, check_reports
from spark_eos.protocol.transaction import LaneReport

log = logging.getLogger("spark_eos.sink")

LANES_AT_FIRST = 63
"""Lanes that the ledger has room for at least, where a batch's number of lanes is not known: it can still grow."""

ROWS_AT_ONCE = 500
"""Lanes' rows in one commit: about 200 KiB, and a broker takes 1 MiB at once (message.max.bytes)."""

Sources = Callable[[], Iterable[TopicPartition]]


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
        single: the run is one batch only, so the next one signs before it starts.
        for_each: how lanes are fenced; all at once, by default.
    """

    def __init__(
        self,
        run: Run,
        ledger: QueryLedger,
        open_transaction: OpenTransaction,
        policy: Policy,
        now: Callable[[], str],
        *,
        single: bool = False,
        for_each: ForEach = at_once,
    ) -> None:
        self.run, self._ledger, self._policy, self._now = run, ledger, policy, now
        self._open_transaction, self._single, self._for_each = open_transaction, single, for_each
        self._lease = Lease(run, ledger, open_transaction)
        self._row: QueryRow | None = None
        self._floor: Offsets = {}
        self._ended: SparkEosError | None = None

    def open(
        self,
        batch: int,
        lanes: int | None,
        sources: Sources = tuple,
        content: str | None = None,
    ) -> BatchPlan:
        """Decide what becomes of a batch, before any of its tasks starts; the first time, take over.

        Args:
            batch: micro-batch id.
            lanes: partitions of its DataFrame; None if they can't be known yet.
            sources: asked for the source partitions that the query reads, where a checkpoint is or was adopted.
            content: digest of the sources' end offsets of the batch; None if they can't be known.

        Raises:
            LedgerRefusal: a REFUSE case of the batch table.
            Fenced: a newer run took over.
            ClusterError: Kafka can't be reached or is not as needed.
        """
        if self._ended is not None:
            # A caller that swallowed it must not take the query back from the run that took over.
            raise self._ended
        try:
            asked = _Asked(batch, lanes, content)
            decision = self._take_over(asked, sources) if self._row is None else self._decide(asked)
            return BatchPlan(skip=decision.verb is Verb.SKIP, floor=self._floor)
        except SparkEosError as error:
            # A take-over that failed half-way (an adoption without its floor) must not be gone on with.
            self.close()
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def resume(self, batch: int) -> None:
        """Go on with a batch that another process of this run has opened, unless somebody has taken over since.

        Raises:
            Fenced: a newer run took over.
            LedgerLost: the query's row was deleted in the meantime.
        """
        try:
            self._lease.renew()
            row = self._ledger.query()
            if row is None:
                raise ledger_lost(self.run, batch)
            self._lease.check(row)
            self._row = row
        except SparkEosError as error:
            self.close()
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def seal(
        self,
        batch: int,
        lanes: int,
        reports: Sequence[LaneReport],
        log_offsets: Offsets,
        content: str | None = None,
    ) -> None:
        """Note that every lane of a batch has committed.

        Args:
            batch, content: as opened.
            lanes: how many there were.
            reports: one of each lane.
            log_offsets: the batch's end offsets from the query's offset log, as far as they are known. All below them
                is processed now, also what the query filtered away, and idle partitions' offsets do not expire.

        Raises:
            Fenced: a newer run took over. Its lanes are not harmed: this run's are committed, and it skips them.
            Unconfirmed: no answer; the next run finds the batch sealed, or its lanes committed.
        """
        check_reports(batch, lanes, reports)
        try:
            row = self._signed()
            sealed = replace(
                row,
                next_batch=batch + 1,
                lanes=lanes,
                content=content,
                aligned=aligned_after(row.aligned, reports),
                at_rest=self._single,
            )
            self._commit(sealed, self._offsets_at_seal(row, reports, log_offsets))
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
        self._row = None
        self._lease.drop()

    def _offsets_at_seal(self, row: QueryRow, reports: Sequence[LaneReport], log_offsets: Offsets) -> Offsets:
        """What the lanes could not commit themselves: the batch's ends, and partitions that several lanes shared."""
        ranges = [report.ranges for report in reports]
        offsets = dict(log_offsets)
        if not is_aligned(ranges):
            for key, offset in offsets_after((r for each in ranges for r in each), {}).items():
                offsets[key] = max(offset, offsets.get(key, 0))
        if not row.adoptions:
            return offsets
        # An adopted checkpoint comes from behind, and committed offsets never move back.
        known = self._ledger.offsets(offsets)
        return {key: max(offset, known[key]) for key, offset in offsets.items()}

    # --- take-over ---------------------------------------------------------------------------------------------

    def _take_over(self, asked: _Asked, sources: Sources) -> Decision:
        self._ledger.ensure(asked.room)
        self._look(asked)
        query = self._sign(asked)
        if query is None or not query.at_rest:
            self._fence_lanes(query)
        view = self._ledger.view(stable=True, lanes=_lanes_that_matter(query))
        decision = self._decide_on(asked, view)
        if decision.verb is Verb.ADOPT:
            self._adopt(asked)
        else:
            self._renew_lanes(view)
        if self._signed().adoptions:
            self._floor = self._ledger.offsets(sources())
            if not self._floor:
                raise adoption_blind("the query reads no Kafka topic that this cluster has")
        return decision

    def _look(self, asked: _Asked) -> None:
        """Without waiting for what a dead run left open, unless it would refuse: an acknowledged seal shows once its
        marker is written, and the row of before can seem to contradict the checkpoint."""
        query = self._ledger.view(stable=False, lanes=0).query
        try:
            self._decide_on(asked, self._view_unstable(query))
        except LedgerRefusal:
            self._decide_on(asked, self._view_unstable(self._ledger.query()))

    def _view_unstable(self, query: QueryRow | None) -> LedgerView:
        return LedgerView(query, self._ledger.view(stable=False, lanes=_lanes_that_matter(query)).lanes)

    def _sign(self, asked: _Asked) -> QueryRow | None:
        """Take the lease and sign; the query's row is final only under the lease. Returns it as it was."""
        older = None
        for left in reversed(range(TRIES)):
            self._lease.acquire()
            row = self._ledger.query()
            before = row or QueryRow(asked.batch, self.run.checkpoint, self.run.run, self._now(), 0)
            older = older or before.run
            if before.run != older:
                raise taken_over(self.run, before)
            lanes = max(before.lanes, asked.lanes or 0)
            signed = replace(before, run=self.run.run, since=self._now(), lanes=lanes, at_rest=False)
            try:
                self._commit(signed, {}, over=before)
                break
            except Fenced:
                if not left:
                    raise
                log.info("query %s: run %s is at work and took its lease anew; trying again", self.run.query, older)
        return row

    def _fence_lanes(self, query: QueryRow | None) -> None:
        """What older runs may have left open; `query` is the row of before this run signed it."""
        lanes = LedgerView(query, self._ledger.view(stable=False).lanes).lanes_to_fence
        self._for_each(self._fence_lane, range(lanes))

    def _fence_lane(self, lane: int) -> None:
        with self._open_transaction(lane_transactional_id(self.run.query, lane)) as transaction:
            transaction.fence()

    def _renew_lanes(self, view: LedgerView) -> None:
        """The rows of lanes that are ahead of the query, as they are: of a batch that is started again and again and
        never sealed, brokers would forget them before the query's, which each start renews; and it is written twice."""
        row = self._signed()
        ahead = [lane for lane in view.lanes.values() if lane.next_batch > row.next_batch]
        for start in range(0, len(ahead), ROWS_AT_ONCE):
            self._commit(row, {}, ahead[start : start + ROWS_AT_ONCE])

    def _adopt(self, asked: _Asked) -> None:
        row = self._signed()
        adopted = replace(
            row,
            next_batch=asked.batch,
            checkpoint=self.run.checkpoint,
            content=None,
            adoptions=row.adoptions + 1,
        )
        self._commit(adopted, {})

    # --- every batch -------------------------------------------------------------------------------------------

    def _decide(self, asked: _Asked) -> Decision:
        row = self._signed()
        self._ledger.ensure(asked.room)
        decision = self._decide_on(asked, self._view_held(asked))
        if decision.verb is Verb.WRITE and (asked.lanes or 0) > row.lanes:
            # Before any task starts: a run that comes after must know how many lanes it has to fence.
            self._commit(replace(row, lanes=asked.lanes or 0), {})
        return decision

    def _view_held(self, asked: _Asked) -> LedgerView:
        """The ledger under a fresh lease, with what the brokers forget of a query without batches: its row."""
        self._lease.renew()
        # In this run no other lanes were started since the last seal; unless it does not know how many it starts.
        lanes = None if asked.lanes is None else self._signed().lanes
        view = self._ledger.view(stable=True, lanes=lanes)
        if view.query is not None:
            return view
        # It expired, or the group was deleted. Nobody has taken over: the row would name them.
        self._commit(self._signed(), {})
        return LedgerView(self._row, view.lanes)

    def _decide_on(self, asked: _Asked, view: LedgerView) -> Decision:
        # Of a run that has signed, the look is over: another run's name in the row means it was taken over.
        if self._row is not None:
            self._lease.check(view.query)
        policy = self._policy
        facts = BatchFacts(self.run, asked.batch, asked.lanes, view, policy.may_start, policy.may_adopt, asked.content)
        decision = decide_batch(facts)
        if decision.error:
            raise decision.error
        return decision

    def _commit(
        self, row: QueryRow, offsets: Offsets, lanes: Sequence[LaneRow] = (), *, over: QueryRow | None = None
    ) -> None:
        try:
            self._lease.commit(row, offsets, lanes, over=over)
        except BaseException:
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


@dataclass(frozen=True)
class _Asked:
    """A batch as it is to be opened."""

    batch: int
    lanes: int | None
    content: str | None

    @property
    def room(self) -> int:
        return LANES_AT_FIRST if self.lanes is None else self.lanes


def _lanes_that_matter(query: QueryRow | None) -> int | None:
    """How many lanes' rows can tell more than the query's: none if it was left at rest; None: all."""
    return 0 if query is not None and query.at_rest else None
