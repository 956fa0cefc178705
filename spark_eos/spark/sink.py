"""The exactly-once sink: `df.writeStream.foreachBatch(KafkaSink({...}))`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from threading import Lock
from time import monotonic
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_eos.options import SinkOptions
from spark_eos.protocol.names import Run
from spark_eos.protocol.ports import BeforeStep
from spark_eos.protocol.positions import Fingerprint
from spark_eos.protocol.refusals import at_work
from spark_eos.protocol.stats import Stopwatch
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.columns import sink_columns
from spark_eos.spark.context import MicroBatch, micro_batch
from spark_eos.spark.lanes import LaneJob, drain
from spark_eos.spark.report import BatchReport, OnBatch, batch_report, tell
from spark_eos.spark.run import SinkRun

log = logging.getLogger("spark_eos.sink")

_lock = Lock()


class KafkaSink:
    """Writes each micro-batch to Kafka exactly once.

    Each partition of the micro-batch is one Kafka transaction that also commits the ledger row and the source
    offsets. Columns: key, value, topic, partition, headers as in Spark's Kafka sink, and `timestamp` and `source`
    (see `source_position`).

    Args:
        options: names and values, as of a Spark sink. `kafka.bootstrap.servers` is required, `query.id` wise;
            all are in `spark_eos.options.SINK_OPTIONS`.
        before_step: called in the Spark task with a step's name and the `LaneTask`, before each step of the lane
            ("peek", "fence", "check", "write", "flush", "offsets", "commit", and "report" after the last): for
            tracing, and to inject faults in tests. Must pickle.
        on_batch: called on the driver with the `BatchReport` of each batch, once it is sealed: a function of yours,
            or `spark_eos.metrics.BatchMetrics`. The batch is written by then: an error of it is logged and passed
            over. A driver that dies after the seal does not make up for the call.

    Raises:
        OptionError: at once, for options that are unknown, reserved, missing or wrong.

    Every other error comes out of the query (as the cause of its StreamingQueryException); the tree is in
    `spark_eos.errors`.
    """

    def __init__(
        self, options: Mapping[str, Any], *, before_step: BeforeStep | None = None, on_batch: OnBatch | None = None
    ) -> None:
        self.options = SinkOptions.of(options)
        self._before_step, self._on_batch = before_step, on_batch
        self._writers: dict[str, RunWriter] = {}

    def __repr__(self) -> str:
        return f"KafkaSink({self.options!r})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_writers": {}}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; what `foreachBatch` calls."""
        batch = micro_batch(df, batch_id, self.options)
        rows = sink_columns(df, self.options)
        if self.options.commit_scope == "batch":
            rows = rows.coalesce(1)
        lanes = batch.lanes(rows)
        with _alone(self.options.query_id or batch.checkpoint, batch.run):
            report = self._writer_of(batch).write(batch, rows, lanes)
        if report is not None:
            tell(report, self._on_batch)

    def _writer_of(self, batch: MicroBatch) -> RunWriter:
        """The query's; a sink without a query.id may be that of several queries, each with its own thread."""
        run = Run(self.options.query_id or batch.checkpoint, batch.checkpoint, batch.run)
        known = self._writers.get(batch.checkpoint)
        if known is not None and known.run == run:
            return known
        if known is not None:
            del self._writers[batch.checkpoint]
            known.close()
        self._writers[batch.checkpoint] = self._new_writer(run)
        return self._writers[batch.checkpoint]

    def _new_writer(self, run: Run) -> RunWriter:
        return _InTasks(run, self.options, self._before_step)


_at_work: set[tuple[str, str]] = set()
"""Query and run of each call of a sink in this process."""


@contextmanager
def _alone(query: str, run: str) -> Iterator[None]:
    """Hold that no other thread writes by the same name: each would take the other's batch for its own.

    Raises:
        SecondWrite: one does.
    """
    key = query, run
    with _lock:
        if key in _at_work:
            raise at_work(query)
        _at_work.add(key)
    try:
        yield
    finally:
        with _lock:
            _at_work.discard(key)


class RunWriter(Protocol):
    """One run of one query: how its batches are written."""

    run: Run

    def write(self, batch: MicroBatch, rows: DataFrame, lanes: int | None) -> BatchReport | None:
        """Open, run the lanes, seal; None if it was sealed before."""

    def close(self) -> None:
        """Another run begins, of the same sink."""


class _InTasks:
    """The lanes are Spark's tasks: `mapInArrow`."""

    def __init__(self, run: Run, options: SinkOptions, before_step: BeforeStep | None) -> None:
        self.run, self._before_step = run, before_step
        self._adopts, self._one_lane = options.adopts, options.commit_scope == "batch"
        self._sink = SinkRun(run, options)

    def write(self, batch: MicroBatch, rows: DataFrame, lanes: int | None) -> BatchReport | None:
        """See `RunWriter`."""
        watch = Stopwatch(monotonic)
        watch.begin("open")
        logged = batch.logged(stateful=self._adopts)
        plan = self._sink.open(batch.batch, lanes, logged)
        job = self._sink.job(batch.batch, lanes, logged, plan, self._before_step)
        if plan.skip:
            rows.mapInArrow(_drained, "nothing int").collect()
        elif plan.sealed or plan.committed:
            self._sink.protocol.compare(batch.batch, plan, _compared(job, rows))
        elif not self._one_lane:
            batch.check_split()
        if plan.skip or plan.sealed:
            log.info("query %s, batch %d: sealed before, skipped", self.run.query, batch.batch)
            return None
        watch.begin("lanes")
        reports = self._run_lanes(job, rows)
        watch.begin("seal")
        self._sink.seal(batch.batch, reports, len(reports) if lanes is None else lanes, logged, plan)
        return batch_report(self.run, batch.batch, reports, watch.stop(), logged.planned_at)

    def _run_lanes(self, job: LaneJob, rows: DataFrame) -> list[LaneReport]:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"report": [job.write(batches).to_json()]})

        try:
            found = rows.mapInArrow(write, "report string").collect()
        except PySparkException as error:
            # The lane's own error is in the text of Spark's; a run that was taken over gets a plain one on top.
            self._sink.protocol.raise_if_taken_over(job.batch, error)
            raise
        return [LaneReport.from_json(row.report) for row in found]

    def close(self) -> None:
        """See `RunWriter`."""
        self._sink.close()


def _compared(job: LaneJob, rows: DataFrame) -> dict[int, Fingerprint]:
    """What lanes have now that must be what is committed; nothing is written."""

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (found := job.compare(batches)) is not None:
            lane, fingerprint = found
            yield pa.RecordBatch.from_pydict({"lane": [lane], "found": [json.dumps(astuple(fingerprint))]})

    found = rows.mapInArrow(compare, "lane long, found string").collect()
    return {row.lane: Fingerprint(*json.loads(row.found)) for row in found}


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    drain(batches)
    return iter(())
