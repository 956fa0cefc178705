"""The writer of the format `kafka-eos`: the sink where Spark calls it, in three kinds of processes.

For each batch Spark makes a writer on the driver (the batch is taken over and opened there), pickles it into tasks
(each writes a lane), and hands the lanes' messages to `commit` in another process on the driver (the batch is sealed
there). No process lives as long as the run, so each batch is a run of its own in the ledger: see
`spark_eos.protocol.driver`.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_eos.errors import OptionError, SparkEosError, UsageError
from spark_eos.options import SinkOptions
from spark_eos.protocol.batch import BatchPlan
from spark_eos.protocol.names import Run
from spark_eos.protocol.reports import check_present
from spark_eos.protocol.stats import Stopwatch
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.checkpoint import Checkpoint
from spark_eos.spark.columns import check_columns
from spark_eos.spark.context import BATCH_ID, QUERY_ID, speculation
from spark_eos.spark.deferred import Deferred
from spark_eos.spark.lanes import LaneJob, drain, task_context
from spark_eos.spark.logged import LoggedBatch
from spark_eos.spark.report import batch_report, tell
from spark_eos.spark.run import SinkRun, policy_of

SPARKS_OWN = {"checkpointlocation", "queryname", "path"}
"""Options of `writeStream` itself, which Spark hands to the format as well."""

A_WRITE = LoggedBatch({"0": json.dumps("a batch write")}, listings={"0": ""})
"""A batch write is batch 0 of a query of its own, and what it is made of is not asked once it is whole."""


@dataclass
class LaneMessage(WriterCommitMessage):
    """What a task tells `commit`.

    Args:
        run: whose batch it is.
        report: of the lane; None where the batch was sealed before, or the lane is deferred.
        replay: some lanes had committed the batch before, so what they have now must be looked at as a whole.
        deferred: a lane that is to be written once that is known.
    """

    run: Run
    report: LaneReport | None = None
    replay: bool = False
    deferred: Deferred | None = None


@dataclass(frozen=True)
class OpenBatch:
    """A batch that is open: what its tasks get."""

    job: LaneJob

    def write(self, batches: Iterator[pa.RecordBatch]) -> LaneMessage:
        """The body of a task.

        A batch that is half-committed comes back in lanes of which nobody knows how many there were. So lanes that
        have committed it show here that they have the same rows, the others hand theirs on to `commit`, and only when
        all have shown it are the others written.
        """
        _refuse_speculation()
        job, plan = self.job, self.job.plan
        lower = (batch.rename_columns([name.lower() for name in batch.schema.names]) for batch in batches)
        if plan.skip:
            drain(lower)
            return LaneMessage(job.run)
        half = bool(plan.committed) and not plan.sealed
        if half and (lane := task_context().partitionId()) not in plan.committed:
            return LaneMessage(job.run, replay=True, deferred=Deferred.of(job, lane, lower))
        return LaneMessage(job.run, job.write(lower), half or plan.sealed)


def open_batch(run: Run, batch: int, logged: LoggedBatch, options: SinkOptions) -> OpenBatch:
    """Take over, and decide what becomes of a batch; errors as of `QueryRun.open`."""
    sink = SinkRun(run, options, single=True)
    try:
        return OpenBatch(sink.job(batch, None, logged, sink.open(batch, None, logged)))
    finally:
        sink.close()


def seal_batch(
    messages: Sequence[WriterCommitMessage | None], batch: int, logged: LoggedBatch, options: SinkOptions
) -> None:
    """Note that a batch is whole, when all of its tasks have told so; errors as of `QueryRun.seal`.

    Lanes that were deferred are written here first.
    """
    told = [message for message in messages if isinstance(message, LaneMessage)]
    deferred = [message.deferred for message in told if message.deferred is not None]
    reports = [message.report for message in told if message.report is not None]
    if not reports and not deferred:
        return  # sealed before
    sink = SinkRun(told[0].run, options, single=True)
    watch = Stopwatch(monotonic)
    try:
        committed = sink.protocol.resume(batch, lanes=any(message.replay for message in told))
        check_present(committed, reports, keep=policy_of(options).may_keep)
        watch.begin("lanes")
        reports += [each.write() for each in deferred]
        watch.begin("seal")
        sink.seal(batch, reports, len(messages), logged, BatchPlan())
    except SparkEosError as error:
        raise error.at(told[0].run.query, batch) from error.__cause__
    finally:
        sink.close()
    tell(batch_report(told[0].run, batch, reports, watch.stop(), logged.planned_at), None)


def seal_without_lanes(run: Run, batch: int, logged: LoggedBatch, options: SinkOptions) -> None:
    """The same of a batch without partitions, of which no task has told anything."""
    sink = SinkRun(run, options, single=True)
    try:
        plan = sink.open(batch, 0, logged)
        sink.protocol.compare(batch, plan, {})
        if not plan.skip:
            sink.seal(batch, [], 0, logged, plan)
    finally:
        sink.close()


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
        batch = checkpoint.newest()
        return open_batch(self._new_run(checkpoint), batch, checkpoint.logged(batch), self._options)

    def _new_run(self, checkpoint: Checkpoint) -> Run:
        query = checkpoint.query_id()
        return new_run(self._options.query_id or query, query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LaneMessage:
        """One lane's attempt, in a task."""
        if self._opened is None:
            raise AssertionError("tasks get the writer that was opened")
        _check_identity(self._opened.job, self._location)
        return self._opened.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have succeeded: seal."""
        checkpoint = Checkpoint(self._location)
        logged = checkpoint.logged(batchId)
        if messages:
            seal_batch(messages, batchId, logged, self._options)
        else:
            seal_without_lanes(self._new_run(checkpoint), batchId, logged, self._options)

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
        write = self._options.write_id or f"write-{uuid.uuid4().hex}"
        # In a group of its own a write needs no other name; rows of version 2 tell nobody whose the group is.
        run = new_run(write, f"write {write}" if self._options.group_id else "write")
        self._opened = open_batch(run, 0, A_WRITE, self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LaneMessage:
        """One lane's attempt, in a task; nothing of a write that is whole already."""
        if self._opened.job.plan.skip:
            return LaneMessage(self._opened.job.run)
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
    context = task_context()
    told = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if told != (job.run.checkpoint, str(job.batch)):
        raise UsageError(
            f"checkpointLocation {location} is at batch {job.batch} of query {job.run.checkpoint}, and this task is of "
            f"batch {told[1]} of query {told[0]}",
            do="Give the query a checkpoint of its own, as a full URI if the path alone names another file system.",
        )


def _refuse_speculation() -> None:
    """Spark tells a format no settings on the driver, and tasks those that are set."""
    if str(task_context().getLocalProperty("spark.speculation")).lower() == "true":
        raise speculation()
