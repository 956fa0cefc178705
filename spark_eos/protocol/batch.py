"""A batch as the driver knows it: what the checkpoint tells of it, and what its lanes are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.protocol.ledger import LaneRow
from spark_eos.protocol.positions import Offsets


@dataclass(frozen=True)
class BatchLog:
    """What the query's checkpoint tells of a batch, as far as it is known.

    Args:
        content: digest of what the batch is made of; None if that can't be known.
        previous: the same of the batch before.
        starts, ends: offsets of its Kafka sources, of topics that the cluster has.
        shared: a source partition is read by several sources of the query, so a position is that of several rows.
        stateful: the query keeps state in its checkpoint.
    """

    content: str | None = None
    previous: str | None = None
    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    shared: bool = False
    stateful: bool = False


@dataclass(frozen=True)
class BatchPlan:
    """What the lanes of an opened batch need to know.

    Args:
        skip: the batch is sealed, and known to be just this one: compute its rows, and write none.
        sealed: it is sealed; whether it is just this one, its rows must tell (`QueryRun.compare`).
        committed: lane to row, of the lanes that have committed this batch: before any other lane writes, they must
            turn out to have the same rows (`QueryRun.compare`).
        floor: rows below these source positions were processed before this checkpoint was adopted.
        known: source offsets that are committed already, so that no lane moves one back; None: lanes commit none, since
            they share source partitions.
        keep: lanes that turn out to have other rows are left as they were committed.
        again: this run has had the batch before.
    """

    skip: bool = False
    sealed: bool = False
    committed: Mapping[int, LaneRow] = field(default_factory=dict)
    floor: Offsets = field(default_factory=dict)
    known: Offsets | None = field(default_factory=dict)
    keep: bool = False
    again: bool = False
