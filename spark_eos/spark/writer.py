"""The writer of the format `kafka-eos`: the sink where Spark calls it, in three kinds of processes.

For each batch Spark makes a writer on the driver (the batch is taken over and opened there), pickles it into tasks
(each writes a lane), and hands the lanes' messages to `commit` in another process on the driver (the batch is sealed
there). No process lives as long as the run, so each batch is a run of its own in the ledger: see
`spark_eos.protocol.driver`.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_eos.errors import OptionError, SparkEosError, UsageError
from spark_eos.options import SinkOptions
from spark_eos.protocol.names import Run
from spark_eos.protocol.stats import Stopwatch
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.checkpoint import Checkpoint
from spark_eos.spark.columns import check_columns
from spark_eos.spark.context import BATCH_ID, QUERY_ID
from spark_eos.spark.lanes import LaneJob, drain
from spark_eos.spark.logged import LoggedBatch
from spark_eos.spark.report import batch_report, tell
from spark_eos.spark.run import SinkRun

SPARKS_OWN = {"checkpointlocation", "queryname", "path"}
"""Options of `writeStream` itself, which Spark hands to the format as well."""

A_WRITE = LoggedBatch(['"a batch write"'])
"""A batch write is batch 0 of a query of its own, and what it is made of is not asked."""


@dataclass
class LaneMessage(WriterCommitMessage):
    """What a task tells `commit`; no report where the batch was sealed before."""

    run: Run
    report: LaneReport | None


@dataclass(frozen=True)
class OpenBatch:
    """A batch that is open: what its tasks get, or `skip` where there is nothing left to do."""

    job: LaneJob
    skip: bool

    def write(self, batches: Iterator[pa.RecordBatch]) -> LaneMessage:
        """The body of a task."""
        lower = (batch.rename_columns([name.lower() for name in batch.schema.names]) for batch in batches)
        return LaneMessage(self.job.run, self.job.write(lower))


def open_batch(run: Run, batch: int, logged: LoggedBatch, options: SinkOptions) -> OpenBatch:
    """Take over, and decide what becomes of a batch; errors as of `QueryRun.open`."""
    sink = SinkRun(run, options, single=True)
    try:
        plan = sink.open(batch, None, logged)
        return OpenBatch(sink.job(batch, None, logged, plan), plan.skip)
    finally:
        sink.close()


def seal_batch(
    messages: Sequence[WriterCommitMessage | None], batch: int, logged: LoggedBatch, options: SinkOptions
) -> None:
    """Note that a batch is whole, when all of its tasks have told so; errors as of `QueryRun.seal`."""
    told = [message for message in messages if isinstance(message, LaneMessage)]
    reports = [message.report for message in told if message.report is not None]
    if not reports:
        # Sealed before, or a batch without partitions: Spark has run no task that could name the run.
        return
    run = told[0].run
    sink = SinkRun(run, options, single=True)
    watch = Stopwatch(monotonic)
    watch.begin("seal")
    try:
        sink.protocol.resume(batch)
        sink.seal(batch, reports, len(messages), logged)
    finally:
        sink.close()
    tell(batch_report(run, batch, reports, watch.stop(), logged.planned_at), None)


def new_run(query: str, checkpoint: str) -> Run:
    """A run of one batch; its name tells the operator which driver it is on."""
    return Run(query, checkpoint, f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}")


class KafkaEosStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("kafka-eos")`.

    Args:
        schema: of what the user writes.
        given: the options, Spark's own among them.
        opens: whether this is the writer that tasks get, and not the one that commits.

    Raises:
        SparkEosError: the batch can't be opened.
    """

    def __init__(self, schema: StructType, given: dict[str, str], *, opens: bool) -> None:
        self._options = SinkOptions.of({name: text for name, text in given.items() if name.lower() not in SPARKS_OWN})
        _check(schema, self._options)
        self._location = {name.lower(): text for name, text in given.items()}.get("checkpointlocation")
        self._opened = self._open() if opens else None

    def _open(self) -> OpenBatch:
        checkpoint = Checkpoint(self._location)
        query, batch = checkpoint.query_id(), checkpoint.newest()
        run = new_run(self._options.query_id or query, query)
        return open_batch(run, batch, checkpoint.logged(batch), self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LaneMessage:
        """One lane's attempt, in a task."""
        if self._opened is None:
            raise AssertionError("tasks get the writer that was opened")
        _check_identity(self._opened.job, self._location)
        if self._opened.skip:
            drain(iterator)
            return LaneMessage(self._opened.job.run, None)
        return self._opened.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have succeeded: seal."""
        seal_batch(messages, batchId, Checkpoint(self._location).logged(batchId), self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: lanes are aborted, or committed and skipped when the batch is run again."""


class KafkaEosWriter(DataSourceArrowWriter):
    """`df.write.format("kafka-eos")`: one transaction for each partition.

    Args:
        schema: of what the user writes.
        given: the options.

    Raises:
        SparkEosError: the write can't begin.
    """

    def __init__(self, schema: StructType, given: dict[str, str]) -> None:
        self._options = SinkOptions.of(given, "write")
        _check(schema, self._options)
        run = new_run(self._options.write_id or f"write-{uuid.uuid4().hex}", "write")
        self._opened = open_batch(run, 0, A_WRITE, self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LaneMessage:
        """One lane's attempt, in a task; nothing of a write that is whole already."""
        if self._opened.skip:
            return LaneMessage(self._opened.job.run, None)
        return self._opened.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have succeeded: seal, so that a rerun with the same write.id does nothing."""
        seal_batch(messages, 0, A_WRITE, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo: what is committed stays, and a rerun with the same write.id adds what is not."""


def _check(schema: StructType, options: SinkOptions) -> None:
    if options.commit_scope == "batch":
        raise OptionError(
            "option commit.scope is 'batch', and a format can't change how many partitions Spark gives it",
            do="Leave it out, and add coalesce(1) before the sink. foreachBatch(KafkaSink(...)) does that by itself.",
        )
    check_columns(schema, options)


def _check_identity(job: LaneJob, location: str | None) -> None:
    """Hold that the checkpoint that was read is the one Spark uses for this batch."""
    context = TaskContext.get()
    if context is None:
        raise SparkEosError("a lane is written by a Spark task")
    told = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if told != (job.run.checkpoint, str(job.batch)):
        raise UsageError(
            f"checkpointLocation {location} is at batch {job.batch} of query {job.run.checkpoint}, and this task is of "
            f"batch {told[1]} of query {told[0]}",
            do="Give the query a checkpoint of its own, as a full URI if the path alone names another file system.",
        )
