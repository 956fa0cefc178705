"""What the ledger's refusals say: what is wrong, and what to do."""

from __future__ import annotations

from spark_eos.errors import (
    BatchAbandoned,
    CheckpointBehind,
    Fenced,
    LedgerLost,
    OtherCheckpoint,
    ReplayDiffers,
    SplitChanged,
)
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.names import Run

_USE_THE_NEWEST = (
    "Use the newest checkpoint. If it is lost, start with this one or a new one, and on.other.checkpoint=adopt (rows "
    "must carry the column source): rows that were already processed are dropped by their source position."
)


def taken_over(run: Run, query: QueryRow) -> Fenced:
    """The error of a run that finds a newer one in the query's row."""
    return Fenced(
        f"run {query.run} took over this query at {query.since}; this run, {run.run}, must not write any more",
        do="Nothing, if the query was restarted elsewhere on purpose. Else stop one of the two: only one run of "
        "a query id can write. `spark-eos lanes` shows which run has it now.",
        query=run.query,
    )


def ledger_lost(run: Run, batch: int) -> LedgerLost:
    """The error for a batch that the ledger can't be asked about any more."""
    return LedgerLost(
        f"the ledger has no row of this query, and batch {batch} needs one: the group was deleted, its offsets "
        "expired (offsets.retention.minutes, by default 7 days without a run), or the query used another sink",
        do="If the last batch is certainly not in Kafka (or the query used another sink until now), start with "
        "the option on.missing.ledger=start once. Else compare the topics with the checkpoint first.",
        query=run.query,
        batch=batch,
    )


def checkpoint_behind(sealed: int, committed: int) -> CheckpointBehind:
    """The error of a checkpoint that comes to a batch which is done already."""
    return CheckpointBehind(
        f"the ledger already has batch {max(sealed, committed) - 1}: this checkpoint is an older copy",
        do=_USE_THE_NEWEST,
    )


def other_content(batch: int) -> CheckpointBehind:
    """The error of a checkpoint that cut a batch in another way than the ledger has it."""
    return CheckpointBehind(
        f"the ledger has batch {batch} with other source offsets than it has now: this checkpoint is an older copy, "
        "which cut the batch anew",
        do=_USE_THE_NEWEST,
    )


def abandoned(batch: int) -> BatchAbandoned:
    """The error of a query that passed over a batch."""
    return BatchAbandoned(
        f"batch {batch} was committed in part and never finished, and the query went on without it: an exception "
        "of the sink was swallowed, or the checkpoint was edited",
        do=f"Stop the query, remove the entries {batch} and above from offsets/ and commits/ of the checkpoint "
        "(Spark then runs that batch again; its committed lanes, which `spark-eos lanes` shows, are skipped), and let "
        "the sink's errors through.",
    )


def split_changed(before: set[int | None], now: int | None) -> SplitChanged:
    """The error of a half-committed batch that comes back with another number of lanes."""
    was = ", ".join(sorted(map(str, before)))
    return SplitChanged(
        f"some lanes of this batch are committed as parts of {was} lanes, and it comes back with {now}",
        do="Give the query the parallelism it had (spark.sql.shuffle.partitions, minPartitions, repartition) "
        "until this batch is through (`spark-eos lanes` shows which lanes have it); change it afterwards. "
        "Or set on.other.checkpoint=adopt (rows must carry the column source): rows that are committed are dropped by "
        "their source position.",
    )


def other_checkpoint(run: Run, owner: str) -> OtherCheckpoint:
    """The error of a run on another checkpoint than the query's owner."""
    return OtherCheckpoint(
        f"query id {run.query} belongs to checkpoint {owner}, and this run is on {run.checkpoint}",
        do="Give another query its own query.id. If the checkpoint was lost, set on.other.checkpoint=adopt (rows "
        "must carry the column source): what was already processed is dropped by its source position.",
    )


def half_committed(owner: str) -> OtherCheckpoint:
    """The error of a checkpoint that can't be adopted in the middle of another one's batch."""
    return OtherCheckpoint(
        f"a batch of checkpoint {owner} is half-committed and its lanes shared source partitions (or nobody knows), "
        "so the committed offsets can't tell which rows were written",
        do="Go on with the checkpoint that the batch belongs to, without on.other.checkpoint=adopt. If it is "
        "lost, take another query.id and remove this batch's rows downstream by hand.",
    )


def adoption_blind(why: str) -> OtherCheckpoint:
    """The error of an adopted checkpoint whose rows' positions can't be compared with the group's offsets."""
    return OtherCheckpoint(
        f"rows that were already processed can't be told: {why}",
        do="Give the query a new query.id, and start it where the old one ended.",
    )


def replay_differs(before: str, now: str) -> ReplayDiffers:
    """The error of a lane that does not give the same rows again.

    Args:
        before: what the lane was committed as: "has 3 rows".
        now: what its replay is.
    """
    return ReplayDiffers(
        f"this lane {before} when the batch was committed, and its replay {now}: the query does not give the same "
        "rows to the same lane again",
        do="Look for rand(), current time, a shuffle on something unstable, another number of partitions, an older "
        "copy of the checkpoint, or an upstream table that changed. Lanes that were committed are right; compare the "
        "others' rows before you go on.",
    )
