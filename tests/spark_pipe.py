"""Streaming queries with a lane for each source partition, and what they wrote."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from quick_spark import QUICK
from spark_all import take_all
from tests_support import committed_values

from spark_eos import KafkaSink, source_position

WAYS = ["format", pytest.param("foreachBatch", marks=pytest.mark.large)]
"""To write: for tests of what both ways have from the same code."""


@dataclass
class Pipe:
    """A query from one topic to another, as a user writes it."""

    spark: SparkSession
    bootstrap: str
    query_id: str
    source: str
    target: str
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    way: str = "foreachBatch"
    mode: str = "append"

    def feed(self, values: Iterable[Any], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.source, str(value).encode(), str(value).encode(), partition)
        producer.flush()

    def read(self, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.source, "startingOffsets": "earliest"}
        return self.spark.readStream.format("kafka-eos").options(**(given | options)).load()

    def rows(self, **options: str) -> DataFrame:
        return self.read(**options).select("key", "value", F.lit(self.target).alias("topic"), source_position())

    def given(self, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "query.id": self.query_id} | self.options | options

    def sink(self, before_step: Callable[..., None] | None = None, **options: str) -> KafkaSink:
        return KafkaSink(self.given(**options), before_step=before_step)

    def run(self, rows: DataFrame | None = None, sink: Any = None, **options: str) -> StreamingQuery:
        """All that there is, to the end; raises what the query raised.

        Written in the pipe's way with these options of the sink, or by another `sink`.
        """
        rows = self.rows() if rows is None else rows
        writer = rows.writeStream.outputMode(self.mode).option("checkpointLocation", str(self.checkpoint))
        if self.way == "format":
            return take_all(writer.format("kafka-eos").options(**self.given(**options)))
        return take_all(writer.foreachBatch(sink or self.sink(**options)))

    def refused(self, says: str, rows: DataFrame | None = None, sink: Any = None, **options: str) -> None:
        """The query fails with this text, and nothing of it is to be seen."""
        before = sorted(self.values())
        with pytest.raises(PySparkException, match=f"(?s){says}"):
            self.run(rows, sink, **options)
        assert sorted(self.values()) == before

    def process(self, *wait: str, conf: str = "") -> subprocess.Popen[str]:
        """The same as a process of its own, see `pipe_job.py`; it says its run id and its error on stdout."""
        job = [sys.executable, str(Path(__file__).with_name("pipe_job.py"))]
        job += [self.bootstrap, self.source, self.target, str(self.checkpoint), self.query_id, *wait]
        quick = shlex.join(word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}"))
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{quick} {conf} pyspark-shell"}
        return subprocess.Popen(
            job,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def values(self) -> list[str]:
        return [value.decode() for value in committed_values(self.bootstrap, self.target)]

    def batches(self) -> list[int]:
        return sorted(int(f.name) for f in (self.checkpoint / "commits").iterdir() if f.name.isdigit())

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died after the sink's seal, before Spark's own commit log."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def log_offsets(self, batch: int) -> Any:
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def half_commit(pipe):
    """Partition 0's rows are committed, partition 1's can't be written: the batch ends in the middle."""
    bad = F.when(F.col("source.partition") == 1, 99).cast("int")
    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        pipe.run(pipe.rows().withColumn("partition", bad))


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)
