"""What the driver knows of the micro-batch that `foreachBatch` hands over."""

from __future__ import annotations

from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from spark_eos.errors import UnsupportedError, UsageError
from spark_eos.options import SinkOptions
from spark_eos.spark.logged import UNKNOWN, LoggedBatch
from spark_eos.spark.versions import offset_metadata

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Spark runs every job of a streaming query in a job group named by the run id."""


class MicroBatch(Protocol):
    """One micro-batch on the driver: its id, and the ids of the query (the checkpoint's) and of the run."""

    batch: int
    checkpoint: str
    run: str

    def lanes(self, rows: DataFrame) -> int | None:
        """How many partitions a DataFrame has that was derived from the batch; None if they can't be known yet.

        Raises:
            UnsupportedError: AQE may choose another number at each run (it does so for a shuffle made inside
                foreachBatch; the micro-batch's own plan has none).
        """

    def logged(self) -> LoggedBatch:
        """The batch's entry in the query's offset log."""


def micro_batch(df: DataFrame, batch: int, options: SinkOptions) -> MicroBatch:
    """The batch that `foreachBatch` hands over.

    Args:
        df: as handed over, or derived from it.
        batch: its id.
        options: the sink's.

    Raises:
        UnsupportedError: speculation, or a Connect session that does not tell which query it is.
        UsageError: not called by `foreachBatch`.
    """
    session = df.sparkSession
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise UnsupportedError(
            "spark.speculation is on: two attempts of one task would fence each other",
            do="Set spark.speculation=false for this application.",
        )
    if hasattr(session, "_jsparkSession"):
        return ClassicBatch(session, batch)
    return ConnectBatch(session, batch, options)


def _refuse_aqe(plan: str) -> None:
    if "AdaptiveSparkPlan" in plan:
        raise UnsupportedError(
            "the batch was shuffled inside foreachBatch with adaptive query execution on, which may split its "
            "replay into another number of lanes",
            do="Shuffle before writeStream, or set spark.sql.adaptive.enabled=false.",
        )


class ClassicBatch:
    """In a session with a JVM, which is asked."""

    def __init__(self, session: SparkSession, batch: int) -> None:
        self.batch, self._session = batch, session
        self._context = session.sparkContext
        self.checkpoint = self._property(QUERY_ID)
        self.run = self._property(RUN_ID)

    def _property(self, name: str) -> str:
        found = self._context.getLocalProperty(name)
        if not found:
            raise UsageError(
                "the sink was called outside a streaming query",
                do="Hand it to writeStream.foreachBatch(...), or call it from your own foreachBatch function. A batch "
                'DataFrame is written with df.write.format("kafka-eos").',
            )
        return str(found)

    def lanes(self, rows: DataFrame) -> int:
        """See `MicroBatch`."""
        plan = rows._jdf.queryExecution()
        _refuse_aqe(plan.executedPlan().toString())
        return int(plan.toRdd().getNumPartitions())

    def logged(self) -> LoggedBatch:
        """See `MicroBatch`.

        Spark writes the log before the batch starts. It is reached through the session state that all sessions of
        the application share, since `foreachBatch` runs in a cloned one.
        """
        jvm: Any = self._context._jvm
        queries = self._session._jsparkSession.sharedState().activeStreamingQueries()
        query = queries.get(jvm.java.util.UUID.fromString(self.checkpoint))
        entry = query.offsetLog().get(self.batch) if query is not None else None
        if entry is None or entry.isEmpty():
            return UNKNOWN
        sources, metadata = entry.get().offsets(), offset_metadata(entry.get())
        found = (sources.apply(index) for index in range(sources.size()))
        planned_at = metadata.get().batchTimestampMs() / 1000 if metadata.isDefined() else None
        return LoggedBatch([str(each.get().json()) for each in found if each.isDefined()], planned_at)


class ConnectBatch:
    """In a Spark Connect session: the function runs in a process beside the server, and sees only its queries."""

    def __init__(self, session: SparkSession, batch: int, options: SinkOptions) -> None:
        self.batch = batch
        if options.adopts:
            raise UnsupportedError(
                "on.other.checkpoint is 'adopt', and foreachBatch can't see the query's offset log in a Spark Connect "
                "session",
                do='Write with writeStream.format("kafka-eos"), at least for the run that adopts.',
            )
        queries = session.streams.active
        named = [query for query in queries if query.name == options.query_id] or queries
        if len(named) != 1:
            raise UnsupportedError(
                f"{len(queries)} queries run in this Spark Connect session, and none tells that it is this one",
                do="Set query.id, and give the query the same name: writeStream.queryName(...).",
            )
        self.checkpoint, self.run = str(named[0].id), str(named[0].runId)

    def lanes(self, rows: DataFrame) -> None:
        """See `MicroBatch`."""
        _refuse_aqe(rows._explain_string())  # type: ignore[operator]

    def logged(self) -> LoggedBatch:
        """See `MicroBatch`."""
        return UNKNOWN
