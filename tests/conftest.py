"""One real broker and one real Spark for the whole test run, and topics that no two tests share."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import class_archives
import pytest

if TYPE_CHECKING:
    from spark_pipe import Pipe

# Nothing may listen beyond loopback.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ |= class_archives.environment(Path(sys.prefix) / "class-archives")


@pytest.fixture(scope="session", autouse=True)
def worker_python(tmp_path_factory) -> Iterator[None]:
    """Spark's workers start quickly."""
    from spark_eos.testing import worker_python

    os.environ["PYSPARK_PYTHON"] = str(worker_python(tmp_path_factory.mktemp("python")))
    yield
    del os.environ["PYSPARK_PYTHON"]


@pytest.fixture(scope="session")
def kafka():
    from spark_eos.testing import EmbeddedKafka

    # Some tests write records of years ago: the broker would delete them the next time it looks.
    config = {"transaction.max.timeout.ms": "120000", "log.retention.ms": "-1"}
    with EmbeddedKafka(config=config) as broker:
        yield broker


@pytest.fixture
def topic(kafka) -> Callable[..., str]:
    """Makes a topic with a name of its own: `topic(partitions=1, config=None, name=None)`."""

    def make(partitions: int = 1, config: dict[str, str] | None = None, name: str | None = None) -> str:
        unique = f"{name or 'topic'}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(unique, partitions=partitions, config=config or {})
        return unique

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory, request) -> Iterator[object]:
    from pyspark.sql import SparkSession
    from quick_spark import QUICK

    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    builder = (
        SparkSession.builder.master("local[2,4]")
        .appName("spark-eos tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config(map=QUICK)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
    )
    if any(item.get_closest_marker("delta") for item in request.session.items):  # it costs all others a fifth more
        from job_session import with_delta

        builder = with_delta(builder)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def query_id() -> str:
    return f"query-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pipe(spark, kafka, topic, query_id, tmp_path) -> Pipe:
    """A query from topic to topic."""
    from spark_pipe import Pipe

    source, target = topic(3, name="in"), topic(2, name="out")
    return Pipe(spark, kafka.bootstrap_servers, query_id, source, target, tmp_path / "checkpoint")
