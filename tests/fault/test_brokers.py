"""The part of the fault matrix that needs three brokers, in short: one run of each of its cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cells_brokers import CELLS, java_hash
from fault_cells import judge
from pipeline import World

pytestmark = pytest.mark.large

RUNS = 1
SEED = 7


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World.open(3) as opened:
        yield opened


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_no_row_is_lost_doubled_torn_or_late(world, cell):
    verdict = judge(cell.run(world, RUNS, SEED), in_time=False)
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == RUNS


def test_java_hashes():
    # as `"…".hashCode()` says in Java
    assert [java_hash(text) for text in ("", "a", "hello")] == [0, 97, 99162322]
    assert java_hash("polygenelubricants") == -(2**31)
