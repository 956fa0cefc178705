"""The ledger's rows, and how they are written as a committed offset's metadata.

A row is one committed offset in the query's consumer group: offset = next batch id, metadata = a small JSON.
Kafka limits metadata to 4,096 bytes (`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_eos.errors import LedgerUnreadable
from spark_eos.protocol.names import QUERY_PARTITION, lane_partition
from spark_eos.protocol.positions import Fingerprint

VERSION = 3
VERSION_BEFORE = 2
"""Still read: it knew nothing of `QUERY_SINCE_3` and `LANE_SINCE_3`."""

QUERY_SINCE_3 = {"query": None, "floor": None, "went_back": False, "signs_offsets": False}
LANE_SINCE_3 = {"order": None, "bag": None}


@dataclass(frozen=True)
class QueryRow:
    """The query's row: written by the driver when it takes over, and at each seal.

    Args:
        next_batch: every batch below it is sealed: whole, or skipped as whole.
        checkpoint: the checkpoint that the batch ids belong to.
        run: the run that took over last. Tasks of any other run refuse to write.
        since: when that run took over, ISO 8601, UTC.
        lanes: no lane with this index or a higher one has been started by this run (of a run that did not know how
            many it starts: none that a lane's row does not tell of).
        content: digest of what the last sealed batch was made of; None where it is not known.
        aligned: whether, in every batch so far, all rows carried their positions and no source partition was spread
            over several lanes; None: there were no rows yet. Only then do the committed offsets tell which rows of a
            half-committed batch are written.
        adoptions: how often the query went on with another checkpoint, or an older copy. Lanes' rows of before count
            as none. From the first on, rows below the group's offsets are dropped.
        at_rest: sealed, and the next batch will sign before it starts: no lane can have left anything open.
        query: the query id; None in a row of version 2.
        floor: whether rows below the group's offsets are dropped: from an adoption on until the sources are past them.
            None in a row of version 2: from an adoption on.
        went_back: whether rows have carried positions from before their batch, as those of an aggregation do.
        signs_offsets: whether the source offsets of the group carry this connector's mark, each of them.
    """

    next_batch: int
    checkpoint: str
    run: str
    since: str
    lanes: int
    content: str | None = None
    aligned: bool | None = None
    adoptions: int = 0
    at_rest: bool = False
    query: str | None = None
    floor: bool | None = None
    went_back: bool = False
    signs_offsets: bool = False

    partition = QUERY_PARTITION

    @property
    def has_floor(self) -> bool:
        """Whether rows below the group's offsets are to be dropped."""
        return self.adoptions > 0 if self.floor is None else self.floor

    def metadata(self) -> str:
        return _encode(
            checkpoint=self.checkpoint,
            run=self.run,
            since=self.since,
            lanes=self.lanes,
            content=self.content,
            aligned=self.aligned,
            adoptions=self.adoptions,
            at_rest=self.at_rest,
            query=self.query,
            floor=self.floor,
            went_back=self.went_back,
            signs_offsets=self.signs_offsets,
        )


@dataclass(frozen=True)
class LaneRow:
    """A lane's row: written inside the lane's transaction, so it tells what was committed with it.

    Args:
        lane: which lane.
        next_batch: the lane's last committed batch + 1.
        checkpoint, run, attempt: who wrote it.
        lanes: how many lanes that batch had; None where the lane could not know.
        fingerprint: what the lane was made of.
        content: what the batch was made of, as in `LaneTask`.
        adoptions: as in the query's row when it was written.
    """

    lane: int
    next_batch: int
    checkpoint: str
    run: str
    attempt: int
    lanes: int | None
    fingerprint: Fingerprint
    content: str | None = None
    adoptions: int = 0

    @property
    def partition(self) -> int:
        return lane_partition(self.lane)

    def metadata(self) -> str:
        return _encode(
            checkpoint=self.checkpoint,
            run=self.run,
            attempt=self.attempt,
            lanes=self.lanes,
            rows=self.fingerprint.rows,
            digest=self.fingerprint.sources,
            order=self.fingerprint.order,
            bag=self.fingerprint.bag,
            content=self.content,
            adoptions=self.adoptions,
        )


Row = QueryRow | LaneRow


@dataclass(frozen=True)
class LedgerView:
    """What the ledger says of a query at one moment.

    Args:
        query: the query's row, or None.
        lanes: lane to row, of every lane that has one.
    """

    query: QueryRow | None = None
    lanes: Mapping[int, LaneRow] = field(default_factory=dict)

    @property
    def lanes_to_fence(self) -> int:
        """Every lane that an older run may have left something open in has a lower index."""
        started = self.query.lanes if self.query else 0
        return max([started, *(lane + 1 for lane in self.lanes)])


def decode_query(next_batch: int, metadata: str) -> QueryRow:
    """A query row from its committed offset.

    Raises:
        LedgerUnreadable: not written by spark-eos, or by a newer version.
    """
    names = QueryRow.__annotations__.keys() - {"next_batch"}
    found = _decode(QUERY_PARTITION, metadata, names, QUERY_SINCE_3)
    return QueryRow(next_batch=next_batch, **found)


def decode_lane(lane: int, next_batch: int, metadata: str) -> LaneRow:
    """A lane's row from its committed offset; errors as `decode_query`."""
    names = {"checkpoint", "run", "attempt", "lanes", "rows", "digest", "order", "bag", "content", "adoptions"}
    found = _decode(lane_partition(lane), metadata, names, LANE_SINCE_3)
    fingerprint = Fingerprint(*(found.pop(name) for name in ("rows", "digest", "order", "bag")))
    return LaneRow(lane=lane, next_batch=next_batch, fingerprint=fingerprint, **found)


def _encode(**fields: Any) -> str:
    return json.dumps({"v": VERSION} | fields, separators=(",", ":"))


def _decode(partition: int, metadata: str, names: set[str], since_3: Mapping[str, Any]) -> dict[str, Any]:
    try:
        fields = json.loads(metadata)
        version = fields.pop("v")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise _unreadable(partition, f"is no row of spark-eos: {metadata[:80]!r}") from None
    if version == VERSION_BEFORE and not fields.keys() & since_3.keys():
        fields, version = fields | since_3, VERSION
    if version != VERSION or fields.keys() != names:
        read = f"{VERSION_BEFORE} and {VERSION}"
        raise _unreadable(partition, f"has version {version}, and this spark-eos reads versions {read}")
    return dict(fields)


def _unreadable(partition: int, why: str) -> LedgerUnreadable:
    return LedgerUnreadable(
        f"the ledger's partition {partition} {why}",
        do="Use the version of spark-eos that wrote it, or another group.id if something else commits to this one.",
    )
