"""Ranges of offsets as tasks: split, stretched, packed, and always the same way."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from spark_eos.kafka.offsets import OffsetRange
from spark_eos.kafka.split import Work, tasks
from spark_eos.source_values import Split


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("a", partition, 100, 100 + size) for partition, size in enumerate(sizes)]


def sizes(work: list[Work]) -> list[list[int]]:
    return [[piece.size for piece in each] for each in work]


@pytest.mark.parametrize(
    ("given", "split", "found"),
    [
        ([3, 5], Split(), [[3], [5]]),
        ([], Split(least=4, most=4), []),
        # minPartitions: nothing to do, in proportion, small ones stay whole.
        ([3, 5], Split(least=2), [[3], [5]]),
        ([10], Split(least=3), [[3], [3], [4]]),
        ([30, 10], Split(least=4), [[10], [10], [10], [10]]),
        ([100, 1], Split(least=5), [[25], [25], [25], [25], [1]]),
        ([1, 1], Split(least=5), [[1], [1]]),
        # maxRecordsPerPartition: each range on its own, evenly.
        ([10, 3], Split(records=4), [[3], [3], [4], [3]]),
        ([8], Split(records=4), [[4], [4]]),
        # Both: by records first, and on if that is too few.
        ([100], Split(records=60, least=4), [[25], [25], [25], [25]]),
        ([100], Split(records=20, least=4), [[20], [20], [20], [20], [20]]),
        # maxPartitions: neighbours share a task.
        ([1] * 8, Split(most=2), [[1] * 4, [1] * 4]),
        ([1] * 8, Split(most=8), [[1]] * 8),
        ([1] * 8, Split(most=1), [[1] * 8]),
        ([100, 1, 1], Split(most=2), [[100], [1, 1]]),
        ([1, 100, 1], Split(most=2), [[1], [100, 1]]),
    ],
)
def test_tasks(given: list[int], split: Split, found: list[list[int]]) -> None:
    assert sizes(tasks(ranges(*given), split)) == found


def test_every_offset_is_read_once_in_order_whatever_the_options() -> None:
    dice = random.Random(7)
    for _ in range(500):
        given = ranges(*[dice.choice([1, 2, 7, 100, 10_000]) for _ in range(dice.randint(1, 12))])
        least, most, records = (dice.choice([None, 1, 3, 10, 40]) for _ in range(3))
        split = Split(least, max(most, least or 0) if most else None, records)
        work = tasks(given, split)
        pieces = [piece for each in work for piece in each]
        assert all(piece.size > 0 for piece in pieces)
        assert [(p.partition, o) for p in pieces for o in (p.start, p.end)] == sorted(
            (p.partition, o) for p in pieces for o in (p.start, p.end)
        )
        for wanted in given:
            mine = [piece for piece in pieces if piece.partition == wanted.partition]
            assert (mine[0].start, mine[-1].end) == (wanted.start, wanted.end)
            assert all(one.end == other.start for one, other in pairwise(mine))
            assert not records or all(piece.size <= records for piece in mine)
        assert not split.most or len(work) <= split.most
        assert tasks(given, split) == work
