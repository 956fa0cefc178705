"""What a plain client sees of each effect of the proxy, and what the broker has done."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from proxy import Api, Effect
from tests_support import committed_values

QUIET = {"enable.sparse.connections": "false", "log_level": 0}


@pytest.fixture
def bootstrap(proxied) -> str:
    return proxied[0].bootstrap_servers


@pytest.fixture
def out(proxied, query_id) -> str:
    proxied[0].create_topic(query_id)
    return query_id


@pytest.fixture
def opened(bootstrap, out):
    """Makes a producer whose transaction holds one row: `opened(value)`."""

    def make(value: str) -> Producer:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": out, **QUIET})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(out, value)
        producer.flush(30)
        return producer

    return make


def sent_once(bootstrap, topic) -> list[str | None]:
    """What deliveries end with that nobody tries again, and whose broker does not know doubles."""
    ends: list[str | None] = []
    settings = {"bootstrap.servers": bootstrap, "retries": 0, "message.timeout.ms": 3000, "log_level": 0}
    producer = Producer({**settings, "on_delivery": lambda error, _: ends.append(error and error.name())})
    producer.produce(topic, "a")
    producer.flush(30)
    return ends


def test_without_a_fault_everything_passes(bootstrap, proxy, opened, out):
    armed = proxy.arm(Api.END_TXN, Effect.RESET, containing=b"somebody-else")
    opened("a").commit_transaction(30)
    assert committed_values(bootstrap, out) == [b"a"]
    assert (armed.hits, armed.over) == ([], False)
    with pytest.raises(TimeoutError, match="somebody-else"):
        armed.wait(0.1)


def test_a_dropped_answer_leaves_the_client_waiting_for_what_was_done(bootstrap, proxy, opened, out):
    armed = proxy.arm(Api.END_TXN, Effect.DROP_ANSWER, containing=out.encode())
    with pytest.raises(KafkaException, match="Timed out"):
        opened("a").commit_transaction(2)
    assert armed.over
    assert committed_values(bootstrap, out) == [b"a"]


def test_a_delayed_commit_lands_though_its_sender_has_gone(bootstrap, proxy, opened, out):
    armed = proxy.arm(Api.END_TXN, Effect.DELAY, seconds=3, containing=out.encode())
    with pytest.raises(KafkaException, match="Timed out"):
        opened("a").commit_transaction(0.5)
    assert not armed.over
    hit = armed.wait(10)
    assert hit.ended - hit.began >= 3
    assert committed_values(bootstrap, out) == [b"a"]


def test_a_delayed_commit_lands_after_a_fence_and_is_refused(bootstrap, proxy, opened, out):
    armed = proxy.arm(Api.END_TXN, Effect.DELAY, seconds=3, containing=out.encode())
    with pytest.raises(KafkaException, match="Timed out"):
        opened("a").commit_transaction(0.5)
    successor = opened("b")
    assert not armed.over
    armed.wait(10)
    successor.commit_transaction(30)
    assert committed_values(bootstrap, out) == [b"b"]


def test_a_duplicate_reaches_the_broker_twice(bootstrap, proxy, out):
    armed = proxy.arm(Api.PRODUCE, Effect.DUPLICATE)
    assert sent_once(bootstrap, out) == [None]
    armed.wait(10)
    assert committed_values(bootstrap, out) == [b"a", b"a"]


def test_an_idempotent_producers_duplicate_is_known(bootstrap, proxy, opened, out):
    armed = proxy.arm(Api.PRODUCE, Effect.DUPLICATE, containing=out.encode())
    opened("a").commit_transaction(30)
    armed.wait(10)
    assert committed_values(bootstrap, out) == [b"a"]


@pytest.mark.parametrize(("effect", "written"), [(Effect.RESET, [b"a"]), (Effect.RESET_BEFORE, [])])
def test_a_reset_comes_after_the_request_or_before(bootstrap, proxy, out, effect, written):
    armed = proxy.arm(Api.PRODUCE, effect)
    assert sent_once(bootstrap, out) == ["_TRANSPORT"]
    assert armed.over
    assert committed_values(bootstrap, out) == written


@pytest.mark.parametrize("effect", [Effect.RESET, Effect.RESET_BEFORE])
def test_the_client_survives_a_reset(bootstrap, proxy, opened, out, effect):
    armed = proxy.arm(Api.END_TXN, effect, times=2, containing=out.encode())
    opened("a").commit_transaction(30)
    assert len(armed.hits) == 2
    assert committed_values(bootstrap, out) == [b"a"]
