"""The protocol against everything that a network and its brokers may do, up to a bound; and that this would notice."""

from __future__ import annotations

import pytest
from choices import Dice, Replay
from simulate import QUICK, of_seeds
from simulated_query import Checkpoint, Query
from simulation import Bounds, Simulation, busy_query, seeded

from spark_eos.protocol.batch import BatchLog
from spark_eos.testing import SimulatedKafka
from spark_eos.testing.simulated.brokers import Brokers
from spark_eos.testing.simulated.network import Network, Request, T

SEEDS = 200


@pytest.mark.parametrize("space", QUICK, ids=lambda space: space.title.replace(" ", "-"))
def test_every_run_up_to_a_bound_is_right(space):
    found = space.searched()
    assert found.anomaly is None, "\n".join([found.anomaly.anomaly, *found.anomaly.trace])
    # A search that had nothing to choose would be right, too.
    assert found.states > 1_000


def test_seeded_runs_are_right():
    bad = {seed: verdict.anomaly for seed, verdict in of_seeds(range(SEEDS))}
    assert bad == {}, "python reliability/simulate.py --replay SEED shows what happened"


def test_a_seed_is_a_run():
    def run(seed: int):
        verdict = seeded(seed)
        return verdict.trace, verdict.taken

    assert run(7) == run(7)
    assert len({run(seed)[0] for seed in range(5)}) == 5


def test_a_run_replays_from_its_choices():
    bounds, checkpoint = Bounds(kills=2, faults=2), lambda: Checkpoint.of(2, 2)
    first = Simulation(Dice(3, 0.3), bounds, checkpoint()).run(busy_query)
    again = Simulation(Replay(first.taken), bounds, checkpoint()).run(busy_query)
    assert first.trace == again.trace
    assert any("killed" in line for line in first.trace)


class LateMarkers(Network):
    """Brokers that acknowledge a commit, and write its markers when somebody has waited for them."""

    def send(self, request: Request[T]) -> T:
        return request.call()

    def pause(self, request: Request[T]) -> None:
        super().pause(request)
        self.brokers.write_markers()


def test_a_restart_straight_after_a_seal_does_not_take_the_row_of_before_for_the_truth():
    """Found by a seed: the look was refused as BatchAbandoned, with the advice to edit the checkpoint."""
    query = Query(SimulatedKafka(network=LateMarkers(Brokers())), Checkpoint.of(2, 1))
    first = query.run("first")
    first.open(0, 1, BatchLog("content 0"))
    first.seal(0, 1, [query.attempt(first.run, 0, 0, 0, 1)], BatchLog("content 0"))
    assert query.kafka.brokers.markers(), "the seal does not show yet"
    assert not query.run("second").open(1, 1, BatchLog("content 1")).skip
