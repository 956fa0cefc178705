"""An answer that never comes costs a lane one wait, and not its attempt."""

from __future__ import annotations

import pytest
from proxy import Api, Effect
from tests_support import Query, before_commits, rows_of

from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.config import producer_settings
from spark_eos.protocol.transaction import Outcome


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.INIT_PRODUCER_ID, Api.END_TXN, Api.TXN_OFFSET_COMMIT])
def test_a_lane_asks_again_and_commits(proxied, proxy, query_id, api):
    kafka, _ = proxied
    kafka.create_topic(query_id)
    # With librdkafka's own time-outs, an attempt that lost the answer to its Produce or its TxnOffsetCommit fails.
    query = Query(kafka.bootstrap_servers, query_id, query_id, client={"transaction.timeout.ms": "6000"})
    run = query.run()
    run.open(0, 1)
    lost = proxy.arm(api, Effect.DROP_ANSWER, containing=f"{query_id}-0".encode())
    assert query.lane(run, 0, [rows_of("ab")]).outcome is Outcome.COMMITTED
    assert lost.over
    assert query.values() == ["a", "b"]


def test_a_row_that_comes_late_does_not_replace_the_next_seals(proxied, proxy, query_id):
    """The client gives up the first TxnOffsetCommit and sends another; the first one lands in the next transaction."""
    kafka, _ = proxied
    kafka.create_topic(query_id)
    query = Query(kafka.bootstrap_servers, query_id, query_id, client={"transaction.timeout.ms": "6000"})
    late = []
    query.open = before_commits(query.open, lambda: [each.wait(20) for each in late])
    run = query.run()
    run.open(0, 1)
    reports = [query.lane(run, 0, [rows_of("a")])]
    first = proxy.arm(Api.TXN_OFFSET_COMMIT, Effect.DELAY, seconds=4, containing=f"{query_id}-driver".encode())
    run.seal(0, 1, reports)
    assert not first.over, "it came before the transaction that it was to hit"
    late.append(first)
    query.batch(run, 1, [[rows_of("b")]])
    assert query.ledger.query().next_batch == 2


def test_a_topic_is_looked_up_again_when_the_broker_that_was_asked_goes_away(proxied, proxy, query_id):
    kafka, _ = proxied
    kafka.create_topic(query_id)
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    assert cluster.partitions([query_id]) == {query_id: 1}
    lost = proxy.arm(Api.METADATA, Effect.RESET)
    assert cluster.partitions([query_id]) == {query_id: 1}
    assert lost.over


def test_an_answer_is_lost_before_the_transaction_is():
    def lost_after(**client: str) -> str:
        return producer_settings({name.replace("_", "."): value for name, value in client.items()}, "id", 1)[
            "socket.timeout.ms"
        ]

    assert lost_after() == "10000"
    assert lost_after(transaction_timeout_ms="900000") == "10000"
    assert lost_after(transaction_timeout_ms="6000") == "2000"
    assert lost_after(socket_timeout_ms="60000") == "60000"
