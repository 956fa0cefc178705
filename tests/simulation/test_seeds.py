"""A seeded SimulatedKafka: mishaps that are the same each time, and rows that are there once whatever they are."""

from __future__ import annotations

import pytest
from clusters import SimulatedQuery
from tests_support import rows_of

from spark_eos.errors import SparkEosError
from spark_eos.testing import SimulatedKafka

PLACES = [("in", 0), ("in", 1)]
BATCHES = 3


def lanes_of(batch: int):
    return [[rows_of([f"{lane}:{batch}:{n}" for n in range(3)], ("in", lane, 3 * batch))] for lane in (0, 1)]


EXPECTED = sorted(f"{lane}:{batch}:{n}" for lane in (0, 1) for batch in range(BATCHES) for n in range(3))


def finished(seed: int) -> tuple[SimulatedKafka, int]:
    """A query that was started again until it was through; how often it failed."""
    kafka, failures = SimulatedKafka(seed), 0
    kafka.create_topic("in", 2)
    kafka.create_topic("out", 2)
    query = SimulatedQuery(kafka, "refunds", "out")
    batch = 0
    while batch < BATCHES:
        run = query.run(f"run-{failures}")
        try:
            while batch < BATCHES:
                query.batch(run, batch, lanes_of(batch), PLACES, str(batch))
                batch += 1
        except SparkEosError:
            failures += 1
    kafka.settle()
    return kafka, failures


@pytest.mark.parametrize("seed", range(30))
def test_each_row_is_there_once_over_mishaps_and_restarts(seed):
    kafka, _ = finished(seed)
    assert sorted(each.value.decode() for each in kafka.records("out")) == EXPECTED
    assert kafka.committed("refunds") == dict.fromkeys(PLACES, 3 * BATCHES)


def test_mishaps_end_runs():
    assert sum(finished(seed)[1] > 0 for seed in range(10)) >= 3


def test_the_same_seed_gives_the_same_run():
    one, other, another = finished(3)[0], finished(3)[0], finished(4)[0]
    assert one.network.log == other.network.log != another.network.log
    assert [one.dump("out", n) for n in (0, 1)] == [other.dump("out", n) for n in (0, 1)]
    assert one.journal() == other.journal() != another.journal()
