"""Where the time goes when kafka-eos reads: each step alone, then all of them in Spark, beside Spark's built-in source.

    python benchmarks/profile_source.py

Steps, each on 8 partitions of a plain topic:

1. consume: librdkafka's `Consumer.consume(n)`, the messages dropped; a process of one thread, one partition after the
   other. Its other threads, which are librdkafka's, fetch and unpack; the main one makes Python objects.
2. + Arrow: `spark_eos.kafka.reader.read_ranges` in the same process, which also turns the messages into Arrow batches.
3. Spark alone: a stream whose Python tasks hand over Arrow batches that are made already. No Kafka: what it takes to
   move rows from Python into the JVM and through Spark.
4. kafka-eos, and 5. the built-in source: streams, all of it.

Seconds for 1 M rows: by the clock (3 to 5: two tasks at a time), and of CPU by process. The last table is a micro-batch
of 1 row in each of 8 partitions: 3 there is what any Python source takes.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa
from bench_results import section, table, write
from bench_session import session
from bench_topics import KEY_BYTES, PARTITIONS, Topic, fill
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from source import BUILTIN, OURS, Bench, duration, small_batches, until, warm_up

from spark_eos.kafka.arrow import arrow_schema
from spark_eos.kafka.offsets import OffsetRange
from spark_eos.kafka.reader import read_ranges, reader_settings
from spark_eos.source_options import SourceOptions
from spark_eos.spark.source import source_schema
from spark_eos.testing import EmbeddedKafka

READY = "arrow-ready"
ROWS = 1_000_000
MEASURED_BATCHES = 3
SMALL_WARM_UP, SMALL_BATCHES = 3, 10
ARROW_ROWS = 10_000


class ReadyPartition(InputPartition):
    """A task of the stream without Kafka."""


@dataclass
class ReadyReader(DataSourceStreamReader):
    """Hands over as many rows in each batch; the same Arrow batch again and again.

    Args:
        rows: rows of a partition in a batch.
        record_bytes: of key and value together.
    """

    rows: int
    record_bytes: int

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], _limit: Any) -> dict[str, int]:
        return {"batch": start["batch"] + 1}

    def partitions(self, _start: dict[str, int], _end: dict[str, int]) -> list[InputPartition]:
        return [ReadyPartition(partition) for partition in range(PARTITIONS)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        count = min(self.rows, ARROW_ROWS)
        row = {"key": bytes(KEY_BYTES), "value": bytes(self.record_bytes - KEY_BYTES), "topic": "ready", "partition": 0}
        row |= {"offset": 0, "timestamp": 0, "timestampType": 0}
        batch = pa.RecordBatch.from_pylist([row] * count, schema=arrow_schema(headers=False))
        return (batch for _ in range(self.rows // count))


class Ready(DataSource):
    """A stream of Arrow batches that are made already, with the columns of a Kafka source."""

    @classmethod
    def name(cls) -> str:
        return READY

    def schema(self) -> StructType:
        return source_schema(headers=False)

    def streamReader(self, schema: StructType) -> ReadyReader:  # noqa: ARG002
        return ReadyReader(int(self.options["rows"]), int(self.options["record.bytes"]))


@dataclass(frozen=True)
class Used:
    """What a step used for 1 M rows, in seconds; None: not known, or does not take part."""

    wall: float
    python: float | None
    main_thread: float | None
    jvm: float | None
    broker: float | None

    def of_rows(self, rows: int) -> list[str]:
        """As cells of the table."""
        parts = (self.wall, self.python, self.main_thread, self.jvm, self.broker)
        return ["" if part is None else f"{part / rows * 1_000_000:.2f}" for part in parts]


def cpu() -> Counter[str]:
    """Seconds of CPU so far of this process' children: the broker, Spark's JVM, Python under it."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        try:
            kind = _kind(process)
            found[kind] += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return found


def _kind(process: psutil.Process) -> str:
    if "java" not in process.name():
        return "python"
    return "broker" if "kafka.Kafka" in process.cmdline() else "jvm"


def options_of(bootstrap: str, topic: Topic) -> SourceOptions:
    """As kafka-eos reads it."""
    return SourceOptions.of({"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name})


def consume(bootstrap: str, topic: Topic) -> int:
    """Step 1, as the reader has it: with its settings, and without the garbage collector. How many rows it has read."""
    consumer = Consumer(reader_settings(options_of(bootstrap, topic)) | {"enable.partition.eof": "false"})
    in_one = topic.rows_written // topic.partitions
    gc.disable()
    for partition in range(topic.partitions):
        consumer.assign([TopicPartition(topic.name, partition, 0)])
        left = in_one
        while left:
            left -= len(consumer.consume(min(ARROW_ROWS, left), 0.01))
    gc.enable()
    consumer.close()
    return topic.rows_written


def read_arrow(bootstrap: str, topic: Topic) -> int:
    """Step 2; how many rows it has read."""
    in_one = topic.rows_written // topic.partitions
    work = [OffsetRange(topic.name, partition, 0, in_one) for partition in range(topic.partitions)]
    return sum(batch.num_rows for batch in read_ranges(options_of(bootstrap, topic), work))


def alone(step: Callable[[str, Topic], int], bootstrap: str, topic: Topic) -> list[str]:
    """A step in this process, after it was done once to warm up."""
    step(bootstrap, topic)
    clocks = time.perf_counter, time.process_time, time.thread_time
    before, others = [clock() for clock in clocks], cpu()
    rows = step(bootstrap, topic)
    wall, python, main = (clock() - was for clock, was in zip(clocks, before, strict=True))
    return Used(wall, python, main, None, (cpu() - others)["broker"]).of_rows(rows)


def in_spark(bench: Bench, source: str, topic: Topic) -> list[str]:
    """A stream of large batches, after its first."""
    with bench.query(source, topic.name, "0 seconds", **stream_options(source, bench.rows_a_batch, topic)) as query:
        until(query, lambda progress: len(with_rows(progress)) >= 1)
        began, before, first = time.perf_counter(), cpu(), sum(each["numInputRows"] for each in query.recentProgress)
        until(query, lambda progress: len(with_rows(progress)) >= 1 + MEASURED_BATCHES)
        wall, used = time.perf_counter() - began, cpu() - before
        rows = sum(each["numInputRows"] for each in query.recentProgress) - first
    python, broker = (used[part] if source != without else None for part, without in _ABSENT)
    return Used(wall, python, None, used["jvm"], broker).of_rows(rows)


_ABSENT = (("python", BUILTIN), ("broker", READY))


def with_rows(progress: list[Any]) -> list[Any]:
    """Batches that are not empty."""
    return [each for each in progress if each["numInputRows"]]


def stream_options(source: str, rows: int, topic: Topic) -> dict[str, str]:
    """What makes a source's batches so large."""
    if source == READY:
        return {"rows": str(rows // PARTITIONS), "record.bytes": str(topic.record_bytes)}
    return {"maxOffsetsPerTrigger": str(rows)}


def profile(bench: Bench, record_bytes: int) -> str:
    """The table of one size of records."""
    topic = Topic(f"profile-{record_bytes}", record_bytes, bench.rows_a_batch * (MEASURED_BATCHES + 1), False)
    bootstrap = bench.kafka.bootstrap_servers
    bench.kafka.create_topic(topic.name, topic.partitions)
    fill(bootstrap, topic)
    rows = [["consume", *alone(consume, bootstrap, topic)], ["+ Arrow", *alone(read_arrow, bootstrap, topic)]]
    steps = {"Spark alone": READY, "kafka-eos": OURS, "built-in": BUILTIN}
    rows += [[name, *in_spark(bench, source, topic)] for name, source in steps.items()]
    bench.kafka.delete_topic(topic.name)
    headings = [f"{record_bytes:,} B, s for 1 M rows", "by the clock", "Python CPU", "main thread", "JVM", "broker"]
    return table(headings, rows)


def small(bench: Bench) -> str:
    """The table of small batches."""
    with bench.query(READY, "", "0 seconds", rows="1", **{"record.bytes": "100"}) as query:
        ready = until(query, lambda progress: len(progress) > SMALL_WARM_UP + SMALL_BATCHES)[SMALL_WARM_UP:]
    found = {"Spark alone": ready}
    for name, source in {"kafka-eos": OURS, "built-in": BUILTIN}.items():
        found[name] = small_batches(bench, source, Topic(f"profile-small-{source}", 100, PARTITIONS, True))
    columns = ("triggerExecution", "addBatch")
    rows = [
        [name, *(f"{statistics.median(duration(each, column) for each in progress):.0f}" for column in columns)]
        for name, progress in found.items()
    ]
    return table(["batch of 8 rows, ms", *columns], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-scale", type=float, default=1.0, help="below 1: smaller topics and batches")
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    args = parser.parse_args()
    with EmbeddedKafka(config={"log.segment.delete.delay.ms": "0"}) as kafka, session() as spark:
        spark.dataSource.register(Ready)
        bench = Bench(spark, kafka, 1, int(ROWS * args.rows_scale))
        warm_up(bench)
        tables = [profile(bench, record_bytes) for record_bytes in (100, 1024)] + [small(bench)]
    if not args.no_write:
        command = " ".join(["python benchmarks/profile_source.py", *sys.argv[1:]])
        write("profile-source", section("Where the time goes when reading", command, *tables))
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
