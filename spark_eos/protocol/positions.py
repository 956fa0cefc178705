"""Where rows came from: source ranges, the fingerprint of a lane, and the offsets to commit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]
"""Topic and partition to offset."""


@dataclass(frozen=True)
class SourceRange:
    """Rows of one source partition: how many, with the smallest and the largest offset among them."""

    topic: str
    partition: int
    first: int
    last: int
    rows: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def joined(self, other: SourceRange) -> SourceRange:
        """This range and another one of the same source partition."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        return SourceRange(self.topic, self.partition, first, last, self.rows + other.rows)


@dataclass(frozen=True)
class Fingerprint:
    """What a lane was made of. A lane that is done again must have the same.

    Args:
        rows: how many.
        sources: digest of their source ranges.
        order: digest of all that is written of them, in their order; None in a ledger row of version 2.
        bag: the same, whatever their order; None likewise.

    A shuffle gives a lane the same rows in another order each time, by which of its blocks come first. That harms
    nothing: a lane that is committed keeps the order that it has.
    """

    rows: int
    sources: str
    order: str | None = None
    bag: str | None = None

    def same_rows(self, other: Fingerprint) -> bool:
        """Whether both are of the same rows, in whatever order; as far as both know."""
        known = self.bag is None or other.bag is None or self.bag == other.bag
        return known and (self.rows, self.sources) == (other.rows, other.sources)

    def __str__(self) -> str:
        return f"{self.rows} rows (digest {self.bag or 'not known'}, sources {self.sources})"


class Tally:
    """Counts the rows of a lane, piece by piece, whether they are written or not."""

    def __init__(self) -> None:
        self.rows = 0
        self._ranges: dict[TopicPartition, SourceRange] = {}
        self._order, self._bag = hashlib.blake2b(digest_size=8), 0

    def add(self, rows: int, ranges: Iterable[SourceRange], digests: bytes) -> None:
        """Count the next rows.

        Args:
            rows: how many.
            ranges: where they came from.
            digests: eight bytes for each, of all that is written of it.
        """
        self.rows += rows
        for each in ranges:
            known = self._ranges.get(each.key)
            self._ranges[each.key] = known.joined(each) if known else each
        self._order.update(digests)
        self._bag = (self._bag + sum(memoryview(digests).cast("Q"))) % (1 << 64)

    @property
    def ranges(self) -> tuple[SourceRange, ...]:
        """One range for each source partition, sorted."""
        return tuple(self._ranges[key] for key in sorted(self._ranges))

    @property
    def fingerprint(self) -> Fingerprint:
        listed = [[r.topic, r.partition, r.first, r.last, r.rows] for r in self.ranges]
        sources = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]
        return Fingerprint(self.rows, sources, self._order.hexdigest(), f"{self._bag:016x}")


LAST_OFFSET = (1 << 63) - 1
"""A position may be anything that fits into its column."""

OURS = "spark-eos"
"""Begins the metadata of the source offsets that this connector commits: see `mark_of`."""


def mark_of(query: str) -> str:
    """Metadata of the source offsets that a query commits: neither another program's nor another query's have it."""
    return f"{OURS} {query}"


def offsets_after(ranges: Iterable[SourceRange], floor: Mapping[TopicPartition, int]) -> Offsets:
    """Offsets to commit once these ranges are processed: the largest one + 1, never below the floor."""
    after: Offsets = {}
    for each in ranges:
        after[each.key] = max(after.get(each.key, floor.get(each.key, 0)), min(each.last + 1, LAST_OFFSET))
    return after


def offsets_at_least(*several: Mapping[TopicPartition, int]) -> Offsets:
    """The largest offset of each partition."""
    found: Offsets = {}
    for offsets in several:
        for key, offset in offsets.items():
            found[key] = max(offset, found.get(key, 0))
    return found


def is_aligned(lanes: Iterable[Iterable[SourceRange]]) -> bool:
    """Whether no source partition's rows are spread over several lanes.

    Only then do the lanes' own offset commits, one by one, tell what was processed.
    """
    seen: set[TopicPartition] = set()
    for ranges in lanes:
        keys = {each.key for each in ranges}
        if keys & seen:
            return False
        seen |= keys
    return True


TOPIC_IDS = "topic ids"
"""Beside the topics in an entry of the offset log: topic to its id. No topic can have this name."""

OUT_OF_SIGHT = "out of sight"
"""The same: offsets of partitions that could not be seen, to go on from when they are back."""


def offsets_in_log(entry: Any) -> Offsets:
    """Kafka offsets in one source's entry of Spark's offset log: {"topic": {"0": 12}}; empty for other sources."""
    if not isinstance(entry, dict):
        return {}
    found: Offsets = {}
    for topic, partitions in entry.items():
        if topic in (TOPIC_IDS, OUT_OF_SIGHT):
            continue
        if not isinstance(partitions, dict):
            return {}
        for partition, offset in partitions.items():
            if not (str(partition).isdigit() and isinstance(offset, int) and not isinstance(offset, bool)):
                return {}
            found[topic, int(partition)] = offset
    return found
