"""A query, and a log, on the real broker, without Spark."""

from __future__ import annotations

import pytest
from kafka_log import Log
from tests_support import Query


@pytest.fixture
def query(kafka, topic, query_id) -> Query:
    return Query(kafka.bootstrap_servers, query_id, topic(3, name="out"))


@pytest.fixture
def log(kafka, topic) -> Log:
    """A topic with one partition."""
    return Log(kafka.bootstrap_servers, topic())
