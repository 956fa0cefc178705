"""A query, and a log, on the real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
