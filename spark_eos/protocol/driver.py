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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from spark_eos.errors import Fenced, LedgerRefusal, SparkEosError
from spark_eos.protocol.adoption import check_adoptable
from spark_eos.protocol.batch import BatchLog, BatchPlan
from spark_eos.protocol.decide import BatchFacts, Decision, Policy, Verb, decide_batch
from spark_eos.protocol.lease import TRIES, Lease
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow
from spark_eos.protocol.names import Run, lane_transactional_id
from spark_eos.protocol.parallel import ForEach, at_once
from spark_eos.protocol.ports import OpenTransaction, QueryLedger
from spark_eos.protocol.positions import (
    Fingerprint,
    Offsets,
    TopicPartition,
    is_aligned,
    offsets_after,
    offsets_at_least,
)
from spark_eos.protocol.refusals import adoption_blind, ledger_lost, taken_over
from spark_eos.protocol.replay import check_replay
from spark_eos.protocol.reports import aligned_after, check_present, check_reports, went_back
from spark_eos.protocol.transaction import LaneReport

log = logging.getLogger("spark_eos.sink")

LANES_AT_FIRST = 63
"""Lanes that the ledger has room for at least, where a batch's number of lanes is not known: it can still grow. So
many are fenced after a run that did not know how many it had started."""

ROWS_AT_ONCE = 500
"""Lanes' rows in one commit: about 200 KiB, and a broker takes 1 MiB at once (message.max.bytes)."""


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
        self._with_floor: set[TopicPartition] = set()
        self._known: Offsets = {}
        self._again = self._blind = False
        self._ended: SparkEosError | None = None

    def open(self, batch: int, lanes: int | None, logged: BatchLog | None = None) -> BatchPlan:
        """Decide what becomes of a batch, before any of its tasks starts; the first time, take over.

        Args:
            batch: micro-batch id.
            lanes: partitions of its DataFrame; None if they can't be known yet.
            logged: what the checkpoint tells of it.

        Raises:
            LedgerRefusal: a REFUSE case of the batch table.
            Fenced: a newer run took over.
            ClusterError: Kafka can't be reached or is not as needed.
        """
        if self._ended is not None:
            # A caller that swallowed it must not take the query back from the run that took over.
            raise self._ended
        try:
            self._blind = lanes is None
            asked = _Asked(batch, lanes, logged or BatchLog())
            facts, decision = self._take_over(asked) if self._row is None else self._decide(asked)
            return self._plan(asked, facts, decision)
        except SparkEosError as error:
            # A take-over that failed half-way (an adoption without its floor) must not be gone on with.
            self.close()
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def compare(self, batch: int, plan: BatchPlan, found: Mapping[int, Fingerprint]) -> None:
        """Hold that what is committed of a batch came again, before anything else of it is written.

        Args:
            batch: which.
            plan: of the batch.
            found: what its lanes have now: those of `plan.committed` at least; all of them where it is sealed.

        Raises:
            ReplayDiffers, SecondWrite: it did not.
        """
        try:
            check_replay(plan.committed, found, sealed=plan.sealed, keep=plan.keep, again=plan.again)
        except SparkEosError as error:
            raise error.at(self.run.query, batch) from None

    def resume(self, batch: int, *, lanes: bool = False) -> Mapping[int, LaneRow]:
        """Go on with a batch that another process of this run has opened, unless somebody has taken over since.

        Args:
            batch: which.
            lanes: whether to look which lanes have committed it.

        Returns:
            Lane to row, of these.

        Raises:
            Fenced: a newer run took over.
            LedgerLost: the query's row was deleted in the meantime.
        """
        try:
            self._lease.renew()
            view = self._ledger.view(stable=True, lanes=None if lanes else 0)
            if view.query is None:
                raise ledger_lost(self.run, batch)
            self._lease.check(view.query)
            self._row = view.query
            return BatchFacts(self.run, batch, None, view).committed_lanes
        except SparkEosError as error:
            self.close()
            raise self._explained(error).at(self.run.query, batch) from error.__cause__

    def seal(
        self,
        batch: int,
        lanes: int,
        reports: Sequence[LaneReport],
        logged: BatchLog | None = None,
        plan: BatchPlan | None = None,
    ) -> None:
        """Note that every lane of a batch has committed.

        Args:
            batch: as opened.
            lanes: how many there were.
            reports: one of each lane.
            logged: as opened. All below the batch's ends is processed now, also what the query filtered away, and idle
                partitions' offsets do not expire.
            plan: of the batch.

        Raises:
            Fenced: a newer run took over. Its lanes are not harmed: this run's are committed, and it skips them.
            ReplayDiffers: a lane that had committed the batch came without rows.
            Unconfirmed: no answer; the next run finds the batch sealed, or its lanes committed.
        """
        logged, plan = logged or BatchLog(), plan or BatchPlan()
        check_reports(batch, lanes, reports)
        try:
            check_present(plan.committed, reports, keep=plan.keep)
            row = self._signed()
            offsets = self._offsets_at_seal(row, reports, logged)
            floor = self._floor_ahead(row, offsets, logged.ends)
            sealed = replace(
                row,
                next_batch=batch + 1,
                lanes=max(lanes, row.lanes) if self._blind and not self._single else lanes,
                content=logged.content,
                aligned=aligned_after(row.aligned, reports) and not logged.shared,
                at_rest=self._single,
                floor=bool(floor) or (row.has_floor and not logged.ends),
                went_back=row.went_back or went_back(reports, logged.starts),
                signs_offsets=True,
            )
            self._commit(sealed, offsets)
            self._floor = floor
            self._known |= offsets
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

    def _offsets_at_seal(self, row: QueryRow, reports: Sequence[LaneReport], logged: BatchLog) -> Offsets:
        """What the lanes could not commit themselves: the batch's ends, and partitions that several lanes shared."""
        ranges = [report.ranges for report in reports]
        offsets = dict(logged.ends)
        if row.aligned is False or logged.shared or not is_aligned(ranges):
            for key, offset in offsets_after((r for each in ranges for r in each), self._known).items():
                if key not in logged.ends:
                    offsets[key] = offset
        if not row.has_floor:
            return offsets
        # An adopted checkpoint comes from behind, and committed offsets never move back.
        return offsets_at_least(offsets, self._ledger.offsets(offsets))

    @staticmethod
    def _floor_ahead(row: QueryRow, offsets: Offsets, ends: Offsets) -> Offsets:
        """The floor of source partitions that this batch has not come to: of the others it ends here, or rows that
        carry an older position would be dropped for good."""
        return {key: offsets[key] for key, end in ends.items() if end < offsets[key]} if row.has_floor else {}

    def _plan(self, asked: _Asked, facts: BatchFacts, decision: Decision) -> BatchPlan:
        row = self._signed()
        if row.has_floor and (new := asked.logged.ends.keys() - self._with_floor):
            self._with_floor |= new
            self._floor |= self._ledger.offsets(new)
        # A batch that was cut anew may start earlier than the last one ended: see `BatchLog.starts`.
        starts = {key: at for key, at in asked.logged.starts.items() if at <= asked.logged.ends.get(key, at)}
        known = offsets_at_least(self._known, starts, self._floor)
        return BatchPlan(
            skip=decision.verb is Verb.SKIP,
            sealed=decision.verb is Verb.WRITE and facts.is_sealed,
            committed=facts.committed_lanes if decision.verb is Verb.WRITE else {},
            floor=self._floor,
            known=None if row.aligned is False or asked.logged.shared else known,
            keep=self._policy.may_keep,
            again=facts.again,
        )

    # --- take-over ---------------------------------------------------------------------------------------------

    def _take_over(self, asked: _Asked) -> tuple[BatchFacts, Decision]:
        self._ledger.ensure(asked.room)
        self._look(asked)
        query = self._sign(asked)
        if query is None or not query.at_rest:
            self._fence_lanes(query)
        view = self._ledger.view(stable=True, lanes=self._lanes_that_matter(asked, query))
        facts, decision = self._decide_on(asked, view)
        if decision.verb is Verb.ADOPT:
            self._adopt(asked)
        else:
            self._renew_lanes(view)
        if self._signed().has_floor and not asked.logged.ends:
            raise adoption_blind("the query reads no Kafka topic that this cluster has")
        return facts, decision

    def _look(self, asked: _Asked) -> None:
        """Without waiting for what a dead run left open, unless it would refuse: an acknowledged seal shows once its
        marker is written, and the row of before can seem to contradict the checkpoint."""
        query = self._ledger.view(stable=False, lanes=0).query
        self._again = query is not None and query.run == self.run.run
        try:
            decision = self._decide_on(asked, self._view_unstable(asked, query))[1]
        except LedgerRefusal:
            query = self._ledger.query()
            decision = self._decide_on(asked, self._view_unstable(asked, query))[1]
        if query is not None and decision.verb is Verb.ADOPT:
            check_adoptable(query, self._ledger, asked.logged, keep=self._policy.may_keep)
        else:
            self._tell_of_members()

    def _view_unstable(self, asked: _Asked, query: QueryRow | None) -> LedgerView:
        lanes = self._lanes_that_matter(asked, query)
        return LedgerView(query, self._ledger.view(stable=False, lanes=lanes).lanes)

    def _tell_of_members(self) -> None:
        with suppress(SparkEosError):
            if members := self._ledger.members():
                log.warning(
                    "query %s: its consumer group has %d members. Another program consumes in it, and overwrites the "
                    "source offsets that the sink commits: give the two a group.id each",
                    self.run.query,
                    members,
                )

    @staticmethod
    def _lanes_that_matter(asked: _Asked, query: QueryRow | None) -> int | None:
        """How many lanes' rows can tell more than the query's; None: all.

        None if it was left at rest; unless this batch is sealed, and they tell what it was.
        """
        at_rest = query is not None and query.at_rest and query.next_batch != asked.batch + 1
        return 0 if at_rest else None

    def _sign(self, asked: _Asked) -> QueryRow | None:
        """Take the lease and sign; the query's row is final only under the lease. Returns it as it was."""
        older = None
        for left in reversed(range(TRIES)):
            self._lease.acquire()
            row = self._ledger.query()
            before = row or QueryRow(asked.batch, self.run.checkpoint, self.run.run, self._now(), 0, floor=False)
            older = older or before.run
            if before.run != older:
                raise taken_over(self.run, before)
            signed = replace(
                before,
                run=self.run.run,
                query=self.run.query,
                since=self._now(),
                lanes=max(before.lanes, asked.room),
                at_rest=False,
            )
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
        # More lanes than any batch before had, of a run that did not know how many it started.
        self._for_each(self._fence_lane, self._ledger.hanging())

    def _fence_lane(self, lane: int) -> None:
        with self._open_transaction(lane_transactional_id(self.run.query, lane)) as transaction:
            transaction.fence()

    def _renew_lanes(self, view: LedgerView) -> None:
        """The rows of lanes that are at the query's batch or ahead, as they are: of a batch that is started again and
        again, brokers would forget them before the query's, which each start renews; and it is written twice."""
        row = self._signed()
        ahead = [lane for lane in view.lanes.values() if lane.next_batch >= max(row.next_batch, 1)]
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
            floor=True,
        )
        self._commit(adopted, {})

    # --- every batch -------------------------------------------------------------------------------------------

    def _decide(self, asked: _Asked) -> tuple[BatchFacts, Decision]:
        row = self._signed()
        self._again = True
        self._ledger.ensure(asked.room)
        facts, decision = self._decide_on(asked, self._view_held(asked))
        if decision.verb is Verb.WRITE and asked.room > row.lanes:
            # Before any task starts: a run that comes after must know how many lanes it has to fence.
            self._commit(replace(row, lanes=asked.room), {})
        return facts, decision

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

    def _decide_on(self, asked: _Asked, view: LedgerView) -> tuple[BatchFacts, Decision]:
        # Of a run that has signed, the look is over: another run's name in the row means it was taken over.
        if self._row is not None:
            self._lease.check(view.query)
        logged = asked.logged
        facts = BatchFacts(
            self.run, asked.batch, asked.lanes, view, self._policy, logged.content, self._again, logged.previous
        )
        decision = decide_batch(facts)
        if decision.error:
            raise decision.error
        return facts, decision

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
    logged: BatchLog

    @property
    def room(self) -> int:
        return LANES_AT_FIRST if self.lanes is None else self.lanes
