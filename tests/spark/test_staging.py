"""`stage.rows` in a streaming query: rows that take longer to compute than a transaction may be open."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from spark_pipe import Pipe

from spark_eos.testing import EmbeddedKafka

SECOND_AT_MOST = {"kafka.transaction.timeout.ms": "1000"}  # the client's minimum
# Half of what six rows of a second take. A busy machine needs up to a second for a transaction that only writes them.
STAGED = {"stage.rows": "disk", "kafka.transaction.timeout.ms": "3000"}


@pytest.fixture
def pipe(spark, query_id, tmp_path):
    # By default a broker looks for transactions that are open too long every 10 s.
    with EmbeddedKafka(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as broker:
        for name in ("in", "out"):
            broker.create_topic(name)
        yield Pipe(spark, broker.bootstrap_servers, query_id, "in", "out", tmp_path / "checkpoint", SECOND_AT_MOST)


@pytest.fixture
def a_row_a_batch(spark):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("a_row_a_batch")
def test_a_lane_may_take_longer_to_compute_than_its_transaction_may_be_open(pipe):
    # Larger than the buffer that Spark fills before it hands rows over.
    values = [f"{letter}{'.' * 200_000}" for letter in "abcdef"]
    pipe.feed(values)

    def slow(row_s: float) -> DataFrame:
        def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(row_s)
                yield batch

        return pipe.rows().mapInArrow(slowly, pipe.rows().schema)

    with pytest.raises(PySparkException, match="TransactionTooLong"):
        pipe.run(slow(0.5))
    assert pipe.values() == []
    pipe.run(slow(1), pipe.sink(**STAGED))
    assert pipe.values() == values
