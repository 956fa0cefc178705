"""What the driver knows of the micro-batch that `foreachBatch` hands over."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame

from spark_eos.errors import UnsupportedError, UsageError
from spark_eos.protocol.names import Run
from spark_eos.protocol.positions import Offsets, offsets_in_log

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Spark runs every job of a streaming query in a job group named by the run id."""


class MicroBatch:
    """One micro-batch on the driver.

    Args:
        df: as handed to `foreachBatch`, or derived from it.
        batch: its id.

    Raises:
        UnsupportedError: a Spark Connect session, or speculation.
        UsageError: not called by `foreachBatch`.
    """

    def __init__(self, df: DataFrame, batch: int) -> None:
        self.batch = batch
        self._session = df.sparkSession
        if not hasattr(self._session, "_jsparkSession"):
            raise UnsupportedError(
                "the sink can't see the query's ids in a Spark Connect session",
                do="Run the query in a classic session (spark-submit, or a cluster in dedicated access mode).",
            )
        self._context = self._session.sparkContext
        if str(self._context.getConf().get("spark.speculation", "false")).lower() == "true":
            raise UnsupportedError(
                "spark.speculation is on: two attempts of one task would fence each other",
                do="Set spark.speculation=false for this application.",
            )
        self.checkpoint = self._property(QUERY_ID)
        self.run = self._property(RUN_ID)

    def _property(self, name: str) -> str:
        found = self._context.getLocalProperty(name)
        if not found:
            raise UsageError(
                "the sink was called outside a streaming query",
                do="Hand it to writeStream.foreachBatch(...), or call it from your own foreachBatch function.",
            )
        return str(found)

    def run_of(self, query: str | None) -> Run:
        """Whose batch it is; the query id defaults to the checkpoint's."""
        return Run(query or self.checkpoint, self.checkpoint, self.run)

    def lanes(self, rows: DataFrame) -> int:
        """How many partitions a DataFrame has that was derived from the batch.

        Raises:
            UnsupportedError: AQE may choose another number at each run (it does so for a shuffle made inside
                foreachBatch; the micro-batch's own plan has none).
        """
        plan = rows._jdf.queryExecution()
        if "AdaptiveSparkPlan" in plan.executedPlan().toString():
            raise UnsupportedError(
                "the batch was shuffled inside foreachBatch with adaptive query execution on, which may split its "
                "replay into another number of lanes",
                do="Shuffle before writeStream, or set spark.sql.adaptive.enabled=false.",
            )
        return int(plan.toRdd().getNumPartitions())

    def end_offsets(self) -> Offsets:
        """The batch's end offsets in Kafka, from the query's offset log; empty where its sources are others.

        Spark writes the log before the batch starts. It is reached through the session state that all sessions of
        the application share, since `foreachBatch` runs in a cloned one.
        """
        offsets: Offsets = {}
        for text in self._offset_log():
            offsets |= offsets_in_log(json.loads(text))
        return offsets

    def planned_at(self) -> float | None:
        """When Spark fixed which rows are in the batch, seconds since 1970, from the query's offset log."""
        entry = self._logged()
        if entry is None or entry.metadataOpt().isEmpty():
            return None
        return float(entry.metadataOpt().get().batchTimestampMs()) / 1000

    def _logged(self) -> Any:
        """The batch's entry in the query's offset log, an OffsetSeq of the JVM; None without one."""
        jvm: Any = self._context._jvm
        queries = self._session._jsparkSession.sharedState().activeStreamingQueries()
        query = queries.get(jvm.java.util.UUID.fromString(self.checkpoint))
        entry = query.offsetLog().get(self.batch) if query is not None else None
        return entry.get() if entry is not None and entry.isDefined() else None

    def _offset_log(self) -> list[str]:
        entry = self._logged()
        if entry is None:
            return []
        sources = entry.offsets()
        found = (sources.apply(index) for index in range(sources.size()))
        return [str(each.get().json()) for each in found if each.isDefined()]
