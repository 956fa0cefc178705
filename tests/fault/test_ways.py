"""The ways of use (`make ways`) in short: telling combinations, each refused as it should be and exact in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ways import World
from ways_axes import CORES, NOTHING, OLDER, SHUFFLE, Combination
from ways_course import ANOMALY
from ways_faults import AFTER, BETWEEN, SEALED
from ways_life import CONNECT, FOREACH, FORMAT, WRITE
from ways_mutant_edits import HEALTHY_REFUSALS, TRIALS

pytestmark = pytest.mark.timeout(240)

IN_SHORT = {"code", "files-older", "second-write"}
"""Of TRIALS; the others are in `make test-large`."""

MORE = {
    "state": (Combination("window-append", FORMAT, SHUFFLE, BETWEEN), ()),
    "self-union": (Combination("self-union", FOREACH, OLDER, AFTER, positions=True, second_way=True), ()),
    "rate": (Combination("rate", FORMAT, CORES, BETWEEN), ("ReplayDiffers",)),
    "write": (Combination("stateless", WRITE, NOTHING, SEALED), ()),
    "connect-foreachBatch": (Combination("stateless", CONNECT + FOREACH, NOTHING, BETWEEN), ()),
    "connect-format": (Combination("coalesce", CONNECT + FORMAT, NOTHING, AFTER), ()),
}
"""Name to combination and what is refused in it, in order; in `make test-large`."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World.open() as opened:
        yield opened


def _in_short(name: str) -> object:
    return name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.large)


@pytest.mark.parametrize("name", [*map(_in_short, TRIALS)])
def test_it_is_exact_or_refused_by_name_and_exact_by_the_way_on(world, name):
    result = world.tried(TRIALS[name])
    assert result.verdict != ANOMALY, result.told
    assert result.refusals == HEALTHY_REFUSALS[name]


@pytest.mark.large
@pytest.mark.parametrize("name", [*MORE])
def test_more_ways_of_use(world, name):
    combination, refusals = MORE[name]
    result = world.tried(combination)
    assert result.verdict != ANOMALY, result.told
    assert result.refusals == refusals
