"""What the ledger means for a lane and for a batch: two tables, and nothing else.

Each table lists every case once; `tests/unit/test_decide.py` goes through all inputs and holds that exactly one
case matches each. The cases carry the numbers under which DESIGN.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from spark_eos.errors import SparkEosError
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.refusals import (
    abandoned,
    checkpoint_behind,
    half_committed,
    ledger_lost,
    other_checkpoint,
    other_content,
    replay_differs,
    split_changed,
    taken_over,
)


class Verb(Enum):
    """What to do with a lane or a batch."""

    WRITE = "write"
    SKIP = "skip"
    REFUSE = "refuse"
    ADOPT = "adopt"


@dataclass(frozen=True)
class Decision:
    """The case that matched, and for REFUSE the error to raise."""

    case: str
    verb: Verb
    error: SparkEosError | None = None


def differ(one: object, other: object) -> bool:
    """Whether both are known, and not the same."""
    return one is not None and other is not None and one != other


# --- lanes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaneFacts:
    """A lane's task, and the two ledger rows that it may read (the others can be mid-transaction)."""

    task: LaneTask
    query: QueryRow | None
    row: LaneRow | None

    @property
    def ours(self) -> bool:
        """This run is the last one that took over."""
        return self.query is not None and self.query.run == self.task.run.run

    @property
    def sealed(self) -> int:
        return self.query.next_batch if self.query else 0

    @property
    def committed(self) -> int:
        """The lane's next batch; 0 where it never committed one of this checkpoint, since it was last adopted."""
        if self.row is None or self.query is None:
            return 0
        known = self.row.checkpoint == self.task.run.checkpoint and self.row.adoptions == self.query.adoptions
        return self.row.next_batch if known else 0

    @property
    def ahead(self) -> bool:
        return max(self.sealed, self.committed) > self.task.batch + 1

    @property
    def this(self) -> bool:
        """The lane has committed just this batch."""
        return self.committed == self.task.batch + 1

    @property
    def same_cut(self) -> bool:
        """As far as is known, the lane was committed as a part of the same batch, cut the same way."""
        row, task = self.row, self.task
        return row is not None and not differ(row.lanes, task.lanes) and not differ(row.content, task.content)

    @property
    def is_sealed(self) -> bool:
        return self.sealed == self.task.batch + 1


LaneCase = tuple[str, Callable[[LaneFacts], bool], Verb]

LANE_TABLE: tuple[LaneCase, ...] = (
    ("L1 no query row", lambda f: f.query is None, Verb.REFUSE),
    ("L2 another run took over", lambda f: f.query is not None and not f.ours, Verb.REFUSE),
    ("L3 ledger ahead", lambda f: f.ours and f.ahead, Verb.REFUSE),
    (
        "L4 committed, other cut",
        lambda f: f.ours and not f.ahead and f.this and not f.same_cut,
        Verb.REFUSE,
    ),
    ("L5 committed", lambda f: f.ours and not f.ahead and f.this and f.same_cut, Verb.SKIP),
    ("L6 sealed without it", lambda f: f.ours and not f.ahead and not f.this and f.is_sealed, Verb.REFUSE),
    ("L7 to be written", lambda f: f.ours and not f.ahead and not f.this and not f.is_sealed, Verb.WRITE),
)


def decide_lane(task: LaneTask, query: QueryRow | None, row: LaneRow | None) -> Decision:
    """What a lane's attempt, once it has fenced all older ones, must do.

    Args:
        task: the attempt.
        query: the query's row, read after the fence.
        row: the lane's own row, read after the fence.
    """
    facts = LaneFacts(task, query, row)
    case, verb = _match(LANE_TABLE, facts)
    error = _lane_refusal(case, facts) if verb is Verb.REFUSE else None
    return Decision(case, verb, error.at(task.run.query, task.batch, task.lane) if error else None)


def _lane_refusal(case: str, facts: LaneFacts) -> SparkEosError:
    task, query = facts.task, facts.query
    if query is None:
        return ledger_lost(task.run, task.batch)
    if case.startswith("L2"):
        return taken_over(task.run, query)
    if case.startswith("L3"):
        return checkpoint_behind(facts.sealed, facts.committed)
    if case.startswith("L6") or facts.row is None:
        return replay_differs("had no rows", "has some")
    if differ(facts.row.content, task.content):
        return other_content(task.batch)
    return split_changed({facts.row.lanes}, task.lanes)


# --- batches -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchFacts:
    """A batch about to be opened on the driver, and the whole ledger of its query.

    `lanes` and `content` are None where they are not known, as in `LaneTask`.
    """

    run: Run
    batch: int
    lanes: int | None
    view: LedgerView
    may_start: bool
    may_adopt: bool
    content: str | None = None

    @property
    def empty(self) -> bool:
        return self.view.query is None and not self.view.lanes

    @property
    def lost(self) -> bool:
        """The query's row is gone, and there was something before: it expired, or the group was deleted."""
        return self.view.query is None and not (self.empty and self.batch == 0)

    @property
    def foreign(self) -> bool:
        return self.view.query is not None and self.view.query.checkpoint != self.run.checkpoint

    @property
    def ours(self) -> bool:
        return self.view.query is not None and not self.foreign

    @property
    def sealed(self) -> int:
        return self.view.query.next_batch if self.view.query else 0

    @property
    def half(self) -> list[LaneRow]:
        """Rows of lanes that committed a batch which the query's own checkpoint never sealed."""
        query = self.view.query
        owner = (query.checkpoint, query.adoptions) if query else (self.run.checkpoint, 0)
        rows = self.view.lanes.values()
        return [row for row in rows if (row.checkpoint, row.adoptions) == owner and row.next_batch > self.sealed]

    @property
    def positions_known(self) -> bool:
        """Whether the group's committed source offsets tell exactly which rows were processed."""
        return not self.half or (self.view.query is not None and self.view.query.aligned is True)

    @property
    def committed(self) -> int:
        return max([row.next_batch for row in self.half], default=0)

    @property
    def ahead(self) -> bool:
        return max(self.sealed, self.committed) > self.batch + 1

    @property
    def other_content(self) -> bool:
        """This batch is sealed, or committed in part, as one of other source offsets."""
        query = self.view.query
        of_query = query is not None and self.sealed == self.batch + 1 and differ(query.content, self.content)
        return of_query or any(differ(row.content, self.content) for row in self._half_of_this)

    @property
    def behind(self) -> bool:
        """The checkpoint is an older copy: what comes now is in the ledger, and more, or cut otherwise."""
        return self.ours and (self.ahead or self.other_content)

    @property
    def recut(self) -> bool:
        """Some lanes of this batch are committed as parts of another number of lanes."""
        return self.open and self.abandoned is None and bool(self.other_splits)

    @property
    def stranger(self) -> bool:
        """What comes is not what the ledger knows, and only source positions can tell what was processed."""
        return self.foreign or self.behind or self.recut

    @property
    def is_sealed(self) -> bool:
        return self.ours and not self.behind and self.sealed == self.batch + 1

    @property
    def sealed_as_known(self) -> bool:
        """Sealed, and it is known that it was just this batch: no lane need be asked."""
        query = self.view.query
        return self.is_sealed and query is not None and query.content is not None and self.content is not None

    @property
    def _half_of_this(self) -> list[LaneRow]:
        return [row for row in self.half if row.next_batch == self.batch + 1]

    @property
    def other_splits(self) -> set[int | None]:
        return {row.lanes for row in self._half_of_this if differ(row.lanes, self.lanes)}

    @property
    def abandoned(self) -> int | None:
        """An earlier batch of which some lanes are committed, and that was never sealed."""
        left = [row.next_batch - 1 for row in self.half if row.next_batch <= self.batch]
        return min(left, default=None)

    @property
    def open(self) -> bool:
        return self.ours and not self.behind and not self.is_sealed

    @property
    def whole(self) -> bool:
        """Open, and nothing speaks against the way it was split or came here."""
        return self.open and self.abandoned is None and not self.recut

    @property
    def unsure(self) -> bool:
        """An adopted checkpoint comes back to a half-committed batch, whose lanes share source partitions."""
        return self.view.query is not None and self.view.query.adoptions > 0 and not self.positions_known


BatchCase = tuple[str, Callable[[BatchFacts], bool], Verb]

BATCH_TABLE: tuple[BatchCase, ...] = (
    ("B1 new query", lambda f: f.empty and f.batch == 0, Verb.WRITE),
    ("B2 ledger lost", lambda f: f.lost and not f.may_start, Verb.REFUSE),
    ("B3 ledger started late", lambda f: f.lost and f.may_start, Verb.WRITE),
    ("B4 another checkpoint", lambda f: f.foreign and not f.may_adopt, Verb.REFUSE),
    (
        "B5 another, half-committed",
        lambda f: f.stranger and f.may_adopt and not f.positions_known,
        Verb.REFUSE,
    ),
    ("B6 another, adopted", lambda f: f.stranger and f.may_adopt and f.positions_known, Verb.ADOPT),
    ("B7 ledger ahead", lambda f: f.behind and not f.may_adopt, Verb.REFUSE),
    ("B8 sealed", lambda f: f.sealed_as_known, Verb.SKIP),
    ("B13 sealed, perhaps as other rows", lambda f: f.is_sealed and not f.sealed_as_known, Verb.WRITE),
    ("B9 batch abandoned", lambda f: f.open and f.abandoned is not None, Verb.REFUSE),
    (
        "B10 split differently",
        lambda f: f.recut and not f.may_adopt,
        Verb.REFUSE,
    ),
    ("B11 adopted, half-committed", lambda f: f.whole and f.unsure, Verb.REFUSE),
    ("B12 to be written", lambda f: f.whole and not f.unsure, Verb.WRITE),
)


def decide_batch(facts: BatchFacts) -> Decision:
    """What the driver must do with a batch, before any task starts."""
    case, verb = _match(BATCH_TABLE, facts)
    error = _batch_refusal(case, facts) if verb is Verb.REFUSE else None
    return Decision(case, verb, error.at(facts.run.query, facts.batch) if error else None)


def _batch_refusal(case: str, facts: BatchFacts) -> SparkEosError:
    owner = facts.view.query.checkpoint if facts.view.query else "?"
    if case.startswith("B2"):
        return ledger_lost(facts.run, facts.batch)
    if case.startswith("B7"):
        return checkpoint_behind(facts.sealed, facts.committed) if facts.ahead else other_content(facts.batch)
    if facts.open and facts.abandoned is not None:
        return abandoned(facts.abandoned)
    if case.startswith("B10"):
        return split_changed(facts.other_splits, facts.lanes)
    if case.startswith("B4"):
        return other_checkpoint(facts.run, owner)
    return half_committed(owner)


def _match(table: tuple[tuple[str, Callable[..., bool], Verb], ...], facts: object) -> tuple[str, Verb]:
    found = [(case, verb) for case, applies, verb in table if applies(facts)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} cases of the decision table match {facts}: {found}")
    return found[0]
