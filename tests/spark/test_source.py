"""The format kafka-eos in Spark: every committed record once, in the same place when a batch is done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructType
from spark_all import take_all
from spark_source import Source

from spark_eos.errors import SchemaError
from spark_eos.kafka.arrow import arrow_schema
from spark_eos.spark.register import register, source_position
from spark_eos.spark.source import KafkaEosDataSource, source_schema
from spark_eos.spark.versions import SPARK_41

Values = dict[int, list[tuple[int, str]]]


class Stop(Exception):
    """Ends a query in the middle of a batch, after its offsets are in the checkpoint and before it is committed."""


def drain(df: DataFrame, checkpoint: Path, fail_in: int | None = None) -> Values:
    """Batch to (Spark partition, value) of all that is available now."""
    seen: Values = {}

    def take(batch: DataFrame, number: int) -> None:
        rows = batch.select(F.spark_partition_id(), F.col("value").cast("string")).collect()
        seen[number] = [tuple(row) for row in rows]
        if number == fail_in:
            raise Stop

    writing = df.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    try:
        take_all(writing)
    except StreamingQueryException:
        if fail_in is None:
            raise
    return seen


def values(seen: Values) -> list[str]:
    return [value for batch in sorted(seen) for _, value in seen[batch]]


def failure_of(df: DataFrame, checkpoint: Path) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        drain(df, checkpoint)
    return str(caught.value)


# --- In Spark ---


def test_spark_finds_the_format_by_itself_and_registering_does_no_harm(spark: SparkSession, source: Source) -> None:
    fresh = spark.newSession()
    assert source.stream(fresh).isStreaming
    register(fresh)
    register(fresh)
    assert source.stream(fresh).isStreaming


def test_columns_are_those_of_sparks_source(spark: SparkSession, source: Source) -> None:
    found = source.but(includeHeaders="true").stream(spark).schema
    assert found.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert source.stream(spark).schema == found[:-1]
    in_utc = {} if SPARK_41 else {"timezone": "UTC"}
    for headers in (False, True):
        schema = source_schema(headers=headers)
        assert to_arrow_schema(schema, **in_utc).equals(arrow_schema(headers=headers), check_metadata=True)


def test_another_schema_is_refused(source: Source) -> None:
    with pytest.raises(SchemaError, match=r"not struct<a:int>"):
        KafkaEosDataSource(source.given).streamReader(StructType().add("a", IntegerType()))


def test_committed_records_arrive_as_they_are_and_aborted_ones_never(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    columns = {"key": "k", "headers": [("h", b"1"), ("h", None)], "timestamp": 1_700_000_000_123}
    source.write("a", **columns)
    source.write("never", commit=False)
    source.write("b")
    stream = source.but(includeHeaders="true").stream(spark)
    writing = stream.withColumn("source", source_position()).writeStream.format("parquet")
    take_all(writing.options(checkpointLocation=str(tmp_path / "checkpoint"), path=str(tmp_path / "out")))
    found = spark.read.parquet(str(tmp_path / "out"))
    expected = spark.sql(
        f"""
        SELECT CAST('k' AS BINARY) AS key, CAST('a' AS BINARY) AS value, '{source.topics[0]}' AS topic, 0 AS partition,
          0L AS offset, timestamp_millis(1700000000123) AS timestamp, 0 AS timestampType,
          array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)),
                named_struct('key', 'h', 'value', CAST(NULL AS BINARY))) AS headers
        """
    ).withColumn("source", F.struct("topic", "partition", "offset"))
    assert_df_equality(found.where("offset = 0"), expected, ignore_nullable=True)
    (other,) = found.where("offset > 0").collect()
    assert (other.key, other.value, other.offset, other.headers) == (None, b"b", 4, None)


def test_each_record_arrives_once_over_restarts(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    stream = source.but(maxOffsetsPerTrigger="4").stream(spark)
    source.plain(*"abcdef")
    source.plain("u", "v", partition=1)
    first = drain(stream, tmp_path, fail_in=2)
    source.plain("g")
    second = drain(stream, tmp_path)
    # Offsets in proportion to the backlog, 6 to 2: batch 0 puts the starting offsets into the checkpoint.
    assert first == {0: [], 1: [(0, "a"), (0, "b"), (0, "c"), (1, "u")], 2: [(0, "d"), (0, "e"), (0, "f"), (1, "v")]}
    # Batch 2 is done again: same rows, same partitions.
    assert second == {2: first[2], 3: [(0, "g")]}
    source.write("h")
    source.write("never", commit=False)
    assert values(drain(stream, tmp_path)) == ["h"]


def test_a_first_batch_that_fails_does_not_move_the_start(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Spark asks for the starting offsets again when batch 0 is done again, and "latest" would be later then."""
    stream = source.but(startingOffsets="latest").stream(spark)
    source.plain("before")
    assert drain(stream, tmp_path, fail_in=0) == {0: []}
    source.plain("a", "b")
    assert values(drain(stream, tmp_path)) == ["a", "b"]


def test_new_partitions_are_read_from_their_start(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    seen: list[str] = []
    query = (
        source.stream(spark)
        .writeStream.foreachBatch(lambda df, _: seen.extend(row.value.decode() for row in df.collect()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        source.plain("a")
        query.processAllAvailable()
        source.widen(3)
        source.plain("b", partition=2)
        query.processAllAvailable()
        query.processAllAvailable()
        latest = json.loads(query.lastProgress.json)["sources"][0]["latestOffset"]
    finally:
        query.stop()
    assert seen == ["a", "b"]
    assert latest[source.topics[0]] == {"0": 1, "1": 0, "2": 1}
    assert ("lag" in latest) is not SPARK_41


def test_data_loss(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    stream = source.stream(spark)
    source.plain("a", "b")
    assert values(drain(stream, tmp_path)) == ["a", "b"]
    source.plain("c", "d", "e")
    source.delete_before(4)
    told = failure_of(stream, tmp_path)
    assert f"topic {source.topics[0]}, partition 0, to be read from offset 2, starts at 4" in told
    assert "failOnDataLoss" in told
    assert values(drain(source.but(failOnDataLoss="false").stream(spark), tmp_path)) == ["e"]


def test_what_is_wrong_is_said_in_the_querys_error(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.auto\.offset\.reset is reserved"):
        source.but(**{"kafka.auto.offset.reset": "latest"}).stream(spark)
    missing = Source(source.bootstrap, ["no-such-topic"]).stream(spark)
    assert "TopicMissing: topic no-such-topic does not exist" in failure_of(missing, tmp_path / "missing")
    nowhere = Source("127.0.0.1:1", ["a"]).stream(spark)
    told = failure_of(nowhere, tmp_path / "nowhere")
    assert "BrokerUnreachable" in told
    assert "kafka.bootstrap.servers" in told


def test_no_plan_shows_a_secret(spark: SparkSession, source: Source, capfd: pytest.CaptureFixture[str]) -> None:
    source.but(**{"kafka.sasl.password": "hunter2", "kafka.ssl.key.password": "hunter2"}).stream(spark).explain(True)
    shown = capfd.readouterr().out
    assert "kafka.sasl.password" in shown
    assert "hunter2" not in shown
