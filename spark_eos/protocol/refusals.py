"""What the ledger's refusals say: what is wrong, and what to do."""

from __future__ import annotations

from spark_eos.errors import (
    BatchAbandoned,
    CheckpointBehind,
    Fenced,
    LedgerLost,
    OtherCheckpoint,
    OtherQuery,
    ReplayDiffers,
    SecondWrite,
    SplitChanged,
)
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.names import Run, in_group

_USE_THE_NEWEST = (
    "Use the newest checkpoint. If it is lost, start with this one or a new one, and on.other.checkpoint=adopt (rows "
    "must carry the column source): rows that were already processed are dropped by their source position."
)


_AS_BEFORE = (
    "Start the query as it was until this batch is through (`spark-eos lanes` shows which lanes have it), and change "
    "it afterwards: the same number of cores (or spark.default.parallelism set to what it was), and the same "
    "spark.sql.shuffle.partitions, spark.sql.adaptive.* and spark.sql.files.*, minPartitions and repartition()."
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


def _run_again(batch: int) -> str:
    """How to have Spark run a batch again that it takes for done, with the same source offsets."""
    return (
        f"Stop the query. Remove the entries {batch} and above from commits/ of the checkpoint, and the entries above "
        f"{batch} from offsets/, with their .crc files: Spark then runs batch {batch} again, as it was cut. Let the "
        "sink's errors through."
    )


def abandoned(batch: int) -> BatchAbandoned:
    """The error of a query that passed over a batch of which something is committed."""
    return BatchAbandoned(
        f"batch {batch} was committed in part and never finished, and the query went on without it: an exception "
        "of the sink was swallowed, or the checkpoint was edited",
        do=f"{_run_again(batch)} Its committed lanes, which `spark-eos lanes` shows, are skipped.",
    )


def passed_over(batch: int, now: int) -> BatchAbandoned:
    """The error of a query that passed over a batch of which nothing is committed."""
    return BatchAbandoned(
        f"batch {batch} was never written, and batch {now} comes: an exception of the sink was swallowed, or the "
        "function that calls it left the batch out",
        do=f"If batch {batch} has rows to write: {_run_again(batch)} If the function leaves out batches on purpose, "
        "such as empty ones, set the option on.skipped.batch=pass; or call the sink for every batch.",
    )


def split_changed(before: set[int | None], now: int | None) -> SplitChanged:
    """The error of a half-committed batch that comes back with another number of lanes."""
    was = ", ".join(sorted(map(str, before)))
    return SplitChanged(
        f"some lanes of this batch are committed as parts of {was} lanes, and it comes back with {now}",
        do=f"{_AS_BEFORE} Or set on.other.checkpoint=adopt (rows must carry the column source): rows that are "
        "committed are dropped by their source position.",
    )


def at_work(query: str) -> SecondWrite:
    """The error of a write that comes while another one by the same name is at work, in another thread."""
    return SecondWrite(
        "the sink is called while a call by the same query.id is at work, in another thread of this run",
        do="Give each sink a query.id of its own, and call each once in a batch.",
        query=query,
    )


def other_query(run: Run, owner: str) -> OtherQuery:
    """The error of a query whose group has another one's ledger, or whose ledger is in another group.

    Args:
        run: of the query.
        owner: whose ledger it is, as of `in_group` where that is elsewhere.
    """
    if owner == run.query or owner.startswith(in_group(run.query, "")):
        where = owner.removeprefix(in_group(run.query, "")) if owner != run.query else run.query
        return OtherQuery(
            f"the ledger of {run.query} is in consumer group {where}, and group.id names another one now",
            do=f"Set group.id to {where} again (the query.id is the default). To move a stream on purpose, see that no "
            "batch is half-written, and set on.missing.ledger=start for one start.",
            query=run.query,
        )
    return OtherQuery(
        f"the consumer group has the ledger of {owner}, and this is {run.query}: one group is one query's",
        do="Give each query (each write) a group.id of its own, or leave the option out.",
        query=run.query,
    )


def second_write(lane: int, before: str, now: str) -> SecondWrite:
    """The error of a second write in one batch, with other rows."""
    return SecondWrite(
        f"this run has already written this batch: its lane {lane} {before} then, and {now} now. The sink was called "
        "twice in one batch, or two sinks have the same query.id",
        do="Give each sink a query.id of its own. The one that has written keeps its name, or its having none: under "
        "another one it would write this batch again. The others get new ones, and if the query is past its first "
        "batch, on.missing.ledger=start for one start. Or write all rows by one call: a row's column topic says where "
        "it goes.",
    )


def other_checkpoint(run: Run, owner: str) -> OtherCheckpoint:
    """The error of a run on another checkpoint than the query's owner."""
    if run.checkpoint.startswith("write"):
        return OtherCheckpoint(
            f"the consumer group of write {run.query} has the ledger of another write, of a stream, or of a write by "
            "an older version of spark-eos, which does not tell its name",
            do="Give each write a group.id of its own, or leave the option out. If an older version has begun this "
            "very write, finish it with that version.",
        )
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


def adoption_blind(why: str, do: str = "") -> OtherCheckpoint:
    """The error of a checkpoint that can't be adopted, since the group's offsets don't tell what was processed.

    Args:
        why: they don't.
        do: what would help, if anything does.
    """
    return OtherCheckpoint(
        f"the group's offsets can't tell which rows were processed: {why}",
        do=f"{do} Go on with the newest checkpoint. If it is lost, find out from the topics how far the query came, "
        "and give it a new query.id and a checkpoint that starts there.".lstrip(),
    )


def starts_too_late(gaps: str) -> OtherCheckpoint:
    """The error of a checkpoint that is to be adopted, and does not begin where the last one ended.

    Args:
        gaps: source offsets that it leaves out.
    """
    return OtherCheckpoint(
        f"this checkpoint starts behind what the query has processed, and leaves out the source offsets {gaps}",
        do="Take a new checkpoint, and start it with startingOffsets=group (and kafka.group.id, the sink's group), or "
        "earliest. If these records are gone from Kafka, set on.replay.differs=keep for this start: they are lost.",
    )


def replay_differs(before: str, now: str) -> ReplayDiffers:
    """The error of a lane that does not give the same rows again.

    Args:
        before: what the lane was committed as: "had 3 rows".
        now: what its replay is.
    """
    return ReplayDiffers(
        f"this lane {before} when the batch was committed, and {now} now: the query does not give the same rows to the "
        "same lane again. Nothing was written",
        do=f"{_AS_BEFORE} That goes for the query's code, too. Look for rand(), uuid(), current time, a shuffle on "
        "something unstable, an older copy of the checkpoint, another table to join with, and source records that "
        "are gone. If the rows of before can't come back: on.replay.differs=keep leaves what is committed, and writes "
        'the lanes that are not, with the rows that they have now (docs/SINK.md, "Failures and recovery").',
    )
