"""What `stage.rows=disk` is good for, and what it costs.

    make bench-staging              # or: python benchmarks/staging.py --seconds 5 --rounds 3

1. Readers held back: a batch of one lane whose rows take 5 s to compute, in 20 pieces. Meanwhile another producer
   writes a record to the same partition every 20 ms and asks how far a read_committed reader may read: the longest time
   that one of its records, acknowledged, stays invisible. That is the one written just after the transaction opened.
   About 20 ms of it are the time between two questions.
2. Rows per second: micro-batches of 1 M rows with values of 200 bytes, 2 partitions, lz4, as in `sink.py`.

Both in turn, with and without; the first batch of each query does not count; medians.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from statistics import median

import pyarrow as pa
from bench_results import section, table, write
from bench_session import session
from bench_topics import QUIET
from confluent_kafka import IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.markdown import Markdown
from sink import CLIENT, VALUE_BYTES, batch_times, rows

from spark_eos import KafkaSink
from spark_eos.testing import EmbeddedKafka

PIECES = 20
PIECE_ROWS = 1000
EVERY_S = 0.02
BATCHES = 3
WAYS = ("none", "disk")


class Probe(threading.Thread):
    """Another producer of partition 0, and how long its records stay invisible to read_committed readers."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._where = TopicPartition(topic, 0)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "0", **QUIET})
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._invisible: deque[tuple[int, float]] = deque()
        self._longest = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._producer.produce(self._where.topic, b"of another producer", partition=0, on_delivery=self._written)
            self._producer.flush()
            end = self._stable_end()
            while self._invisible and self._invisible[0][0] < end:
                self._longest = max(self._longest, time.monotonic() - self._invisible.popleft()[1])

    def _written(self, error: object, message: Message) -> None:
        assert error is None, error
        self._invisible.append((message.offset(), time.monotonic()))

    def _stable_end(self) -> int:
        asked = {self._where: OffsetSpec.latest()}
        found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(found[self._where].result(10).offset)

    def longest(self) -> float:
        """Seconds, since it was asked last."""
        found, self._longest = self._longest, 0.0
        return found

    def end(self) -> None:
        self._ended.set()
        self.join()


def slow_rows(spark: SparkSession, topic: str, seconds: float) -> DataFrame:
    """Micro-batches of one lane, in pieces, that take so long to compute."""
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=PIECES * PIECE_ROWS, numPartitions=1)
    pause = seconds / PIECES

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(pause)
            values = [b"." * VALUE_BYTES] * batch.num_rows
            yield pa.RecordBatch.from_pydict({"topic": [topic] * batch.num_rows, "value": values})

    return source.load().mapInArrow(slowly, "topic string, value binary")


def held_back(df: DataFrame, sink: KafkaSink, probe: Probe) -> Iterator[tuple[float, float]]:
    """Of each batch but the first: its seconds, and for how long a record of another producer was invisible."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        for batch in range(BATCHES + 1):
            while len(query.recentProgress) <= batch and query.isActive:
                time.sleep(EVERY_S)
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            time.sleep(5 * EVERY_S)  # the probe's next question; the next batch has not sent anything yet
            longest = probe.longest()
            if batch:
                yield query.recentProgress[batch]["durationMs"]["addBatch"] / 1000, longest
        query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a lane's rows take to compute")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way has its turn")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a large batch")
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    args = parser.parse_args()
    busy = os.getloadavg()[0]
    slow: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    large: dict[str, list[float]] = {way: [] for way in WAYS}
    console = Console(width=110)
    with EmbeddedKafka() as kafka, session() as spark:
        for turn in range(args.rounds):
            for way in WAYS:
                console.print(f"round {turn + 1} of {args.rounds}: stage.rows={way}")
                slow[way] += measure_slow(spark, kafka, f"slow-{way}-{turn}", way, args.seconds)
                large[way] += measure_large(spark, kafka, f"large-{way}-{turn}", way, args.rows)
    found = report(slow, large, args.seconds, args.rows)
    if not args.no_write:
        command = " ".join(["make bench-staging", *([f'ARGS="{" ".join(sys.argv[1:])}"'] if sys.argv[1:] else [])])
        load = f"Medians of {args.rounds} rounds; load average at the start: {busy:.1f}."
        write("bench-staging", section("Rows staged on disk", command, load, found))
    console.print(Markdown(found))


def measure_slow(
    spark: SparkSession, kafka: EmbeddedKafka, name: str, way: str, seconds: float
) -> list[tuple[float, float]]:
    kafka.create_topic(name)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", PIECE_ROWS)
    probe = Probe(kafka.bootstrap_servers, name)
    probe.start()
    try:
        return list(held_back(slow_rows(spark, name, seconds), sink(kafka, name, way), probe))
    finally:
        probe.end()
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def measure_large(spark: SparkSession, kafka: EmbeddedKafka, name: str, way: str, count: int) -> list[float]:
    kafka.create_topic(name, partitions=2)
    try:
        into = sink(kafka, name, way)
        return batch_times(rows(spark, count, name), lambda writer: writer.foreachBatch(into), BATCHES)
    finally:
        kafka.delete_topic(name)


def sink(kafka: EmbeddedKafka, name: str, way: str) -> KafkaSink:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **CLIENT, "query.id": name, "stage.rows": way}
    return KafkaSink(given)


def report(
    slow: dict[str, list[tuple[float, float]]], large: dict[str, list[float]], seconds: float, count: int
) -> str:
    lines = []
    for way in WAYS:
        batch, invisible = (median(each) for each in zip(*slow[way], strict=True))
        full = median(large[way])
        shown = f"{batch:.2f} s", f"{invisible * 1000:,.0f} ms", f"{full:.2f} s", f"{count / full:,.0f}"
        lines.append([f"`stage.rows={way}`", *shown])
    headings = ["", f"batch whose rows take {seconds:g} s", "another producer's record invisible for"]
    return table([*headings, f"batch of {count:,} rows", "rows/s"], lines)


if __name__ == "__main__":
    main()
