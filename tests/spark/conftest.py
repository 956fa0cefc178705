"""A stream on a topic of its own."""

from __future__ import annotations

import pytest
from spark_source import Source


@pytest.fixture
def source(kafka, topic) -> Source:
    return Source(kafka.bootstrap_servers, [topic(2)])
