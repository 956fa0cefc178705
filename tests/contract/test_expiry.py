"""What brokers forget: committed offsets and transactional.ids that nobody has used for long, here for seconds.

The real brokers take a minute to forget: `make test-large`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from clusters import Cluster, RealCluster, SimulatedCluster
from kafka_log import until
from tests_support import QueryCalls, rows_of

from spark_eos.errors import LedgerLost
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.transaction import Outcome
from spark_eos.testing import EmbeddedKafka
from spark_eos.testing.simulated.brokers import Brokers

FORGETFUL = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "transactional.id.expiration.ms": "5000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
SOURCE = "in"
PLACES = [(SOURCE, 0), (SOURCE, 1), (SOURCE, 2)]


@pytest.fixture(scope="module", params=[pytest.param("kafka", marks=pytest.mark.large), "simulated"])
def brokers(request):
    if request.param == "kafka":
        with EmbeddedKafka(config=FORGETFUL) as kafka:
            yield with_source(RealCluster(kafka))
    else:
        yield with_source(SimulatedCluster(Brokers(expiration_s=5, retention_s=60)))


def with_source(brokers: Cluster) -> Cluster:
    brokers.create_topic(SOURCE, len(PLACES))
    return brokers


def two_lanes(values: str, first: int):
    """A row from each of two source partitions, each in a lane of its own."""
    return [[rows_of(value, (SOURCE, lane, first))] for lane, value in enumerate(values)]


def written(brokers: Cluster, name: str) -> tuple[QueryCalls, QueryRun]:
    """A query that has written batch 0, and its run, still alive."""
    brokers.create_topic(f"out-{name}", 1)
    query = brokers.query(name, f"out-{name}")
    alive = query.run()
    query.batch(alive, 0, two_lanes("ab", 0), log_offsets=dict.fromkeys(PLACES, 1))
    return query, alive


# --- transactional.ids alone ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_ids(brokers):
    """Queries whose transactional.ids are forgotten, and their offsets are not."""
    queries = {name: written(brokers, name) for name in ("id-restarted", "id-alive", "id-sealing")}
    queries["id-sealing"][1].open(1, 2)
    until(lambda: brokers.later(1) and not any(id_.startswith("id-") for id_ in brokers.transactional_ids()))
    assert all(query.ledger.query() for query, _ in queries.values())
    return queries


def test_a_new_run_takes_over_though_all_its_ids_are_forgotten(without_ids):
    query, _ = without_ids["id-restarted"]
    query.batch(query.run(), 1, two_lanes("cd", 1))
    assert query.values() == list("abcd")


def test_a_run_whose_ids_are_all_forgotten_goes_on(without_ids):
    query, alive = without_ids["id-alive"]
    query.batch(alive, 1, two_lanes("cd", 1))
    assert query.values() == list("abcd")


def test_a_batch_may_outlast_its_lease(without_ids):
    query, alive = without_ids["id-sealing"]
    reports = [query.lane(alive, 1, rows, lane, 2) for lane, rows in enumerate(two_lanes("cd", 1))]
    alive.seal(1, 2, reports)
    query.batch(query.run(), 2, two_lanes("ef", 2))
    assert query.values() == list("abcdef")


# --- offsets ----------------------------------------------------------------------------------------------------


@dataclass
class Busy:
    """A query that sealed a batch without rows every second, until what the others had was forgotten."""

    query: QueryCalls
    run: QueryRun
    batch: int = 1

    def go_on(self) -> None:
        # Partition 2 is left out: what nobody commits again is forgotten.
        self.query.batch(self.run, self.batch, [[], []], log_offsets=dict.fromkeys(PLACES[:2], 1))
        self.batch += 1


@pytest.fixture(scope="module")
def stuck(brokers):
    """A batch of which lane 0 is committed, and lane 1 fails however often the query is started."""
    query, alive = written(brokers, "stuck")
    alive.open(1, 2)
    query.lane(alive, 1, two_lanes("cd", 1)[0], 0, 2)
    return query


@pytest.fixture(scope="module")
def aged(brokers, stuck, without_ids):
    """Queries that slept until brokers had forgotten their offsets too, and others that did not sleep."""
    assert without_ids, "they are written first, and their tests need their offsets"
    busy = Busy(*written(brokers, "busy"))
    asleep = {"stopped": written(brokers, "stopped"), "alive": written(brokers, "alive")}

    def forgotten() -> bool:
        brokers.later(1)
        busy.go_on()
        stuck.run().open(1, 2)
        return not any(query.ledger.query() for query, _ in asleep.values())

    until(forgotten, 120)
    return asleep | {"busy": busy}


def test_offsets_forgotten_of_a_query_that_did_not_run_are_refused_and_started_anew_when_asked(aged):
    query, _ = aged["stopped"]
    with pytest.raises(LedgerLost, match=r"offsets expired.*on\.missing\.ledger=start"):
        query.batch(query.run(), 1, two_lanes("cd", 1))
    query.batch(query.run(may_start=True), 1, two_lanes("cd", 1))
    query.batch(query.run(), 2, two_lanes("ef", 2))
    assert query.values() == list("abcdef")


def test_a_run_sleeps_as_long_as_it_likes(aged):
    query, alive = aged["alive"]
    query.batch(alive, 1, two_lanes("cd", 1))
    query.batch(query.run(), 2, two_lanes("ef", 2))
    assert query.values() == list("abcdef")


def test_an_idle_source_partition_keeps_its_offset_while_the_query_runs(aged):
    assert aged["busy"].query.ledger.offsets(PLACES) == {(SOURCE, 0): 1, (SOURCE, 1): 1, (SOURCE, 2): 0}


def test_a_lanes_row_forgotten_before_the_querys_costs_and_doubles_nothing(aged):
    busy = aged["busy"]
    query, batch = busy.query, busy.batch
    view = query.ledger.view(stable=True)
    assert (view.query.next_batch, view.lanes) == (batch, {})
    busy.run.open(batch, 2, BatchLog("content"))
    query.lane(busy.run, batch, two_lanes("cd", 1)[0], 0, 2, content="content")
    reports = query.batch(query.run(), batch, two_lanes("cd", 1))
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    assert query.values() == list("abcd")


@pytest.mark.usefixtures("aged")
def test_a_half_committed_batch_is_known_as_long_as_the_query_is_started_now_and_then(stuck):
    """Each start renews the query's row; were the lane's forgotten meanwhile, its rows would be written twice."""
    reports = stuck.batch(stuck.run(), 1, two_lanes("cd", 1), content=None)
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    assert stuck.values() == list("abcd")
