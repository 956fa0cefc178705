"""What of the fault matrix needs three brokers, in short: two runs of each cell, three in one life of a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cells_broker import outages
from cells_brokers import CELLS, TIMEOUT_S, commit_kills, group_kill, java_hash, output_kill, rolling_restart
from fault_cells import judge
from pipeline import World
from shared_cells import Results, by_cell

RUNS = 2
SEED = 7


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    with World.open(3) as world:
        pipeline = world.pipeline("brokers", timeout_s=TIMEOUT_S)
        planned = {
            "group-coordinator": group_kill(pipeline),
            "output-leader": output_kill(pipeline, 0),
            "rolling-restart": rolling_restart,
        }
        shared = outages(world, pipeline, list(planned.values()) * RUNS, SEED)
        yield by_cell(list(planned) * RUNS, shared) | {"txn-coordinator": commit_kills(world, RUNS, SEED)}


@pytest.mark.timeout(600)  # the first waits for all of the faults
@pytest.mark.parametrize("cell", [cell.name for cell in CELLS])
def test_no_row_is_lost_doubled_torn_or_late(results, cell):
    verdict = judge(results[cell], in_time=False)
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == RUNS


def test_java_hashes():
    # as `"…".hashCode()` says in Java
    assert [java_hash(text) for text in ("", "a", "hello")] == [0, 97, 99162322]
    assert java_hash("polygenelubricants") == -(2**31)
