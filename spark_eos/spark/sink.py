"""The exactly-once sink: `df.writeStream.foreachBatch(KafkaSink({...}))`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_eos.errors import OptionError
from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.ledger import KafkaLedger, LaneLedger
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.options import SinkOptions
from spark_eos.protocol.driver import BatchPlan, Policy, QueryRun
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.ports import BeforeStep, LanePorts
from spark_eos.protocol.positions import Offsets
from spark_eos.protocol.transaction import LaneReport, Outcome, run_lane, traced
from spark_eos.spark.columns import sink_columns
from spark_eos.spark.context import MicroBatch
from spark_eos.spark.rows import ArrowRows
from spark_eos.spark.staging import staged

log = logging.getLogger("spark_eos.sink")


class KafkaSink:
    """Writes each micro-batch to Kafka exactly once.

    Each partition of the micro-batch is one Kafka transaction that also commits the ledger row and the source
    offsets. Columns: key, value, topic, partition, headers as in Spark's Kafka sink, and `timestamp` and `source`
    (see `source_position`).

    Args:
        options: names and values, as of a Spark sink. `kafka.bootstrap.servers` is required, `query.id` wise;
            all are in `spark_eos.options.SINK_OPTIONS`.
        before_step: called in the Spark task with a step's name and the `LaneTask`, before each step of the lane
            ("peek", "fence", "check", "write", "offsets", "commit", and "report" after the last): for tracing, and
            to inject faults in tests. Must pickle.

    Raises:
        OptionError: at once, for options that are unknown, reserved, missing or wrong.

    Every other error comes out of the query (as the cause of its StreamingQueryException); the tree is in
    `spark_eos.errors`.
    """

    def __init__(self, options: Mapping[str, Any], *, before_step: BeforeStep | None = None) -> None:
        self.options = SinkOptions.of(options)
        self._before_step = before_step
        self._writer: _RunWriter | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self.options!r})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_writer": None}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; what `foreachBatch` calls."""
        batch = MicroBatch(df, batch_id)
        rows = sink_columns(df, self.options.topic)
        if self.options.on_other_checkpoint == "adopt" and "source" not in rows.columns:
            raise OptionError(
                "option on.other.checkpoint is 'adopt', and the rows have no column source to tell what was processed",
                do="Add source_position() to the rows, or give the query a new query.id.",
            )
        lanes = batch.lanes(rows)
        self._writer_of(batch).write(batch, rows, lanes)

    def _writer_of(self, batch: MicroBatch) -> _RunWriter:
        run = batch.run_of(self.options.query_id)
        if self._writer is None or self._writer.run != run:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            self._writer = _RunWriter(run, self.options, self._before_step)
        return self._writer


class _RunWriter:
    """One run of one query: its lease, and how its batches are written."""

    def __init__(self, run: Run, options: SinkOptions, before_step: BeforeStep | None) -> None:
        self.run, self._options, self._before_step = run, options, before_step
        client, topic = options.client, options.ledger_topic
        self._cluster = Cluster(client)
        brokers = self._cluster.brokers()
        self._topics = self._cluster.require([options.topic] if options.topic else [], "the sink's option topic")
        self._group = options.group_id or run.query
        self._ledger = KafkaLedger(self._cluster, client, brokers, topic, self._group)
        self._factory = ProducerFactory(client, brokers, topic, self._ledger.group_metadata())
        policy = Policy(options.on_missing_ledger == "start", options.on_other_checkpoint == "adopt")
        self._protocol = QueryRun(run, self._ledger, self._factory.open, policy, _now)

    def write(self, batch: MicroBatch, rows: DataFrame, lanes: int) -> None:
        """Open, run the lanes, seal."""
        started = monotonic()
        adopting = self._options.on_other_checkpoint == "adopt"
        sources = self._in_cluster(batch.end_offsets()) if adopting else {}
        plan = self._protocol.open(batch.batch, lanes, sources)
        if plan.skip:
            log.info("query %s, batch %d: sealed before, skipped", self.run.query, batch.batch)
            return
        reports = self._run_lanes(batch.batch, rows, lanes, plan)
        log_offsets = {} if any(report.ranges for report in reports) else self._in_cluster(batch.end_offsets())
        self._protocol.seal(batch.batch, lanes, reports, log_offsets)
        _log_batch(self.run.query, batch.batch, reports, monotonic() - started)

    def _run_lanes(self, batch: int, rows: DataFrame, lanes: int, plan: BatchPlan) -> list[LaneReport]:
        job = LaneJob(
            run=self.run,
            batch=batch,
            lanes=lanes,
            floor=plan.floor,
            factory=self._factory,
            group=self._group,
            topic=self._options.topic,
            topics=self._topics,
            stage=self._options.stage_rows == "disk",
            before_step=self._before_step,
        )
        try:
            found = rows.mapInArrow(job.write, "report string").collect()
        except PySparkException as error:
            # The lane's own error is in the text of Spark's; a run that was taken over gets a plain one on top.
            self._protocol.raise_if_taken_over(batch, error)
            raise
        return [LaneReport.from_json(row.report) for row in found]

    def _in_cluster(self, offsets: Offsets) -> Offsets:
        """Offsets of topics that this cluster has: a query may read from another one."""
        counts = self._cluster.partitions({topic for topic, _ in offsets})
        return {key: offset for key, offset in offsets.items() if key[1] < (counts[key[0]] or 0)}

    def close(self) -> None:
        self._protocol.close()
        self._ledger.close()


@dataclass(frozen=True)
class LaneJob:
    """What every task of a batch gets: plain values, pickled by Spark. Clients are made in the task only."""

    run: Run
    batch: int
    lanes: int
    floor: Offsets
    factory: ProducerFactory
    group: str
    topic: str | None
    topics: dict[str, int]
    stage: bool
    before_step: BeforeStep | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of one Spark task: one lane's attempt. Yields one row, its report."""
        context = TaskContext.get()
        if context is None:
            raise AssertionError("a lane is written by a Spark task")
        task = LaneTask(self.run, self.batch, context.partitionId(), self.lanes, context.attemptNumber())
        computed = staged(batches) if self.stage else batches
        stream = (ArrowRows(batch, self.topic) for batch in computed if batch.num_rows)
        factory = self.factory
        with closing(LaneLedger(factory.client, factory.brokers, factory.ledger_topic, self.group)) as ledger:
            ports = LanePorts(ledger, partial(factory.open, topics=self.topics))
            report = run_lane(task, stream, ports, floor=self.floor, before_step=traced(task, self.before_step))
        yield pa.RecordBatch.from_pydict({"report": [report.to_json()]})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _log_batch(query: str, batch: int, reports: list[LaneReport], seconds: float) -> None:
    rows = sum(report.fingerprint.rows for report in reports)
    dropped = sum(report.dropped for report in reports)
    ends = {outcome: sum(report.outcome is outcome for report in reports) for outcome in Outcome}
    lanes = ", ".join(f"{count} {outcome.value}" for outcome, count in ends.items() if count)
    log.info("query %s, batch %d: %d rows, %d dropped, lanes: %s, %.3f s", query, batch, rows, dropped, lanes, seconds)
