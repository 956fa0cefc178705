"""A query, and a log, on the real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from copy_program import Copy
from kafka_log import Log
from proxy import Proxy, proxied_kafka
from tests_support import Query

from spark_eos.testing import EmbeddedKafka


@pytest.fixture
def query(kafka, topic, query_id) -> Query:
    return Query(kafka.bootstrap_servers, query_id, topic(3, name="out"))


@pytest.fixture
def log(kafka, topic) -> Log:
    """A topic with one partition."""
    return Log(kafka.bootstrap_servers, topic())


@pytest.fixture
def copy(kafka, topic) -> Copy:
    """Its input has records, its outputs are empty."""
    made = Copy(kafka.bootstrap_servers, topic(2, name="in"), (topic(2, name="a"), topic(2, name="b")))
    made.write(made.rows, made.source)
    return made


@pytest.fixture(scope="session")
def proxied() -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A broker of its own, which clients reach through a proxy."""
    with proxied_kafka() as pair:
        yield pair


@pytest.fixture
def proxy(proxied) -> Proxy:
    """With nothing armed."""
    proxied[1].disarm()
    return proxied[1]
