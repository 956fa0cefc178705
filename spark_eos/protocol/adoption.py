"""Whether the group's committed offsets tell what a query has processed: only then can its ledger be adopted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.ports import QueryLedger
from spark_eos.protocol.positions import TopicPartition
from spark_eos.protocol.refusals import adoption_blind, starts_too_late

log = logging.getLogger("spark_eos.sink")


def check_adoptable(query: QueryRow, ledger: QueryLedger, logged: BatchLog, *, keep: bool) -> None:
    """Hold that rows below the group's offsets, and no others, were processed, and that none are left out.

    Args:
        query: the query's row.
        ledger: the query's.
        logged: the first batch of the checkpoint that is to be adopted.
        keep: rows that are not there any more are left out.

    Raises:
        OtherCheckpoint: it can't be known, or is not so.
    """
    if logged.stateful:
        raise adoption_blind("the query keeps state (an aggregation, a join, dropDuplicates), which a checkpoint loses")
    if query.went_back:
        raise adoption_blind("its rows have carried positions from before their batch, as those of an aggregation do")
    if logged.shared:
        raise adoption_blind("several sources of the query read one source partition, each as far as it has come")
    if members := ledger.members():
        raise adoption_blind(
            f"its consumer group has {members} members, so another program commits offsets to it",
            "Stop the other program, and give it a group.id of its own.",
        )
    others = list(ledger.committed_by_others(logged.ends)) if query.signs_offsets else []
    if others:
        raise adoption_blind(f"another program, or another query, has committed the group's offset of {_shown(others)}")
    _check_no_gap(logged.starts, ledger.offsets(logged.starts, stable=False), keep)


def _check_no_gap(starts: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int], keep: bool) -> None:
    """A checkpoint that starts behind what is committed (startingOffsets=latest, the default) leaves rows out."""
    gaps = {key: at for key, at in starts.items() if 0 < committed[key] < at}
    if not gaps:
        return
    told = ", ".join(f"{topic}-{n}: from {committed[topic, n]} to {at}" for (topic, n), at in sorted(gaps.items())[:5])
    if not keep:
        raise starts_too_late(told)
    log.warning("source offsets are left out (on.replay.differs=keep): %s", told)


def _shown(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys)[:5])
