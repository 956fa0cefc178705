"""The sink on simulated brokers: a streaming query's batches, replays and restarts without Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql import DataFrame

from spark_eos.errors import TopicMissing, UnsupportedError
from spark_eos.kafka.deadletters import DeadLetters
from spark_eos.kafka.topics import CREATE_IT
from spark_eos.options import BOOTSTRAP_SERVERS, SinkOptions
from spark_eos.protocol.batch import BatchPlan
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.parallel import one_by_one
from spark_eos.protocol.ports import BeforeStep, LanePorts
from spark_eos.protocol.replay import fingerprint_of
from spark_eos.protocol.stats import Stopwatch
from spark_eos.protocol.transaction import LaneReport, run_lane, traced
from spark_eos.spark.context import MicroBatch
from spark_eos.spark.lanes import task_context
from spark_eos.spark.report import BatchReport, OnBatch, batch_report
from spark_eos.spark.rows import ArrowRows
from spark_eos.spark.run import policy_of
from spark_eos.spark.sink import KafkaSink, RunWriter
from spark_eos.testing.simulated.kafka import SimulatedKafka

log = logging.getLogger("spark_eos.testing")

ATTEMPTS = 4
"""Spark's default of spark.task.maxFailures."""


class SimulatedSink(KafkaSink):
    """`KafkaSink` on a `SimulatedKafka`: `df.writeStream.foreachBatch(SimulatedSink(kafka, {...}))`.

    Spark computes each partition's rows in its tasks; the lanes are then written one after the other in the driver's
    process, where the simulated brokers are. What KafkaSink refuses, it refuses too; what a real broker or client alone
    can refuse (a record too large, a wrong setting), and a changed group.id, it does not.

    Args:
        kafka: the brokers.
        options: as of `KafkaSink`, but `kafka.bootstrap.servers` is not needed. Client settings have no effect but
            `kafka.transaction.timeout.ms`, by the brokers' clock.
        attempts: how often a lane is tried before the batch fails, as Spark does with tasks.
        before_step, on_batch: as of `KafkaSink`.
    """

    def __init__(
        self,
        kafka: SimulatedKafka,
        options: Mapping[str, Any],
        *,
        attempts: int = ATTEMPTS,
        before_step: BeforeStep | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        known = any(name.lower() == BOOTSTRAP_SERVERS for name in options)
        given = dict(options) if known else {BOOTSTRAP_SERVERS: "simulated", **options}
        super().__init__(given, before_step=before_step, on_batch=on_batch)
        self._kafka, self._attempts = kafka, attempts

    def __getstate__(self) -> NoReturn:
        raise UnsupportedError(
            "a SimulatedSink was to be sent to another process, and its brokers are in this one",
            do="Use a classic session: foreachBatch of Spark Connect runs elsewhere.",
        )

    def _new_writer(self, run: Run) -> RunWriter:
        return _InDriver(self._kafka, run, self.options, self._before_step, self._attempts)


class _InDriver:
    """The lanes are written in this process, one by one; see `RunWriter`."""

    def __init__(
        self, kafka: SimulatedKafka, run: Run, options: SinkOptions, before_step: BeforeStep | None, attempts: int
    ) -> None:
        self.run, self._kafka, self._options = run, kafka, options
        self._before_step, self._attempts = before_step, attempts
        self._topics = _required(kafka, options)
        group = options.group_id or run.query
        self._ledger = kafka.ledger(group, options.ledger_topic)
        timeout_s = int(options.client.get("transaction.timeout.ms", 60_000)) / 1000
        self._client = kafka.client(group, timeout_s, options.ledger_topic)
        policy = policy_of(options)
        self._protocol = QueryRun(run, self._ledger, self._client.open, policy, self._shown_now, for_each=one_by_one)

    def write(self, batch: MicroBatch, rows: DataFrame, lanes: int | None) -> BatchReport | None:
        """See `RunWriter`."""
        watch = Stopwatch(self._kafka.now)
        watch.begin("open")
        found = batch.logged(stateful=self._options.adopts)
        logged = found.in_cluster({topic: self._kafka.partitions(topic) or 0 for topic in found.topics})
        plan = self._protocol.open(batch.batch, lanes, logged)
        watch.begin("lanes")
        computed = _computed(rows)
        if plan.skip:
            return None
        if plan.sealed or plan.committed:
            prints = {lane: fingerprint_of(self._rows(packed)) for lane, packed in computed.items()}
            self._protocol.compare(batch.batch, plan, prints)
        elif self._options.commit_scope == "lane":
            batch.check_split()
        if plan.sealed:
            return None
        reports = []
        for lane, packed in computed.items():
            task = LaneTask(self.run, batch.batch, lane, len(computed), 0, logged.content)
            reports.append(self._write_lane(task, packed, plan))
        watch.begin("seal")
        self._protocol.seal(batch.batch, len(reports), reports, logged, plan)
        return batch_report(self.run, batch.batch, reports, watch.stop(), found.planned_at)

    def _rows(self, rows: bytes) -> Iterator[ArrowRows]:
        return (ArrowRows(each, self._options.topic) for each in _unpacked(rows) if each.num_rows)

    def _write_lane(self, task: LaneTask, rows: bytes, plan: BatchPlan) -> LaneReport:
        for attempt in range(self._attempts):
            try:
                return self._attempt(task, attempt, rows, plan)
            except Exception as error:
                if attempt + 1 == self._attempts:
                    self._protocol.raise_if_taken_over(task.batch, error)
                    raise
                log.warning("lane %d of batch %d, attempt %d: %s", task.lane, task.batch, attempt, error)
        raise AssertionError("a lane is tried once, at least")

    def _attempt(self, task: LaneTask, attempt: int, rows: bytes, plan: BatchPlan) -> LaneReport:
        mine = LaneTask(task.run, task.batch, task.lane, task.lanes, attempt, task.content)
        dead = self._options.deadletter_topic
        opens = partial(self._client.open, topics=self._topics, letters=DeadLetters(dead, mine) if dead else None)
        ports = LanePorts(self._ledger, opens, self._client.timeout_s, self._kafka.now)
        step = traced(mine, self._before_step)
        return run_lane(
            mine, self._rows(rows), ports, before_step=step, floor=plan.floor, known=plan.known, keep=plan.keep
        )

    def close(self) -> None:
        """See `RunWriter`."""
        self._protocol.close()

    def _shown_now(self) -> str:
        when = datetime.fromtimestamp(self._kafka.brokers.timestamp / 1000, timezone.utc)
        return when.isoformat(timespec="milliseconds")


def _required(kafka: SimulatedKafka, options: SinkOptions) -> dict[str, int]:
    """The topics that options name, with their number of partitions."""
    found: dict[str, int] = {}
    for name, topic in (("topic", options.topic), ("deadletter.topic", options.deadletter_topic)):
        count = kafka.partitions(topic) if topic else None
        if topic and count is None:
            raise TopicMissing(f"topic {topic} does not exist (the sink's option {name})", do=CREATE_IT)
        if topic and count:
            found[topic] = count
    return found


def _computed(rows: DataFrame) -> dict[int, bytes]:
    """Each partition's rows, as an Arrow stream; those without any too."""
    found = rows.mapInArrow(_packed, "lane int, rows binary").collect()
    return {each.lane: bytes(each.rows) for each in sorted(found, key=lambda each: each.lane)}


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark task: the partition's number, and all of its rows in one piece."""
    buffer = pa.BufferOutputStream()
    listed = list(batches)
    if listed:
        with ipc.new_stream(buffer, listed[0].schema) as stream:
            for batch in listed:
                stream.write_batch(batch)
    lane = pa.array([task_context().partitionId()], pa.int32())
    yield pa.RecordBatch.from_arrays([lane, pa.array([buffer.getvalue().to_pybytes()])], ["lane", "rows"])


def _unpacked(rows: bytes) -> list[pa.RecordBatch]:
    return list(ipc.open_stream(rows)) if rows else []
