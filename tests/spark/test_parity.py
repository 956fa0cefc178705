"""What Spark's own Kafka source reads, by the same options: the same rows in the same tasks (`make test-large`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import builtin_reads
import pytest
from builtin_kafka import builtin_kafka_jars
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from spark_all import take_all
from spark_source import Source

pytestmark = pytest.mark.large

COLUMNS = ("topic", "partition", "offset")
# The markers of transactions have the broker's time: records of the past would all be followed by later ones.
START_MS = int(time.time() * 1000) + 60_000


def after(seconds: int) -> int:
    return START_MS + 1_000 * seconds


def each(topic: str, **offsets: int) -> str:
    """A JSON of partition to number, the partitions named p0, p1, ..."""
    return json.dumps({topic: {name[1:]: offset for name, offset in offsets.items()}})


def batch_cases(topic: str) -> dict[str, dict[str, str]]:
    return {
        "whole": {},
        "headers": {"includeHeaders": "true"},
        "offsets": {"startingOffsets": each(topic, p0=5, p1=-2), "endingOffsets": each(topic, p0=-1, p1=3)},
        "timestamp": {"startingTimestamp": str(after(20)), "endingTimestamp": str(after(50))},
        "timestamps": {
            "startingOffsetsByTimestamp": each(topic, p0=after(30), p1=after(900)),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": each(topic, p0=after(900), p1=after(900)),
        },
        "min_partitions": {"minPartitions": "7"},
        "both": {"maxRecordsPerPartition": "20", "minPartitions": "6"},
        "assign": {"assign": json.dumps({topic: [1]})},
        "pattern": {"subscribePattern": f"{topic[:-2]}.."},
    }


def stream_cases() -> dict[str, dict[str, str]]:
    return {"whole": {}, "limited": {"maxOffsetsPerTrigger": "11"}}


@pytest.fixture(scope="module")
def topic(kafka) -> Source:
    """Committed, aborted and plain records, keys, headers, tombstones and timestamps, in two partitions."""
    kafka.create_topic("parity-aa", partitions=2)
    source = Source(kafka.bootstrap_servers, ["parity-aa"])
    source.write("a", "b", key="k", headers=[("h", b"1"), ("h", None), ("i", b"")], timestamp=after(0))
    source.write("never", commit=False, timestamp=after(0))
    for number in range(1, 8):
        source.write(*(f"{number}-{i}" for i in range(number)), timestamp=after(10 * number))
    source.write("u", "v", "w", partition=1, key=b"\x00\xff", timestamp=after(40))
    source.write("never either", partition=1, commit=False, timestamp=after(40))
    source.write("x", partition=1, timestamp=after(45))
    return source


def options(source: Source, given: dict[str, str]) -> dict[str, str]:
    subscribed = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": source.topics[0]}
    common = {"kafka.bootstrap.servers": source.bootstrap, "kafka.isolation.level": "read_committed"}
    return common | subscribed | given


@pytest.fixture(scope="module")
def builtin(topic: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark's own source finds."""
    out = tmp_path_factory.mktemp("builtin")
    cases = {
        "jars": builtin_kafka_jars(Path(tempfile.gettempdir()) / "spark-eos-bench-jars"),
        "batch": {name: options(topic, given) for name, given in batch_cases(topic.topics[0]).items()},
        "stream": {name: stream(topic, given) for name, given in stream_cases().items()},
    }
    (out / "cases.json").write_text(json.dumps(cases))
    program = [sys.executable, str(builtin_reads.__file__), str(out / "cases.json"), str(out)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def stream(source: Source, given: dict[str, str]) -> dict[str, str]:
    return options(source, {"startingOffsets": "earliest", **given})


def results(builtin: Path) -> Any:
    return json.loads((builtin / "results.json").read_text())


def read(spark: SparkSession, given: dict[str, str]) -> DataFrame:
    return spark.read.format("kafka-eos").options(**given).load()


@pytest.mark.parametrize("case", batch_cases("any"))
def test_batch_queries(spark: SparkSession, topic: Source, builtin: Path, case: str) -> None:
    found = read(spark, options(topic, batch_cases(topic.topics[0])[case]))
    assert found.schema.jsonValue() == results(builtin)["schemas"][case]
    expected = spark.read.schema(found.schema).parquet(str(builtin / case))
    assert found.count() > 0
    assert_df_equality(found.orderBy(*COLUMNS), expected.orderBy(*COLUMNS))
    assert builtin_reads.tasks(found) == results(builtin)["tasks"][case]


@pytest.mark.parametrize("case", stream_cases())
def test_streams_end_their_batches_at_the_same_offsets(
    spark: SparkSession, topic: Source, builtin: Path, tmp_path: Path, case: str
) -> None:
    given = stream(topic, stream_cases()[case])
    df = spark.readStream.format("kafka-eos").options(**given).load()
    found = builtin_reads.ends(take_all(builtin_reads.writer(df, tmp_path)))
    for offsets in found:
        offsets.pop("topic ids")
    assert found == results(builtin)["ends"][case]


def test_a_stream_goes_on_from_the_checkpoint_of_sparks_own_source(
    spark: SparkSession, topic: Source, builtin: Path
) -> None:
    topic.write("after")
    seen: list[bytes] = []
    df = spark.readStream.format("kafka-eos").options(**stream(topic, {})).load()
    writer = df.writeStream.foreachBatch(lambda batch, _: seen.extend(bytes(row.value) for row in batch.collect()))
    take_all(writer.option("checkpointLocation", str(builtin / "checkpoint-whole")))
    assert seen == [b"after"]
