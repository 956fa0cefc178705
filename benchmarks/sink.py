"""What exactly-once costs: both ways to write, beside Spark's built-in (at-least-once) Kafka sink, in turn, in one run.

    make bench                      # or: python benchmarks/sink.py --rounds 3 --rows 1000000

1. Added time per batch of 2 near-empty lanes: a micro-batch of 2 rows in 2 partitions through each sink, and through a
   Python task of the same shape that writes nothing. Median over all batches after the first of each query.
2. Rows per second: micro-batches of 1 M rows with values of 200 bytes, 2 partitions, lz4. Best batch after the first of
   each round, median of the rounds.

Same broker, same topics, same client settings. Figures are of the batch as Spark reports it (durationMs.addBatch).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

import pyarrow as pa
from builtin_kafka import builtin_kafka_jars
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter
from rich.console import Console
from rich.table import Table

from spark_eos import KafkaSink
from spark_eos.testing import EmbeddedKafka

CLIENT = {"kafka.compression.type": "lz4", "kafka.linger.ms": "5"}
VALUE_BYTES = 200
Sink = Callable[[DataStreamWriter], DataStreamWriter]


def session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("spark-eos bench").config("spark.jars", jars)
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    spark = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def rows(spark: SparkSession, per_batch: int, topic: str) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=per_batch, numPartitions=2).load()
    text = F.col("value").cast("string")
    value = F.rpad(F.concat(F.lit("record "), text, F.lit(" "), F.sha2(text, 256)), VALUE_BYTES, ".")
    return source.select(text.alias("key"), value.alias("value"), F.lit(topic).alias("topic"))


def writes_nothing(df: DataFrame, _: int) -> None:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [total]})

    df.mapInArrow(count, "rows long").collect()


def sinks(bootstrap: str, query_id: str) -> dict[str, Sink]:
    options = {"kafka.bootstrap.servers": bootstrap, **CLIENT}
    return {
        "a Python task, no sink": lambda writer: writer.foreachBatch(writes_nothing),
        "Spark's built-in sink": lambda writer: writer.format("kafka").options(**options),
        "KafkaSink": lambda writer: writer.foreachBatch(KafkaSink(options | {"query.id": query_id})),
        "format kafka-eos": lambda writer: writer.format("kafka-eos").options(
            **options, **{"query.id": f"{query_id}-format"}
        ),
    }


def batch_times(df: DataFrame, sink: Sink, batches: int) -> list[float]:
    """Seconds of each batch after the first of a fresh query."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = sink(df.writeStream).option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds")
        query = writer.start()
        while len(query.recentProgress) <= batches and query.isActive:
            time.sleep(0.05)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        found = [progress["durationMs"]["addBatch"] / 1000 for progress in query.recentProgress]
        query.stop()
    return found[1 : batches + 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each sink has its turn")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a large batch")
    parser.add_argument("--small-batches", type=int, default=15, help="near-empty batches a round")
    args = parser.parse_args()
    console = Console(width=100)
    spark = session(builtin_kafka_jars(Path(tempfile.gettempdir()) / "spark-eos-bench-jars"))
    small: dict[str, list[float]] = {}
    large: dict[str, list[float]] = {}
    with EmbeddedKafka() as kafka:
        for turn in range(args.rounds):
            topic = f"bench-{turn}"
            kafka.create_topic(topic, partitions=2, config={"retention.bytes": "300000000"})
            for name, sink in sinks(kafka.bootstrap_servers, f"bench-small-{turn}").items():
                console.print(f"round {turn + 1} of {args.rounds}: {args.small_batches} near-empty batches, {name}")
                small.setdefault(name, []).extend(batch_times(rows(spark, 2, topic), sink, args.small_batches))
            for name, sink in sinks(kafka.bootstrap_servers, f"bench-large-{turn}").items():
                console.print(f"round {turn + 1} of {args.rounds}: batches of {args.rows:,} rows, {name}")
                large.setdefault(name, []).append(min(batch_times(rows(spark, args.rows, topic), sink, 2)))
    spark.stop()
    console.print(report(small, large, args.rows))


def report(small: dict[str, list[float]], large: dict[str, list[float]], count: int) -> Table:
    table = Table(title=f"2 cores, one broker; {VALUE_BYTES}-byte values, lz4; medians")
    for heading in ("", "near-empty batch", "added", f"batch of {count:,} rows", "rows/s", "× built-in"):
        table.add_column(heading, justify="right" if heading else "left")
    base = statistics.median(small["a Python task, no sink"])
    builtin = statistics.median(large["Spark's built-in sink"])
    for name, times in small.items():
        near, full = statistics.median(times), statistics.median(large[name])
        added = f"{(near - base) * 1000:+.0f} ms"
        speed = (f"{full:.2f} s", f"{count / full:,.0f}", f"{builtin / full:.2f}")
        table.add_row(name, f"{near * 1000:.0f} ms", added, *speed)
    return table


if __name__ == "__main__":
    main()
