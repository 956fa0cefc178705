"""The format kafka-eos in Spark: every committed record once, in the same place when a batch is done again."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, StructType

from spark_eos.errors import DataLoss, OptionError, SchemaError, TopicMissing
from spark_eos.kafka.reader import Listing, arrow_schema
from spark_eos.source_options import SourceOptions
from spark_eos.spark.register import register, source_position
from spark_eos.spark.source import KafkaEosDataSource, KafkaEosStreamReader, RangePartition, source_schema

ALL = ReadAllAvailable()
Values = dict[int, list[tuple[int, str]]]


@dataclass
class Source:
    """A stream on some topics, and the means to write to them."""

    bootstrap: str
    topics: list[str]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": ",".join(self.topics)}
        return {**servers, "startingOffsets": "earliest", **self.options}

    def but(self, **options: str) -> Source:
        return Source(self.bootstrap, self.topics, self.options | options)

    def reader(self) -> KafkaEosStreamReader:
        """What Spark's driver talks to, without Spark."""
        return KafkaEosStreamReader(SourceOptions.of(self.given))

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("kafka-eos").options(**self.given).load()

    def write(self, *values: str, partition: int = 0, commit: bool = True, **columns: Any) -> None:
        """One transaction with these records in the first topic."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.topics[0]}-{values[0]}"})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topics[0], value, partition=partition, **columns)
        producer.flush(10)
        producer.commit_transaction(10) if commit else producer.abort_transaction(10)
        while self.stable_end(partition) < self.high_watermark(partition):
            pass  # the coordinator answers before it has written the markers to the partitions

    def plain(self, *values: str, partition: int = 0) -> None:
        """Records without a transaction: offsets without gaps."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.topics[0], value, partition=partition)
        producer.flush(10)

    def stable_end(self, partition: int) -> int:
        bounds = Listing({"bootstrap.servers": self.bootstrap}, self.topics).bounds({})
        return bounds[self.topics[0], partition].end

    def high_watermark(self, partition: int) -> int:
        asked = TopicPartition(self.topics[0], partition)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return admin.list_offsets({asked: OffsetSpec.latest()})[asked].result(10).offset

    def delete_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(self.topics[0], 0, offset)]).values():
            future.result(10)

    def widen(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_partitions([NewPartitions(self.topics[0], partitions)]).values():
            future.result(10)


@pytest.fixture
def source(kafka, topic: Callable[..., str]) -> Source:
    return Source(kafka.bootstrap_servers, [topic(2)])


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
    query = writing.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
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
    for headers in (False, True):
        schema = source_schema(headers=headers)
        assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(headers=headers), check_metadata=True)


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
    stream.withColumn("source", source_position()).writeStream.format("parquet").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
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
        latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    finally:
        query.stop()
    assert seen == ["a", "b"]
    assert latest == {source.topics[0]: {"0": 1, "1": 0, "2": 1}}


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
    with pytest.raises(AnalysisException, match=r"kafka\.group\.id is reserved"):
        source.but(**{"kafka.group.id": "g"}).stream(spark)
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


# --- Planning, without Spark ---


def test_only_the_options_travel_into_tasks(source: Source) -> None:
    source.plain("a")
    reader = source.reader()
    start = reader.initialOffset()
    again = pickle.loads(pickle.dumps(reader))
    assert again.__dict__ == source.reader().__dict__
    (part,) = _plan(again, start, reader.reportLatestOffset())
    assert [batch.column("value").to_pylist() for batch in again.read(part)] == [[b"a"]]


def _plan(reader: KafkaEosStreamReader, start: Any, end: Any) -> list[RangePartition]:
    """Ranges as Spark plans them: offsets arrive as JSON."""
    start, end = (json.loads(json.dumps(each)) for each in (start, end))
    found = list(reader.partitions(start, end))
    assert pickle.loads(pickle.dumps(found))[0].wanted == found[0].wanted if found else True
    return found


def _ranges(reader: KafkaEosStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    plan = _plan(reader, start, end)
    return [(each.wanted.partition, each.wanted.start, each.wanted.end) for each in plan]


def test_the_limit_is_the_option_unless_spark_gives_another(source: Source) -> None:
    source.plain(*"abcd")
    reader = source.but(maxOffsetsPerTrigger="2").reader()
    assert source.reader().getDefaultReadLimit() == ALL
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(2)) == start  # batch 0
    assert reader.latestOffset(start, ReadMaxRows(2)) == {source.topics[0]: {"0": 2, "1": 0}}
    assert reader.latestOffset(start, ALL) == {source.topics[0]: {"0": 4, "1": 0}}
    assert reader.reportLatestOffset() == {source.topics[0]: {"0": 4, "1": 0}}


def test_batch_0_is_empty_also_when_it_is_done_again(source: Source) -> None:
    reader = source.reader()
    start = reader.initialOffset()
    assert (reader.latestOffset(start, ALL), _ranges(reader, start, start)) == (start, [])
    source.plain("a")
    restarted = source.but(startingOffsets="latest").reader()
    later = restarted.initialOffset()
    assert later != start
    for _ in range(2):  # a foreachBatch function may plan several times
        assert _ranges(restarted, later, start) == []
    end = restarted.latestOffset(start, ALL)
    assert _ranges(restarted, start, end) == [(0, 0, 1)]


def test_batch_1_is_not_taken_for_batch_0(source: Source) -> None:
    source.plain("a")
    for planned_first in (False, True):
        reader = source.reader()
        start = reader.initialOffset()
        if not planned_first:
            assert reader.latestOffset(start, ALL) == start
        assert _ranges(reader, start, start) == []
        end = reader.latestOffset(start, ALL)
        assert end != start
        assert _ranges(reader, start, end) == [(0, 0, 1)]


def test_available_now_ends_where_it_was_fixed(source: Source) -> None:
    source.plain("a")
    reader = source.but(startingOffsets="latest").reader()
    reader.prepareForTriggerAvailableNow()
    source.plain("later")
    source.widen(3)
    start = reader.initialOffset()
    assert start == {source.topics[0]: {"0": 1, "1": 0, "2": 0}}
    reader.latestOffset(start, ALL)
    assert reader.latestOffset({source.topics[0]: {"0": 0, "1": 0}}, ALL) == {source.topics[0]: {"0": 1, "1": 0}}


def test_starting_offsets_by_partition(source: Source) -> None:
    name = source.topics[0]
    source.plain(*"abcd")
    source.delete_before(1)
    given = json.dumps({name: {"0": -2, "1": -1}})
    assert source.but(startingOffsets=given).reader().initialOffset() == {name: {"0": 1, "1": 0}}
    given = json.dumps({name: {"0": 3, "1": 0}})
    assert source.but(startingOffsets=given).reader().initialOffset() == {name: {"0": 3, "1": 0}}
    with pytest.raises(OptionError, match="names the partitions"):
        source.but(startingOffsets=json.dumps({name: {"0": 3}})).reader().initialOffset()
    gone = source.but(startingOffsets=json.dumps({name: {"0": 0, "1": 5}}))
    with pytest.raises(DataLoss, match=r"partition 0.*starts at 1.*partition 1.*ends at 0"):
        gone.reader().initialOffset()
    assert gone.but(failOnDataLoss="false").reader().initialOffset() == {name: {"0": 1, "1": 0}}


def test_a_topic_that_was_created_again_is_data_loss(kafka, source: Source, caplog: pytest.LogCaptureFixture) -> None:
    name = source.topics[0]
    start = {name: {"0": 3, "1": 0}}
    kafka.delete_topic(name)
    with pytest.raises(DataLoss, match="is gone"):
        source.reader().latestOffset(start, ALL)
    assert source.but(failOnDataLoss="false").reader().latestOffset(start, ALL) == {}
    kafka.create_topic(name, partitions=2)
    source.plain("a")
    with pytest.raises(DataLoss, match=r"to be read from offset 3, ends at 1 \(deleted and created again"):
        source.reader().latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING):
        reader = source.but(failOnDataLoss="false").reader()
        end = reader.latestOffset(start, ALL)
    assert end == {name: {"0": 1, "1": 0}}
    assert _ranges(reader, start, end) == []
    assert "records are passed over" in caplog.text


def test_a_topic_that_was_never_there_is_no_data_loss(source: Source) -> None:
    both = Source(source.bootstrap, [*source.topics, "no-such-topic"])
    with pytest.raises(TopicMissing, match="no-such-topic"):
        both.reader().latestOffset({source.topics[0]: {"0": 0, "1": 0}}, ALL)


def test_a_batch_done_again_whose_records_are_gone_is_data_loss(source: Source) -> None:
    name = source.topics[0]
    source.plain(*"abcd")
    source.delete_before(2)
    plan = ({name: {"0": 1, "1": 0}}, {name: {"0": 4, "1": 0}})
    with pytest.raises(DataLoss, match="to be read from offset 1, starts at 2"):
        source.reader().partitions(*plan)
    beyond = ({name: {"0": 3, "1": 0}}, {name: {"0": 9, "1": 0}})
    with pytest.raises(DataLoss, match="ends at 4"):
        source.reader().partitions(*beyond)
    reader = source.but(failOnDataLoss="false").reader()
    (part,) = _plan(reader, *plan)
    assert [batch.column("value").to_pylist() for batch in reader.read(part)] == [[b"c", b"d"]]
