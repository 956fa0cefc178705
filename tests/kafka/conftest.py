"""A query on the real broker, without Spark."""

from __future__ import annotations

import pytest
from tests_support import Query


@pytest.fixture
def query(kafka, topic, query_id) -> Query:
    return Query(kafka.bootstrap_servers, query_id, topic(3, name="out"))
