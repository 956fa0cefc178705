"""The fault matrix (`make fault`) in short: every cell, two runs of each, where possible in one life of a job."""

from __future__ import annotations

from collections.abc import Iterator

import cells_broker
import cells_driver
import cells_worker
import pytest
from cells_worker import kill_faults, one_a_batch, run_faults, stop_faults
from fault_cells import judge
from pipeline import World
from shared_cells import Results, by_cell

pytestmark = pytest.mark.timeout(600)  # the first of those that share a pipeline waits for all of its faults

RUNS = 2
SEED = 7
TIMEOUT_S = 8
"""Of the transactions of lanes that are killed or stopped. On a busy machine a healthy one takes a second or two."""

KILLS = [*cells_worker.POINTS]
SHARED = {
    "lanes": [*KILLS, "stop"],
    "drivers": [*cells_driver.POINTS],
    "brokers": ["broker-kill", "broker-pause"],
    "formats": ["kill-format"],
    "executors": ["executor"],
    "attempts": ["two-attempts"],
}
"""Fixture to the cells that share its pipeline."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World.open() as opened:
        yield opened


@pytest.fixture(scope="module")
def lanes(world) -> Results:
    cells = KILLS * RUNS
    faults = kill_faults([cells_worker.POINTS[cell][0] for cell in cells], SEED)
    faults += stop_faults(RUNS, SEED, TIMEOUT_S)
    pipeline = world.pipeline("lanes", timeout_s=TIMEOUT_S)
    return by_cell(cells + ["stop"] * RUNS, run_faults(pipeline, one_a_batch(faults)))


@pytest.fixture(scope="module")
def drivers(world) -> Results:
    cells = [*cells_driver.POINTS] * RUNS
    return by_cell(cells, cells_driver.kills([cells_driver.POINTS[cell][0] for cell in cells], world))


@pytest.fixture(scope="module")
def brokers(world) -> Results:
    planned = [cells_broker.kill] * RUNS + cells_broker.pauses(RUNS)
    results = cells_broker.outages(world, world.pipeline("broker"), planned, SEED)
    return by_cell(["broker-kill"] * RUNS + ["broker-pause"] * RUNS, results)


@pytest.fixture(scope="module")
def formats(world) -> Results:
    return {"kill-format": cells_worker.format_kills(world, RUNS, SEED)}


@pytest.fixture(scope="module")
def executors(world) -> Results:
    return {"executor": cells_worker.executors(world, RUNS, SEED)}


@pytest.fixture(scope="module")
def attempts(world) -> Results:
    return {"two-attempts": cells_worker.cuts(world, RUNS, SEED)}


@pytest.mark.parametrize(("shared", "cell"), [(name, cell) for name, cells in SHARED.items() for cell in cells])
def test_no_row_is_lost_doubled_torn_or_late(request, shared, cell):
    verdict = judge(request.getfixturevalue(shared)[cell], in_time=False)
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == RUNS


def test_every_cell_of_these_files_is_among_these():
    own = [*cells_worker.CELLS, *cells_driver.CELLS, *cells_broker.CELLS]
    assert {cell.name for cell in own} == {cell for cells in SHARED.values() for cell in cells}
