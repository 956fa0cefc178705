"""Who writes: the names that tie a transaction to a query, a batch and a lane."""

from __future__ import annotations

from dataclasses import dataclass

QUERY_PARTITION = 0
"""Ledger partition of the query's row. Lane i's row is in partition 1 + i."""


def lane_transactional_id(query: str, lane: int) -> str:
    """`<query id>-<lane>`: the same for every attempt of the lane in every run, so that each fences the last."""
    return f"{query}-{lane}"


def driver_transactional_id(query: str) -> str:
    """`<query id>-driver`.

    Not the bare query id: lane 1 of the query "refunds" and the driver of a query "refunds-1" would share one
    id and fence each other for ever. With a suffix that is no number, no two names ever meet.
    """
    return f"{query}-driver"


def in_group(query: str, group: str) -> str:
    """What the group that has a query's id says of a query whose ledger is in another one."""
    return f"{query} in group {group}"


def lane_partition(lane: int) -> int:
    """Ledger partition of a lane's row."""
    return QUERY_PARTITION + 1 + lane


@dataclass(frozen=True)
class Run:
    """One run of a query: from `start()` to its end.

    Args:
        query: query id, the same in all runs.
        checkpoint: `StreamingQuery.id`: the same in all runs on one checkpoint.
        run: `StreamingQuery.runId`: another one at each start.
    """

    query: str
    checkpoint: str
    run: str


@dataclass(frozen=True)
class LaneTask:
    """One attempt to write one lane of one micro-batch.

    Args:
        run: which run of which query.
        batch: micro-batch id, from 0.
        lane: partition of the batch's DataFrame, from 0.
        lanes: how many partitions the batch's DataFrame has; None where Spark does not tell before they have run.
        content: digest of what the batch is made of (its sources' end offsets); None where it is not known.
        attempt: Spark's task attempt number, from 0; for the ledger's reader only, nothing is decided by it.
    """

    run: Run
    batch: int
    lane: int
    lanes: int | None
    attempt: int
    content: str | None = None

    @property
    def transactional_id(self) -> str:
        return lane_transactional_id(self.run.query, self.lane)
