"""A query from topic to topic."""

from __future__ import annotations

import pytest
from spark_pipe import Pipe


@pytest.fixture
def pipe(spark, kafka, topic, query_id, tmp_path) -> Pipe:
    source, target = topic(3, name="in"), topic(2, name="out")
    return Pipe(spark, kafka.bootstrap_servers, query_id, source, target, tmp_path / "checkpoint")
