"""How ranges of offsets become tasks: split where they are large, packed where they are small. Pure.

The outcome depends on the ranges and the options only, so a batch that is done again has the same rows in the same
places, whatever the cluster looks like then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spark_eos.kafka.offsets import OffsetRange
from spark_eos.source_values import Split

Work = tuple[OffsetRange, ...]
"""What one task reads, one range after the other."""


def tasks(ranges: Sequence[OffsetRange], split: Split) -> list[Work]:
    """The tasks of a batch, in the order of the ranges.

    As Spark's KafkaOffsetRangeCalculator: at most `split.records` offsets in a range; then, while there are fewer
    ranges than `split.least`, large ones are split in proportion. `split.most` is ours: neighbours are packed.

    Args:
        ranges: by topic and partition, none of them empty.
        split: see above; None for no bound.
    """
    pieces = [piece for each in ranges for piece in _cut(each, _parts_of(each, split.records))]
    if split.least and len(pieces) < split.least:
        pieces = _stretched(pieces, split.least)
    if split.most and len(pieces) > split.most:
        return _packed(pieces, split.most)
    return [(piece,) for piece in pieces]


def _parts_of(wanted: OffsetRange, records: int | None) -> int:
    return -(-wanted.size // records) if records else 1


def _cut(wanted: OffsetRange, parts: int) -> list[OffsetRange]:
    """A range in so many pieces of nearly equal size; the smaller ones first, and empty ones left out, as in Spark."""
    edges = [wanted.start]
    for left in range(parts, 0, -1):
        edges.append(edges[-1] + (wanted.end - edges[-1]) // left)
    cut = [OffsetRange(wanted.topic, wanted.partition, *edge) for edge in pairwise(edges)]
    return [piece for piece in cut if piece.size]


def _stretched(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """About `least` pieces. Small ranges stay whole, and are left out of the proportions."""
    total = sum(each.size for each in ranges)
    small = [_share(each.size, total, least) == 1 for each in ranges]
    large_total = sum(each.size for each, whole in zip(ranges, small, strict=True) if not whole)
    large_parts = max(least - sum(small), 1)
    found: list[OffsetRange] = []
    for each, whole in zip(ranges, small, strict=True):
        found += _cut(each, 1 if whole else _share(each.size, large_total, large_parts))
    return found


def _share(size: int, total: int, parts: int) -> int:
    return max(1, (2 * size * parts + total) // (2 * total))


def _packed(ranges: list[OffsetRange], most: int) -> list[Work]:
    """At most `most` tasks of neighbouring ranges, of about the same size."""
    total = sum(each.size for each in ranges)
    packs: list[list[OffsetRange]] = [[] for _ in range(most)]
    before = 0
    for each in ranges:
        # Whole ranges only: one goes where its middle is.
        packs[(2 * before + each.size) * most // (2 * total)].append(each)
        before += each.size
    return [tuple(pack) for pack in packs if pack]
