"""Batch queries: `spark.read.format("kafka-eos")`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark_source import Source


def values(spark: SparkSession, source: Source, **options: str) -> list[str]:
    rows = source.but(**options).batch(spark).orderBy("partition", "offset").select(F.col("value").cast("string"))
    return [row.value for row in rows.collect()]


def failure(spark: SparkSession, source: Source, **options: str) -> str:
    with pytest.raises(AnalysisException) as caught:
        values(spark, source, **options)
    return str(caught.value)


def each(source: Source, **offsets: int) -> str:
    return json.dumps({source.topics[0]: {name[1:]: offset for name, offset in offsets.items()}})


def test_everything_that_is_committed_and_nothing_else(spark: SparkSession, source: Source) -> None:
    assert values(spark, source) == []
    source.write("a", "b")
    source.write("never", commit=False)
    source.write("c", partition=1)
    assert values(spark, source) == ["a", "b", "c"]
    with source.open_transaction("not yet"):
        assert values(spark, source) == ["a", "b", "c"]
        told = failure(spark, source, endingOffsets=each(source, p0=6, p1=2))
    assert "partition 0 is to be read up to offset 6, and its last stable offset is 5 (high watermark 6)" in told


def test_a_part_of_it(spark: SparkSession, source: Source) -> None:
    source.plain(*"abcdef")
    source.plain(*"uvw", partition=1)
    start, end = each(source, p0=2, p1=-2), each(source, p0=4, p1=-1)
    assert values(spark, source, startingOffsets=start, endingOffsets=end) == ["c", "d", "u", "v", "w"]
    later = each(source, p0=5, p1=0)
    told = failure(spark, source, startingOffsets=later, endingOffsets=each(source, p0=4, p1=3))
    assert "startingOffsets (5) is after endingOffsets (4)" in told
    told = failure(spark, source, startingOffsets=later, endingTimestamp="0")
    assert "partition 0: startingOffsets (offset 5) is after endingTimestamp (offset 0)" in told


def test_two_tasks_read_one_partition_and_one_task_reads_two(spark: SparkSession, source: Source) -> None:
    source.plain(*"abcdef")
    source.plain("u", partition=1)

    def tasks(**options: str) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        rows = source.but(**options).batch(spark).select(F.spark_partition_id(), F.col("value").cast("string"))
        for task, value in rows.collect():
            found.setdefault(task, []).append(value)
        return [found[task] for task in sorted(found)]

    assert tasks() == [list("abcdef"), ["u"]]
    assert tasks(minPartitions="3") == [list("abc"), list("def"), ["u"]]
    assert tasks(maxPartitions="1") == [list("abcdefu")]


def test_records_that_are_gone(spark: SparkSession, source: Source) -> None:
    source.plain(*"abcd")
    source.delete_before(2)
    start = each(source, p0=1, p1=0)
    assert "to be read from offset 1, starts at 2 (deleted by retention)" in failure(
        spark, source, startingOffsets=start
    )
    assert values(spark, source, startingOffsets=start, failOnDataLoss="false") == ["c", "d"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"maxOffsetsPerTrigger": "3"}, "OptionError: option maxOffsetsPerTrigger can't be used: it is for streams"),
        ({"startingOffsets": "latest"}, "a batch query can't start at latest"),
        ({"subscribe": "no-such-topic"}, "TopicMissing: topic no-such-topic does not exist"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "BrokerUnreachable"),
    ],
)
def test_bad_input(spark: SparkSession, source: Source, options: dict[str, Any], told: str) -> None:
    assert told in failure(spark, source, **options)
