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
    other_query,
    passed_over,
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


def contents_differ(one: str | None, other: str | None) -> bool:
    """The same for contents. Digests of different kinds (`kind:digest`) can't be compared: neither is known then."""
    kinds = [each.rpartition(":")[0] for each in (one, other) if each is not None]
    return len(set(kinds)) == 1 and differ(one, other)


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
        return row is not None and not differ(row.lanes, task.lanes) and not contents_differ(row.content, task.content)

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
    if contents_differ(facts.row.content, task.content):
        return other_content(task.batch)
    return split_changed({facts.row.lanes}, task.lanes)


# --- batches ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """What the user allows where the ledger and the batch disagree.

    Args:
        may_start: a ledger that knows nothing of a query past its first batch is begun (`on.missing.ledger=start`).
        may_adopt: another checkpoint, or an older copy, goes on (`on.other.checkpoint=adopt`).
        may_pass: batches may be left out (`on.skipped.batch=pass`).
        may_keep: what a lane has committed stands, whatever rows it has now (`on.replay.differs=keep`).
    """

    may_start: bool = False
    may_adopt: bool = False
    may_pass: bool = False
    may_keep: bool = False


@dataclass(frozen=True)
class BatchFacts:
    """A batch about to be opened on the driver, and the whole ledger of its query.

    `lanes`, `content` and `previous` are None where they are not known, as in `LaneTask` and `BatchLog`. `again`: this
    very run had the batch open before.
    """

    run: Run
    batch: int
    lanes: int | None
    view: LedgerView
    policy: Policy = Policy()
    content: str | None = None
    again: bool = False
    previous: str | None = None

    @property
    def empty(self) -> bool:
        return self.view.query is None and not self.view.lanes

    @property
    def lost(self) -> bool:
        """The query's row is gone, and there was something before: it expired, or the group was deleted."""
        return self.view.query is None and not (self.empty and self.batch == 0)

    @property
    def not_this_query(self) -> bool:
        """The group has the ledger of another query: its batches and offsets mean nothing here."""
        return self.view.query is not None and differ(self.view.query.query, self.run.query)

    @property
    def foreign(self) -> bool:
        query = self.view.query
        return query is not None and not self.not_this_query and query.checkpoint != self.run.checkpoint

    @property
    def ours(self) -> bool:
        return self.view.query is not None and not self.not_this_query and not self.foreign

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
        at_seal = query is not None and self.sealed == self.batch + 1
        of_query = at_seal and query is not None and contents_differ(query.content, self.content)
        return of_query or any(contents_differ(row.content, self.content) for row in self._half_of_this)

    @property
    def behind(self) -> bool:
        """The checkpoint is an older copy: what comes now is in the ledger, and more, or cut otherwise."""
        return self.ours and (self.ahead or self.other_content or self.branched)

    @property
    def branched(self) -> bool:
        """The batch before was sealed as one of other source offsets: by a copy of this checkpoint."""
        query = self.view.query
        return query is not None and self.sealed == self.batch and contents_differ(query.content, self.previous)

    @property
    def recut(self) -> bool:
        """Some lanes of this batch are committed as parts of another number of lanes."""
        return self.open and self.abandoned is None and not self.left_out and bool(self.other_splits)

    @property
    def stranger(self) -> bool:
        """What comes is not what the ledger knows, and only source positions can tell what was processed."""
        return self.foreign or self.behind or self.recut

    @property
    def is_sealed(self) -> bool:
        return self.ours and not self.behind and self.sealed == self.batch + 1

    @property
    def sealed_as_known(self) -> bool:
        """Sealed, and it is known that it was just this batch: no lane need be asked.

        A run never has a batch twice from Spark. If it comes twice, the caller writes twice in one batch.
        """
        query = self.view.query
        return self.is_sealed and not self.again and query is not None and query.content == self.content is not None

    @property
    def committed_lanes(self) -> dict[int, LaneRow]:
        """Rows of lanes that have committed just this batch, sealed or not: what they wrote must come again."""
        query = self.view.query
        if query is None or not self.ours:
            return {}
        owner = (query.checkpoint, query.adoptions, self.batch + 1)
        rows = self.view.lanes.items()
        return {lane: row for lane, row in rows if (row.checkpoint, row.adoptions, row.next_batch) == owner}

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
    def left_out(self) -> bool:
        """A batch before this one was never sealed."""
        return self.open and self.abandoned is None and self.sealed < self.batch and not self.policy.may_pass

    @property
    def open(self) -> bool:
        return self.ours and not self.behind and not self.is_sealed

    @property
    def whole(self) -> bool:
        """Open, and nothing speaks against the way it was split or came here."""
        return self.open and self.abandoned is None and not self.left_out and not self.recut

    @property
    def unsure(self) -> bool:
        """An adopted checkpoint comes back to a half-committed batch, whose lanes share source partitions."""
        return self.view.query is not None and self.view.query.has_floor and not self.positions_known


BatchCase = tuple[str, Callable[[BatchFacts], bool], Verb]

BATCH_TABLE: tuple[BatchCase, ...] = (
    ("B1 new query", lambda f: f.empty and f.batch == 0, Verb.WRITE),
    ("B2 ledger lost", lambda f: f.lost and not f.policy.may_start, Verb.REFUSE),
    ("B3 ledger started late", lambda f: f.lost and f.policy.may_start, Verb.WRITE),
    ("B4 another checkpoint", lambda f: f.foreign and not f.policy.may_adopt, Verb.REFUSE),
    (
        "B5 another, half-committed",
        lambda f: f.stranger and f.policy.may_adopt and not f.positions_known,
        Verb.REFUSE,
    ),
    ("B6 another, adopted", lambda f: f.stranger and f.policy.may_adopt and f.positions_known, Verb.ADOPT),
    ("B7 ledger ahead", lambda f: f.behind and not f.policy.may_adopt, Verb.REFUSE),
    ("B8 sealed", lambda f: f.sealed_as_known, Verb.SKIP),
    ("B13 sealed, perhaps as other rows", lambda f: f.is_sealed and not f.sealed_as_known, Verb.WRITE),
    ("B9 batch abandoned", lambda f: f.open and f.abandoned is not None, Verb.REFUSE),
    ("B14 batch passed over", lambda f: f.left_out, Verb.REFUSE),
    ("B15 another query's", lambda f: f.not_this_query, Verb.REFUSE),
    (
        "B10 split differently",
        lambda f: f.recut and not f.policy.may_adopt,
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
    return BATCH_REFUSALS[case.split(maxsplit=1)[0]](facts)


def _owner(facts: BatchFacts) -> str:
    return facts.view.query.checkpoint if facts.view.query else "?"


def _behind(facts: BatchFacts) -> SparkEosError:
    if facts.ahead:
        return checkpoint_behind(facts.sealed, facts.committed)
    return other_content(facts.batch if facts.other_content else facts.batch - 1)


BATCH_REFUSALS: dict[str, Callable[[BatchFacts], SparkEosError]] = {
    "B2": lambda f: ledger_lost(f.run, f.batch),
    "B4": lambda f: other_checkpoint(f.run, _owner(f)),
    "B5": lambda f: half_committed(_owner(f)),
    "B7": _behind,
    "B9": lambda f: abandoned(f.abandoned or 0),
    "B10": lambda f: split_changed(f.other_splits, f.lanes),
    "B11": lambda f: half_committed(_owner(f)),
    "B14": lambda f: passed_over(f.sealed, f.batch),
    "B15": lambda f: other_query(f.run, (f.view.query and f.view.query.query) or "?"),
}


def _match(table: tuple[tuple[str, Callable[..., bool], Verb], ...], facts: object) -> tuple[str, Verb]:
    found = [(case, verb) for case, applies, verb in table if applies(facts)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} cases of the decision table match {facts}: {found}")
    return found[0]
