"""Whether the group's committed offsets tell what a query has processed: only then can its ledger be adopted."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.ports import QueryLedger
from spark_eos.protocol.positions import TopicPartition
from spark_eos.protocol.refusals import adoption_blind


def check_adoptable(query: QueryRow, ledger: QueryLedger, sources: Iterable[TopicPartition], *, stateful: bool) -> None:
    """Hold that rows below the group's offsets, and no others, were processed.

    Args:
        query: the query's row.
        ledger: the query's.
        sources: source partitions that the query reads.
        stateful: the query keeps state in its checkpoint.

    Raises:
        OtherCheckpoint: it can't be known.
    """
    if stateful:
        raise adoption_blind("the query keeps state (an aggregation, a join, dropDuplicates), which a checkpoint loses")
    if query.went_back:
        raise adoption_blind("its rows have carried positions from before their batch, as those of an aggregation do")
    if members := ledger.members():
        raise adoption_blind(
            f"its consumer group has {members} members, so another program commits offsets to it",
            "Stop the other program, and give it a group.id of its own.",
        )
    others = list(ledger.committed_by_others(sources)) if query.signs_offsets else []
    if others:
        told = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(others)[:5])
        raise adoption_blind(f"another program has committed the group's offset of {told}")
