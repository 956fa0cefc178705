"""A stream on a topic of its own."""

from __future__ import annotations

import pytest
from spark_pipe import WAYS
from spark_source import Source


@pytest.fixture
def source(kafka, topic) -> Source:
    return Source(kafka.bootstrap_servers, [topic(2)])


@pytest.fixture(params=WAYS)
def either(pipe, request):
    """A query from topic to topic, written each way; by foreachBatch in `make test-large`."""
    pipe.way = request.param
    return pipe


@pytest.fixture(params=["foreachBatch", "format"])
def both(pipe, request):
    """The same, always each way."""
    pipe.way = request.param
    return pipe
