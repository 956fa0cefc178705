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

VERSION = 1


@dataclass(frozen=True)
class QueryRow:
    """The query's row: written by the driver when it takes over, and at each seal.

    Args:
        next_batch: every batch below it is sealed: whole, or skipped as whole.
        checkpoint: the checkpoint that the batch ids belong to.
        run: the run that took over last. Tasks of any other run refuse to write.
        since: when that run took over, ISO 8601, UTC.
        lanes: no lane with this index or a higher one has been started by this run.
        aligned: whether no source partition was spread over several lanes in the last batch; None: not known.
        adopted: whether this checkpoint was adopted, so rows below the group's offsets are to be dropped.
    """

    next_batch: int
    checkpoint: str
    run: str
    since: str
    lanes: int
    aligned: bool | None = None
    adopted: bool = False

    partition = QUERY_PARTITION

    def metadata(self) -> str:
        return _encode(
            checkpoint=self.checkpoint,
            run=self.run,
            since=self.since,
            lanes=self.lanes,
            aligned=self.aligned,
            adopted=self.adopted,
        )


@dataclass(frozen=True)
class LaneRow:
    """A lane's row: written inside the lane's transaction, so it tells what was committed with it.

    Args:
        lane: which lane.
        next_batch: the lane's last committed batch + 1.
        checkpoint, run, attempt: who wrote it.
        lanes: how many lanes that batch had.
        fingerprint: what the lane was made of.
    """

    lane: int
    next_batch: int
    checkpoint: str
    run: str
    attempt: int
    lanes: int
    fingerprint: Fingerprint

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
            digest=self.fingerprint.digest,
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
    found = _decode(QUERY_PARTITION, metadata, QueryRow.__annotations__.keys() - {"next_batch"})
    return QueryRow(next_batch=next_batch, **found)


def decode_lane(lane: int, next_batch: int, metadata: str) -> LaneRow:
    """A lane's row from its committed offset; errors as `decode_query`."""
    names = {"checkpoint", "run", "attempt", "lanes", "rows", "digest"}
    found = _decode(lane_partition(lane), metadata, names)
    fingerprint = Fingerprint(found.pop("rows"), found.pop("digest"))
    return LaneRow(lane=lane, next_batch=next_batch, fingerprint=fingerprint, **found)


def _encode(**fields: Any) -> str:
    return json.dumps({"v": VERSION} | fields, separators=(",", ":"))


def _decode(partition: int, metadata: str, names: set[str]) -> dict[str, Any]:
    try:
        fields = json.loads(metadata)
        version = fields.pop("v")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise _unreadable(partition, f"is no row of spark-eos: {metadata[:80]!r}") from None
    if version != VERSION or fields.keys() != names:
        raise _unreadable(partition, f"has version {version}, and this spark-eos reads version {VERSION}")
    return dict(fields)


def _unreadable(partition: int, why: str) -> LedgerUnreadable:
    return LedgerUnreadable(
        f"the ledger's partition {partition} {why}",
        do="Use the version of spark-eos that wrote it, or another group.id if something else commits to this one.",
    )
