"""A broker that falls silent: a commit without an answer is never guessed at, and long-lived clients recover."""

from __future__ import annotations

import signal

import pytest
from frozen import broker_process, freeze
from tests_support import Query, rows_of

from spark_eos.errors import Unconfirmed
from spark_eos.kafka.listing import Listing
from spark_eos.protocol.transaction import Outcome, Step
from spark_eos.source_values import Subscription
from spark_eos.testing import EmbeddedKafka


@pytest.fixture(scope="module")
def own_kafka():
    with EmbeddedKafka() as broker:
        broker.create_topic("out")
        yield broker


def written_without_an_answer(query, run, silence):
    """A lane whose broker falls silent just before the commit."""

    def before_step(step):
        if step is Step.COMMIT:
            silence()

    with pytest.raises(Unconfirmed, match="Whether the transaction committed is not known") as raised:
        query.lane(run, 0, [rows_of("ab")], before_step=before_step)
    assert (raised.value.batch, raised.value.lane) == (0, 0)


def test_a_commit_that_the_broker_carried_out_after_all_is_skipped_by_the_next_attempt(own_kafka, query_id):
    query = Query(own_kafka.bootstrap_servers, query_id, "out", call_timeout_s=2)
    before = query.values()
    run = query.run()
    run.open(0, 1)
    broker = broker_process(own_kafka)
    try:
        written_without_an_answer(query, run, lambda: freeze(broker))
    finally:
        broker.send_signal(signal.SIGCONT)
    patient = query.but(call_timeout_s=30)
    assert patient.lane(run, 0, [rows_of("ab")]).outcome is Outcome.SKIPPED
    assert sorted(query.values()) == sorted([*before, "a", "b"])


def test_a_driver_that_lives_through_a_brokers_restart_can_still_ask_for_offsets(own_kafka):
    listing = Listing({"bootstrap.servers": own_kafka.bootstrap_servers}, Subscription(topics=("out",)))
    before = listing.holdings().bounds
    own_kafka.kill(0)
    own_kafka.restart(0)
    assert listing.holdings().bounds.keys() == before.keys()


def test_a_commit_that_was_asked_of_a_dead_broker_is_made_good_by_the_next_attempt(own_kafka, query_id):
    """As a rule it writes the rows again. But a client that is slow to go may still reach the restarted broker, and the
    commit of the first attempt counts (seen on a busy machine)."""
    query = Query(own_kafka.bootstrap_servers, query_id, "out", call_timeout_s=2)
    before = query.values()
    run = query.run()
    run.open(0, 1)
    written_without_an_answer(query, run, lambda: own_kafka.kill(0))
    own_kafka.restart(0)
    patient = query.but(call_timeout_s=30)
    assert patient.lane(run, 0, [rows_of("ab")]).outcome in (Outcome.COMMITTED, Outcome.SKIPPED)
    assert sorted(query.values()) == sorted([*before, "a", "b"])
