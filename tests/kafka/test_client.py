"""The client itself: what only a real broker can refuse, and how the client's objects end."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests_support import rows_of

from spark_eos.errors import BrokerUnreachable, Fenced, RecordTooLarge, SparkEosError
from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.ledger import LaneLedger


def test_a_record_too_large_for_the_client_is_told_and_nothing_of_its_lane_is_seen(query):
    run = query.run()
    run.open(0, 1)
    with pytest.raises(RecordTooLarge, match=r"key null has 1100000 bytes.*message\.max\.bytes") as raised:
        query.lane(run, 0, [rows_of("ok"), rows_of(["a", "b" * 1_100_000])])
    assert raised.value.do
    assert (raised.value.query, raised.value.batch, raised.value.lane) == (query.query, 0, 0)
    assert query.values() == []
    assert query.ledger.view(stable=True).lanes == {}


def test_a_record_too_large_for_its_topic_is_told_with_key_size_and_limit(query, topic):
    small = topic(config={"max.message.bytes": "2000"})
    narrow = query.but(topic=small)
    run = narrow.run()
    run.open(0, 1)
    key = pa.array([b"k1", b"k2"], pa.binary())
    with pytest.raises(RecordTooLarge, match=r"key 'k2' has 5\d\d\d bytes.*2000 \(max\.message\.bytes"):
        narrow.lane(run, 0, [rows_of(["a", "b" * 5000], key=key)])
    assert narrow.values() == []


def test_no_client_is_in_a_reference_cycle(query):
    """The garbage collector would destroy it in any thread, the client's own among them: the process would die."""
    run = query.run()
    run.open(0, 1)
    query.lane(run, 0, [rows_of("a")])
    cluster, ledger = Cluster(query.factory.client), LaneLedger(query.factory.client, 1, "spark-eos-ledger", "any")
    cluster.brokers()
    ledger.query()
    with query.factory.open(f"{query.query}-99") as transaction:
        transaction.fence()
    gc.collect()
    gc.disable()
    try:
        gone = [weakref.ref(each) for each in (cluster, ledger, transaction)]
        del cluster, ledger, transaction
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()


def producers() -> list[Producer]:
    """Those that there are: of earlier tests, too."""
    return [each for each in gc.get_objects() if isinstance(each, Producer)]


def test_no_client_is_in_a_reference_cycle_after_an_error(query):
    nobody = query.but(client={"bootstrap.servers": "127.0.0.1:9"}, call_timeout_s=0.5)

    def fails():
        with nobody.factory.open("any-0") as transaction:
            transaction.fence()

    gc.collect()
    before = producers()
    gc.disable()
    try:
        with suppress(SparkEosError):
            fails()
        assert [each for each in producers() if each not in before] == []
    finally:
        gc.enable()


def test_no_client_outlives_the_error_that_fenced_it(query):
    """The client's module raises it in the middle of a delivery's callback, and keeps what Python makes of that."""

    def fails():
        with query.factory.open("any-0") as old, query.factory.open("any-0") as new:
            old.fence()
            old.begin()
            old.write(query.to_topic(rows_of("a")))
            old.flush()
            new.fence()
            old.write(query.to_topic(rows_of("bcdef", partition=pa.array([0, 1, 2, 0, 1], pa.int32()))))
            old.flush()

    gc.collect()
    before = producers()
    with suppress(Fenced):
        fails()
    gc.collect()
    assert [each for each in producers() if each not in before] == []


def test_brokers_that_do_not_answer_are_told_within_seconds():
    with pytest.raises(BrokerUnreachable, match=r"(?s)reaching the brokers.*Connect to ipv4#127\.0\.0\.1:9"):
        Cluster({"bootstrap.servers": "127.0.0.1:9"}).brokers()
