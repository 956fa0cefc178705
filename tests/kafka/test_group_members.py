"""A live consumer in the sink's group: it overwrites the source offsets that the sink commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from kafka_log import until
from tests_support import Query, rows_of

from spark_eos.errors import OtherCheckpoint
from spark_eos.protocol.batch import BatchLog


@pytest.fixture
def source(topic) -> str:
    return topic(name="in")


@pytest.fixture
def query(kafka, topic, query_id) -> Query:
    return Query(kafka.bootstrap_servers, query_id, topic(name="out"))


@pytest.fixture
def consumer(query, source) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": query.bootstrap, "group.id": query.query, "auto.offset.reset": "earliest"}
    found = Consumer(settings)
    found.subscribe([source])
    until(lambda: found.poll(0.1) is None and bool(found.assignment()), 30)
    yield found
    found.close()


def test_it_is_told_and_nothing_is_adopted_while_it_is_there(query, source, consumer, caplog):
    with caplog.at_level(logging.WARNING, "spark_eos.sink"):
        query.batch(query.run(), 0, [[rows_of("ab", (source, 0, 0))]], log_offsets={(source, 0): 2})
    assert "its consumer group has 1 members" in caplog.text
    assert query.ledger.members() == 1
    log = BatchLog("new", ends={(source, 0): 0})
    with pytest.raises(OtherCheckpoint, match="1 members, so another program commits") as raised:
        query.run("adopter", "new", may_adopt=True).open(0, 1, log)
    assert "group.id of its own" in raised.value.do
    consumer.close()
    until(lambda: query.ledger.members() == 0, 30)
    assert not query.run("adopter", "new", may_adopt=True).open(0, 1, log).skip
