"""Spark 4.1, which tells a source neither where a batch starts nor its limit: see `spark_eos.spark.versions`.

The reader is asked here as Spark 4.1 does it, whichever Spark runs; the last test asks the Spark that runs.
"""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from spark_source import Source

from spark_eos.spark.source import KafkaEosDataSource, source_schema
from spark_eos.spark.stream_reader import KafkaEosStreamReader
from spark_eos.spark.versions import SPARK_41, Spark41StreamReader

SCHEMA: StructType = source_schema(headers=False)


def reader(source: Source, **options: str) -> Spark41StreamReader:
    return Spark41StreamReader(source.but(**options).reader())


def logged(offsets: Any) -> Any:
    """As it comes back from the checkpoint."""
    return json.loads(json.dumps(offsets))


def next_end(asked: Spark41StreamReader, source: Source) -> int:
    """Of partition 0."""
    return asked.latestOffset()[source.topics[0]]["0"]


def restarted(source: Source, start: Any, end: Any, *, again: bool, **options: str) -> Spark41StreamReader:
    """A reader that is told, as Spark 4.1 does it, where the checkpoint ends.

    Args:
        source: what is read.
        start: of the last batch; None for batch 0, whose start is asked for again.
        end: of the last batch.
        again: whether it was not committed, and is done again.
    """
    found = reader(source, **options)
    assert found.partitions(end, end) == []
    if again:
        found.partitions(start or found.initialOffset(), end)
    return found


def test_each_spark_gets_the_reader_that_it_knows_how_to_ask(source: Source) -> None:
    found = KafkaEosDataSource(source.given).streamReader(SCHEMA)
    assert type(found) is (Spark41StreamReader if SPARK_41 else KafkaEosStreamReader)
    assert pickle.loads(pickle.dumps(reader(source))).initialOffset() == found.initialOffset()


def test_a_batch_starts_where_the_last_one_ended(source: Source) -> None:
    source.plain(*"abcde")
    asked = reader(source, maxOffsetsPerTrigger="2")
    assert asked.latestOffset() == asked.initialOffset()  # batch 0 is empty
    assert [next_end(asked, source) for _ in range(4)] == [2, 4, 5, 5]
    source.plain("f")
    assert next_end(asked, source) == 6


def test_a_restarted_query_goes_on_from_its_checkpoint(source: Source) -> None:
    source.plain(*"abcde")
    before = reader(source, maxOffsetsPerTrigger="2")
    batch_0, first, second = (logged(before.latestOffset()) for _ in range(3))
    for again in (False, True):
        # startingOffsets are of no interest any more.
        gone = {"startingOffsets": json.dumps({source.topics[0]: {"0": 99, "1": 99}})}
        asked = restarted(source, first, second, again=again, maxOffsetsPerTrigger="1", **gone)
        assert [next_end(asked, source) for _ in range(2)] == [5, 5]
        asked = restarted(source, None, batch_0, again=again, startingOffsets="latest")
        assert next_end(asked, source) == 5


def test_few_offsets_are_waited_for(source: Source) -> None:
    source.plain("a")
    asked = reader(source, minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    asked.latestOffset()  # batch 0
    assert next_end(asked, source) == 1  # a run's first batch does not wait
    source.plain("b")
    assert next_end(asked, source) == 1
    source.plain("c", "d")
    assert next_end(asked, source) == 4


def test_what_a_single_batch_leaves_is_told_once_a_run(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    source.plain(*"abcde")
    asked = reader(source, maxOffsetsPerTrigger="2")
    for _ in range(3):
        asked.latestOffset()
    (told,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "5 offsets are left after this run's first batch; Spark 4.1 runs no second one with trigger(av" in told
    caplog.clear()
    start = asked.initialOffset()
    assert next_end(restarted(source, None, start, again=False), source) == 5
    reader(source, startingOffsets="latest").latestOffset()
    assert caplog.text == ""


def test_available_now_is_one_batch_in_spark_41_and_all_of_them_in_42(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.plain(*"abc")
    seen: list[list[bytes]] = []
    stream = source.but(maxOffsetsPerTrigger="2").stream(spark)
    writer = stream.writeStream.foreachBatch(lambda df, _: seen.append([bytes(row.value) for row in df.collect()]))
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    after_each_run = []
    for _ in range(4):
        assert writer.start().awaitTermination(60)
        after_each_run.append(len(seen))
    assert seen == [[], [b"a", b"b"], [b"c"]]
    assert after_each_run == ([1, 2, 3, 3] if SPARK_41 else [3, 3, 3, 3])
