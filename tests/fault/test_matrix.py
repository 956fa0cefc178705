"""The fault matrix (`make fault`) in short: kills and stops of a lane's worker, a few of each, in one life of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import cells_worker
import pytest
from cells_worker import STOP_TIMEOUT_S, kill_faults, one_a_batch, run_faults, stop_faults
from fault_cells import RunResult, judge
from pipeline import World

pytestmark = pytest.mark.timeout(600)  # the first of those that share a pipeline waits for all of its faults

RUNS = 2
SEED = 7
Results = dict[str, list[RunResult]]

SHARED = {"lanes": [*cells_worker.POINTS, "stop"]}
"""Fixture to the cells that share its pipeline."""


def by_cell(cells: Sequence[str], results: Sequence[RunResult]) -> Results:
    """What the checker found in a shared pipeline counts for each cell."""
    found: Results = {}
    for cell, result in zip(cells, results, strict=True):
        told = replace(result, anomalies=results[-1].anomalies, examples=results[-1].examples)
        found.setdefault(cell, []).append(told)
    return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World.open() as opened:
        yield opened


@pytest.fixture(scope="module")
def lanes(world) -> Results:
    cells = [*cells_worker.POINTS] * RUNS
    faults = kill_faults([cells_worker.POINTS[cell][0] for cell in cells], SEED)
    faults += stop_faults(RUNS, SEED, STOP_TIMEOUT_S)
    pipeline = world.pipeline("lanes", timeout_s=STOP_TIMEOUT_S)
    return by_cell(cells + ["stop"] * RUNS, run_faults(world, pipeline, one_a_batch(faults)))


@pytest.mark.parametrize(("shared", "cell"), [(name, cell) for name, cells in SHARED.items() for cell in cells])
def test_no_row_is_lost_doubled_torn_or_late(request, shared, cell):
    verdict = judge(request.getfixturevalue(shared)[cell])
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == RUNS
