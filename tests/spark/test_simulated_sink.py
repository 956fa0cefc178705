"""A streaming query tested without a broker: SimulatedSink on SimulatedKafka."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from spark_eos.errors import OptionError, SchemaError, UnsupportedError
from spark_eos.testing import SimulatedKafka, SimulatedSink

SCHEMA = "topic string, partition int, offset bigint, value string"
PARTITIONS, ROWS = 2, 12


@pytest.fixture
def feed(tmp_path):
    """Files with records of a topic `in`, one for each partition and every four offsets."""
    folder = tmp_path / "in"
    folder.mkdir()
    for first in range(0, ROWS, 4):
        for partition in range(PARTITIONS):
            rows = [
                {"topic": "in", "partition": partition, "offset": at, "value": f"{partition}:{at}"}
                for at in range(first, first + 4)
            ]
            (folder / f"{first:03}-{partition}.json").write_text("\n".join(map(json.dumps, rows)))
    return folder


EXPECTED = sorted(f"{partition}:{at}" for partition in range(PARTITIONS) for at in range(ROWS))


@pytest.fixture
def start(spark, feed, tmp_path):
    """Runs a query over the files to its end: one micro-batch for each four offsets, a lane for each file."""

    def run(sink, columns=("value", "source")):
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", PARTITIONS).json(str(feed))
        source = F.struct("topic", "partition", "offset").alias("source")
        written = rows.select(F.col("value").alias("key"), "value", source).select(*columns)
        query = (
            written.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


def brokers(**settings) -> SimulatedKafka:
    kafka = SimulatedKafka(**settings)
    kafka.create_topic("in", PARTITIONS)
    kafka.create_topic("out", 3)
    return kafka


def options(**more: str) -> dict[str, str]:
    return {"query.id": "refunds", "topic": "out"} | {name.replace("_", "."): text for name, text in more.items()}


def values(kafka: SimulatedKafka, topic: str = "out") -> list[str]:
    return sorted(record.value.decode() for record in kafka.records(topic))


def test_a_query_writes_its_rows_and_commits_its_sources_offsets(start):
    kafka, reports = brokers(), []
    start(SimulatedSink(kafka, options(), on_batch=reports.append), ("key", "value", "source"))
    assert values(kafka) == EXPECTED
    assert kafka.committed("refunds") == {("in", partition): ROWS for partition in range(PARTITIONS)}
    assert [(report.batch, report.rows, report.outcomes) for report in reports] == [
        (batch, 8, {"committed": PARTITIONS}) for batch in range(3)
    ]
    placed = {record.value: record.partition for record in kafka.records("out")}
    assert len(set(placed.values())) == 3


def test_each_row_is_there_once_whatever_the_network_does_and_a_seed_tells_what_it_does(start, tmp_path):
    def run():
        kafka, failures = brokers(seed=4), 0
        while failures < 50:
            try:
                start(SimulatedSink(kafka, options(), attempts=1))
                break
            except StreamingQueryException:
                failures += 1
        kafka.settle()
        (tmp_path / "checkpoint").rename(tmp_path / f"done-{id(kafka)}")
        return kafka, failures

    kafka, failures = run()
    assert 0 < failures < 50
    assert values(kafka) == EXPECTED
    assert kafka.committed("refunds") == {("in", partition): ROWS for partition in range(PARTITIONS)}
    same, _ = run()
    assert same.network.log == kafka.network.log
    assert [same.dump("out", n) for n in range(3)] == [kafka.dump("out", n) for n in range(3)]
    assert same.journal() == kafka.journal()


def test_a_batch_that_was_written_and_not_sealed_is_done_again_and_only_what_is_missing_is_written(start):
    kafka, reports = brokers(), []

    def dies(step, task):
        if (step, task.batch, task.lane) == ("commit", 1, 1):
            raise RuntimeError("gone")

    with pytest.raises(StreamingQueryException, match="gone"):
        start(SimulatedSink(kafka, options(), before_step=dies))
    assert len(values(kafka)) == 8 + 4
    start(SimulatedSink(kafka, options(), on_batch=reports.append))
    assert values(kafka) == EXPECTED
    assert (reports[0].batch, reports[0].outcomes) == (1, {"skipped": 1, "committed": 1})


def test_a_lane_that_fails_is_tried_again_as_a_task_is(start):
    kafka, reports = brokers(), []

    def fails(step, task):
        if step == "flush" and task.attempt < 2:
            raise RuntimeError("not yet")

    start(SimulatedSink(kafka, options(), before_step=fails, on_batch=reports.append))
    assert values(kafka) == EXPECTED
    assert {report.retries for report in reports} == {2 * PARTITIONS}
    assert len(kafka.records("out", "read_uncommitted")) == 3 * len(EXPECTED)


def test_a_sealed_batch_is_not_written_again(start, tmp_path):
    kafka = brokers()
    start(SimulatedSink(kafka, options()))
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()
    reports = []
    start(SimulatedSink(kafka, options(), on_batch=reports.append))
    assert (values(kafka), reports) == (EXPECTED, [])


def test_rows_that_cannot_be_written_go_to_the_dead_letters(start):
    kafka = brokers()
    kafka.create_topic("dead")
    columns = ("value", F.when(F.col("value") == "0:5", "nowhere").otherwise("out").alias("topic"))
    sink = SimulatedSink(kafka, {"query.id": "refunds", "deadletter.topic": "dead"})
    start(sink, columns)
    assert values(kafka) == [each for each in EXPECTED if each != "0:5"]
    (letter,) = kafka.records("dead")
    assert (letter.value, dict(letter.headers)["spark-eos.reason"]) == (b"0:5", b"TopicMissing")


def test_without_dead_letters_such_a_row_fails_its_query(start):
    kafka = brokers()
    with pytest.raises(StreamingQueryException, match="topic nowhere does not exist"):
        start(SimulatedSink(kafka, {"query.id": "refunds"}), ("value", F.lit("nowhere").alias("topic")))
    with pytest.raises(StreamingQueryException, match="the sink's option topic"):
        start(SimulatedSink(kafka, options(topic="nowhere")))


def test_options_and_columns_are_checked_as_the_sink_does(start):
    kafka = brokers()
    with pytest.raises(OptionError, match="is not known"):
        SimulatedSink(kafka, options(query_idd="x"))
    with pytest.raises(StreamingQueryException, match=SchemaError.__name__):
        start(SimulatedSink(kafka, options()), ("value", F.lit(1).alias("more")))
    with pytest.raises(StreamingQueryException, match="INVALID_TRANSACTION_TIMEOUT"):
        start(SimulatedSink(kafka, options(**{"kafka.transaction.timeout.ms": "1000000"})))
    given = {"kafka.bootstrap.servers": "broker:9092", "kafka.linger.ms": "5", "commit.scope": "batch"}
    reports = []
    start(SimulatedSink(kafka, options(**given), on_batch=reports.append))
    assert {len(report.lanes) for report in reports} == {1}
    assert values(kafka) == EXPECTED


def test_it_stays_in_its_process():
    with pytest.raises(UnsupportedError, match="its brokers are in this one"):
        pickle.dumps(SimulatedSink(brokers(), options()))


@pytest.mark.parametrize("seed", [None, 1])
def test_the_example_in_the_docs_runs(spark, tmp_path, seed):
    page = (Path(__file__).parents[2] / "docs" / "TESTING.md").read_text()
    (example,) = re.findall(r"<!-- example: simulated -->\n```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    names["test_each_settlement_is_refunded_once"](spark, tmp_path, seed)
