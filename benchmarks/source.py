"""Reading Kafka: the format kafka-eos beside Spark's built-in source, in turn, in one run.

    make bench-source               # or: python benchmarks/source.py --rounds 3

Four topics of 8 partitions: records of 100 bytes and of 1 KB, plain and in transactions. Each is filled with 4 batches
of 1 M rows and a rest (`STREAM_BATCHES`), measured, and deleted; so "1 M rows a batch" is 1 M rows of 1 KB as well.

1. batch: the whole topic with `spark.read`, into a noop sink. Rows per second by the clock.
2. stream: the same topic with `readStream`, `maxOffsetsPerTrigger` 1 M, into a noop sink. Rows per second of each batch
   as Spark reports it (numInputRows / durationMs.triggerExecution): the median of 3 full batches, a query's first one
   left out. No batch that counts ends at the topic's end.
3. small batch: a query on a transactional topic of 8 partitions, a transaction with one row for each of them at a time.
   Milliseconds (triggerExecution) of the batch that has all 8 rows: the median of 10, a query's first ones left out.

A figure is the median of all rounds; in each round the two sources take turns at beginning. To warm up, each source
reads a topic of its own, and the rows are counted. Client settings are the defaults of each source, and
kafka.isolation.level=read_committed for both. The closing line has the geometric mean of the four topics' ratios, ours
by built-in: of rows per second for batch and stream, of time for the small batch.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench_results import section, table, write
from bench_session import session
from bench_topics import PARTITIONS, Topic, fill, writer
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_eos.testing import EmbeddedKafka, wait_for_markers

BUILTIN, OURS = "kafka", "kafka-eos"
SOURCES = (BUILTIN, OURS)
PARTS = ("batch", "stream", "small batch")
ROWS_A_BATCH = 1_000_000
STREAM_BATCHES = 3
SMALL_BATCHES, SMALL_WARM_UP = 10, 2
PATIENCE_S = 180
DURATIONS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
Progress = Any
"""StreamingQueryProgress, which is read as a dict."""


@dataclass
class Figures:
    """What was measured: by topic, and by source; one figure a round, of small batches one a batch."""

    batch: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    stream: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    small: dict[str, list[Progress]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Bench:
    """Where and how much is read.

    Args:
        spark: the session.
        kafka: the broker.
        rounds: how often each source has its turn.
        rows_a_batch: rows of a large micro-batch.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    rounds: int
    rows_a_batch: int

    def options(self, topic: str) -> dict[str, str]:
        """The same for both sources."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def turns(self) -> Iterator[tuple[int, str]]:
        """Rounds, and in each the sources, another one first each time."""
        for turn in range(self.rounds):
            for source in SOURCES[:: 1 if turn % 2 == 0 else -1]:
                yield turn, source

    @contextmanager
    def query(self, source: str, topic: str, trigger: str, **options: str) -> Iterator[StreamingQuery]:
        """A stream into nothing."""
        df = self.spark.readStream.format(source).options(**self.options(topic), **options).load()
        with tempfile.TemporaryDirectory() as checkpoint:
            query = df.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = query.trigger(processingTime=trigger).start()
            try:
                yield query
            finally:
                query.stop()


def until(query: StreamingQuery, reached: Callable[[list[Progress]], bool]) -> list[Progress]:
    """Wait until a query has come so far; its progress."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached(progress := query.recentProgress):
        if query.exception() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query does not get on: {query.exception() or progress[-1:]}")
        time.sleep(0.02)
    return progress


def read_all(bench: Bench, source: str, topic: Topic) -> float:
    """Seconds that reading a whole topic takes."""
    began = time.perf_counter()
    df = bench.spark.read.format(source).options(**bench.options(topic.name)).load()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def warm_up(bench: Bench) -> None:
    """Read a whole topic with both, and make sure that they do read all of it."""
    topic = Topic("bench-warm-up", 100, bench.rows_a_batch, True)
    with filled(bench, topic):
        for source in SOURCES:
            counted = Observation()
            df = bench.spark.read.format(source).options(**bench.options(topic.name)).load()
            df.observe(counted, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
            if counted.get["rows"] != topic.rows_written:
                raise RuntimeError(f"{source} read {counted.get['rows']:,} rows of {topic.rows_written:,}")


def stream_speed(bench: Bench, source: str, topic: Topic) -> float:
    """Rows per second of a query's large batches."""
    most = bench.rows_a_batch

    def full(progress: list[Progress]) -> list[Progress]:
        # A transactional topic has control records as well, which take up offsets.
        return [each for each in progress if each["numInputRows"] > 0.99 * most][1 : 1 + STREAM_BATCHES]

    with bench.query(source, topic.name, "0 seconds", maxOffsetsPerTrigger=str(most)) as query:
        progress = until(query, lambda progress: len(full(progress)) == STREAM_BATCHES)
    speeds = [each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000 for each in full(progress)]
    return statistics.median(speeds)


def has_taken(rows: int, progress: list[Progress]) -> bool:
    """Whether a query has read so many rows."""
    return sum(each["numInputRows"] for each in progress) >= rows


def small_batches(bench: Bench, source: str, topic: Topic) -> list[Progress]:
    """Batches that took all rows of one transaction. Some transactions are taken by two batches: these don't count."""
    bench.kafka.create_topic(topic.name, topic.partitions)
    bootstrap = bench.kafka.bootstrap_servers
    producer = writer(bootstrap, topic.name)
    found: list[Progress] = []
    written = 0
    with bench.query(source, topic.name, "500 milliseconds") as query:
        while len(found) < SMALL_WARM_UP + SMALL_BATCHES:
            producer.begin_transaction()
            for partition in range(topic.partitions):
                producer.produce(topic.name, bytes(topic.record_bytes), partition=partition)
            producer.commit_transaction(30)
            wait_for_markers(bootstrap, topic.name)
            written += topic.partitions
            progress = until(query, partial(has_taken, written))
            found = [each for each in progress if each["numInputRows"] == topic.partitions]
    return found[SMALL_WARM_UP:]


@contextmanager
def filled(bench: Bench, topic: Topic) -> Iterator[None]:
    """A topic with records, for as long as it is needed."""
    say(f"{topic.name}: writing {topic.rows_written:,} rows")
    bench.kafka.create_topic(topic.name, topic.partitions)
    fill(bench.kafka.bootstrap_servers, topic)
    yield
    bench.kafka.delete_topic(topic.name)


def measure_topic(bench: Bench, topic: Topic, parts: set[str], figures: Figures) -> None:
    """Parts 1 and 2 on one topic."""
    label = f"{topic.record_bytes:,} B, {'transactional' if topic.transactional else 'plain'}"
    for turn, source in bench.turns():
        if "batch" in parts:
            figures.batch[label][source].append(topic.rows_written / read_all(bench, source, topic))
            say(f"{label}, round {turn + 1}, batch, {source}: {figures.batch[label][source][-1]:,.0f} rows/s")
        if "stream" in parts:
            figures.stream[label][source].append(stream_speed(bench, source, topic))
            say(f"{label}, round {turn + 1}, stream, {source}: {figures.stream[label][source][-1]:,.0f} rows/s")


def measure(bench: Bench, parts: set[str]) -> Figures:
    """All parts that were asked for."""
    figures = Figures()
    warm_up(bench)
    if parts & {"batch", "stream"}:
        rows = bench.rows_a_batch * (1 + STREAM_BATCHES) + bench.rows_a_batch // 20
        for record_bytes in (100, 1024):
            for transactional in (False, True):
                name = f"bench-{record_bytes}-{'transactional' if transactional else 'plain'}"
                topic = Topic(name, record_bytes, rows, transactional)
                with filled(bench, topic):
                    measure_topic(bench, topic, parts, figures)
    if "small batch" in parts:
        for turn, source in bench.turns():
            topic = Topic(f"bench-small-{turn}-{source}", 100, PARTITIONS, True)
            figures.small[source] += small_batches(bench, source, topic)
            took = statistics.median(duration(each) for each in figures.small[source])
            say(f"round {turn + 1}, small batch, {source}: {took:.0f} ms so far")
    return figures


def duration(progress: Progress, name: str = "triggerExecution") -> float:
    """Milliseconds of a batch, or of a part of it."""
    return float(progress["durationMs"].get(name, 0))


def speeds(part: dict[str, dict[str, list[float]]], rows_of: str) -> tuple[str, float]:
    """A table of rows per second, and the geometric mean of the ratios."""
    medians = {label: {source: statistics.median(by[source]) for source in SOURCES} for label, by in part.items()}
    ratios = {label: by[OURS] / by[BUILTIN] for label, by in medians.items()}
    rows = [[label, f"{by[BUILTIN]:,.0f}", f"{by[OURS]:,.0f}", f"{ratios[label]:.2f}"] for label, by in medians.items()]
    headings = [f"{rows_of}, rows/s", "built-in", "kafka-eos", "×"]
    return table(headings, rows), statistics.geometric_mean(ratios.values())


def times(small: dict[str, list[Progress]]) -> tuple[str, float]:
    """A table of where the time of a small batch goes, and the ratio of the whole."""
    medians = {
        name: [statistics.median(duration(each, name) for each in small[source]) for source in SOURCES]
        for name in DURATIONS
    }
    rows = [
        [name, f"{builtin:.0f}", f"{ours:.0f}", f"{ours / builtin:.2f}" if builtin else ""]
        for name, (builtin, ours) in medians.items()
    ]
    builtin, ours = medians["triggerExecution"]
    return table(["batch of 8 rows, ms", "built-in", "kafka-eos", "×"], rows), ours / builtin


def report(figures: Figures) -> tuple[list[str], str]:
    """The tables and the closing line."""
    found = {
        "batch": speeds(figures.batch, "whole topic") if figures.batch else None,
        "stream": speeds(figures.stream, "micro-batches") if figures.stream else None,
        "small batch": times(figures.small) if figures.small else None,
    }
    told = {name: what for name, what in found.items() if what is not None}
    closing = ", ".join(f"{name} x{ratio:.2f}" for name, (_, ratio) in told.items())
    return [text for text, _ in told.values()], f"bench-source: {closing}"


def say(text: str) -> None:
    """Progress, while it runs."""
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each source has its turn")
    parser.add_argument("--rows-scale", type=float, default=1.0, help="below 1: smaller topics and batches")
    parser.add_argument("--only", choices=[part.split()[0] for part in PARTS], action="append", help="may be repeated")
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    args = parser.parse_args()
    parts = {part for part in PARTS if args.only is None or part.split()[0] in args.only}
    rows = math.ceil(ROWS_A_BATCH * args.rows_scale)
    # What is deleted makes room at once.
    with EmbeddedKafka(config={"log.segment.delete.delay.ms": "0"}) as kafka, session() as spark:
        tables, closing = report(measure(Bench(spark, kafka, args.rounds, rows), parts))
    if not args.no_write:
        command = " ".join(["make bench-source", *([f'ARGS="{" ".join(sys.argv[1:])}"'] if sys.argv[1:] else [])])
        head = f"8 partitions; {rows:,} rows a micro-batch; medians of {args.rounds} rounds."
        write("bench-source", section("Reading Kafka", command, head, *tables, f"`{closing}`"))
    say("\n\n".join(["", *tables, closing]))


if __name__ == "__main__":
    main()
