"""What the two jobs share: options, the Spark session, the query, its log lines and a clean stop on SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from job_settings import JobSettings, load_settings
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from refunds import output_rows

log = logging.getLogger("refunds")

BatchWriter = Callable[[DataFrame, int], Any]
LOOK_EVERY_S = 1


def job_app(doc: str, writer: Callable[[JobSettings], BatchWriter]) -> typer.Typer:
    """A command line for a job.

    Args:
        doc: what the job does, for --help.
        writer: makes the function that writes a micro-batch, from the settings.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(help=doc)
    def main(
        *,
        config: Annotated[Path | None, typer.Option(help="TOML file, laid out as the one in conf/.")] = None,
        bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers: host:port,host:port.")] = None,
        query_id: Annotated[str | None, typer.Option(help="Stable name of the query.")] = None,
        checkpoint: Annotated[str | None, typer.Option(help="Checkpoint folder.")] = None,
        max_offsets_per_trigger: Annotated[int | None, typer.Option(help="Events per batch, at most.")] = None,
        starting_offsets: Annotated[
            str | None, typer.Option(help="earliest, latest or JSON; first start only.")
        ] = None,
        trigger: Annotated[str | None, typer.Option(help="'5 seconds', or available-now.")] = None,
        master: Annotated[str | None, typer.Option(help="Spark master; not used under spark-submit.")] = None,
        source_topic: Annotated[str | None, typer.Option(help="Topic of the settlements.")] = None,
        refunds_topic: Annotated[str | None, typer.Option(help="Topic for the refunds.")] = None,
        audit_topic: Annotated[str | None, typer.Option(help="Topic for the audit rows.")] = None,
        dead_letter_topic: Annotated[str | None, typer.Option(help="Topic for malformed events.")] = None,
    ) -> None:
        options = {
            "bootstrap_servers": bootstrap_servers,
            "query_id": query_id,
            "checkpoint": checkpoint,
            "max_offsets_per_trigger": max_offsets_per_trigger,
            "starting_offsets": starting_offsets,
            "trigger": trigger,
            "master": master,
            "topics.source": source_topic,
            "topics.refunds": refunds_topic,
            "topics.audit": audit_topic,
            "topics.dead_letter": dead_letter_topic,
        }
        try:
            settings = load_settings(config, options)
            write = writer(settings)
        except ValueError as error:  # of the settings, or the connector's own for its options
            typer.echo(f"wrong settings:\n{error}", err=True)
            raise typer.Exit(2) from None
        run(settings, write)

    return app


def run(settings: JobSettings, write: BatchWriter) -> None:
    """Run the query until it ends by itself (available-now) or SIGTERM asks it to.

    Raises:
        StreamingQueryException: the query failed.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log.setLevel(logging.INFO)
    spark = _session(settings)
    try:
        gate = Gate(write, before_refusal=lambda: _silence(spark))
        signal.signal(signal.SIGTERM, lambda *_: gate.close())
        query = _start(_rows(spark, settings), gate, settings)
        log.info("query %s started, writing to %s", settings.query_id, settings.topics.refunds)
        _follow(query, gate)
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


def _session(settings: JobSettings) -> SparkSession:
    builder = SparkSession.builder.appName(settings.query_id)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit, which then knows the master
        builder = builder.master(settings.master)
        # The workers need the packages of this Python, and Spark would take the first python3 of the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable if settings.master.startswith("local") else "python3")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _rows(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """The rows to write, counted on their way by kind."""
    topics = settings.topics
    options = settings.kafka_options | {
        "subscribe": topics.source,
        "startingOffsets": settings.starting_offsets,
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
        "includeHeaders": "true",
    }
    settlements = spark.readStream.format("kafka-eos").options(**options).load()
    rows = output_rows(settlements, refunds=topics.refunds, audit=topics.audit, dead_letter=topics.dead_letter)
    kinds = {"refunds": topics.refunds, "audits": topics.audit, "dead letters": topics.dead_letter}
    return rows.observe("rows", *(F.count_if(F.col("topic") == name).alias(kind) for kind, name in kinds.items()))


def _start(rows: DataFrame, gate: Gate, settings: JobSettings) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(gate).queryName(settings.query_id)
    writer = writer.option("checkpointLocation", settings.checkpoint).trigger(**settings.trigger_options)
    return writer.start()


def _follow(query: StreamingQuery, gate: Gate) -> None:
    """Wait for the query's end and log each batch as it is reported."""
    logged = -1
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            logged = _log_batches(query, logged)
            if gate.closed and not query.status["isTriggerActive"]:
                query.stop()
    except StreamingQueryException:
        if not gate.refused:
            raise
    _log_batches(query, logged)


def _log_batches(query: StreamingQuery, logged: int) -> int:
    """Log batches after the `logged` one; the newest that is logged now."""
    for progress in query.recentProgress:
        if progress.batchId <= logged or not progress.numInputRows:
            continue
        logged = progress.batchId
        counts = progress.observedMetrics.get("rows")
        # A batch that was found to be committed already is not computed again, so it has no counts.
        made = ", ".join(f"{n} {kind}" for kind, n in counts.asDict().items()) if counts else "committed before"
        log.info("batch %d: %d settlements, %s", logged, progress.numInputRows, made)
    return logged
