"""What streaming jobs share: the query, its log lines and a clean stop on SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from job_session import log, log_to_stderr, session
from job_settings import StreamSettings
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

BatchWriter = Callable[[DataFrame, int], Any]
LOOK_EVERY_S = 1
COUNTS = "rows"
"""Name of the observation that has a batch's counts, see `counted`."""

Stream = TypeVar("Stream", bound=StreamSettings)


class StreamJob(Protocol):
    """A streaming query: what it reads and how it writes."""

    reads: str
    """What its input is, in the plural, for the log."""

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows to write, `counted` on their way."""

    def write(self, df: DataFrame, batch_id: int) -> Any:
        """Write a micro-batch."""


def counted(rows: DataFrame, /, **counts: Column) -> DataFrame:
    """Rows whose number is logged with each batch, by kind: `counted(rows, refunds=F.count(F.lit(1)))`."""
    return rows.observe(COUNTS, *(count.alias(kind) for kind, count in counts.items()))


def streaming(make: Callable[[Stream], StreamJob]) -> Callable[[Stream], Callable[[], None]]:
    """What `job_app` is given for a streaming job."""
    return lambda settings: partial(run, settings, make(settings))


def run(settings: StreamSettings, job: StreamJob) -> None:
    """Run the query until it ends by itself (available-now) or SIGTERM asks it to.

    Raises:
        StreamingQueryException: the query failed.
    """
    log_to_stderr()
    spark = session(settings, settings.query_id)
    try:
        gate = Gate(job.write, before_refusal=lambda: _silence(spark))
        signal.signal(signal.SIGTERM, lambda *_: gate.close())
        query = _start(job.rows(spark), gate, settings)
        log.info("query %s started", settings.query_id)
        _follow(query, gate, job.reads)
        log.info("query %s ended", settings.query_id)
    finally:
        spark.stop()


def _silence(spark: SparkSession) -> None:
    """Keep the stack traces of an orderly stop out of the log."""
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class StopRequested(Exception):
    """A batch was not begun, because the job was asked to stop."""


class Gate:
    """A batch writer that can be closed: the batch at work ends as usual, and no other begins.

    `StreamingQuery.stop()` would interrupt the batch at work. A refused batch has written nothing; it comes first
    when the job is started again.
    """

    def __init__(self, write: BatchWriter, before_refusal: Callable[[], None]) -> None:
        self._write = write
        self._before_refusal = before_refusal
        self._closed = threading.Event()
        self.refused = False

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if self.closed:
            self.refused = True
            self._before_refusal()
            raise StopRequested(f"batch {batch_id} was not begun: asked to stop")
        self._write(df, batch_id)


def _start(rows: DataFrame, gate: Gate, settings: StreamSettings) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(gate).queryName(settings.query_id)
    writer = writer.option("checkpointLocation", settings.checkpoint).trigger(**settings.trigger_options)
    return writer.start()


def _follow(query: StreamingQuery, gate: Gate, reads: str) -> None:
    """Wait for the query's end and log each batch as it is reported."""
    logged = -1
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            logged = _log_batches(query, logged, reads)
            if gate.closed and not query.status["isTriggerActive"]:
                query.stop()
    except StreamingQueryException:
        if not gate.refused:
            raise
    _log_batches(query, logged, reads)


def _log_batches(query: StreamingQuery, logged: int, reads: str) -> int:
    """Log batches after the `logged` one; the newest that is logged now."""
    for progress in query.recentProgress:
        if progress.batchId <= logged or not progress.numInputRows:
            continue
        logged = progress.batchId
        counts = progress.observedMetrics.get(COUNTS)
        # A batch that was found to be committed already is not computed again, so it has no counts.
        made = ", ".join(f"{n} {kind}" for kind, n in counts.asDict().items()) if counts else "committed before"
        log.info("batch %d: %d %s, %s", logged, progress.numInputRows, reads, made)
    return logged
