"""What the driver knows of the micro-batch that `foreachBatch` hands over."""

from __future__ import annotations

import re
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from spark_eos.errors import UnsupportedError, UsageError
from spark_eos.options import SinkOptions
from spark_eos.spark.logged import UNKNOWN, LoggedBatch, SourceEnds, initial_offsets, listings
from spark_eos.spark.versions import offset_metadata

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Spark runs every job of a streaming query in a job group named by the run id."""

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
"""On by default since Spark 4.1 (SPARK-53941)."""


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

    def check_split(self) -> None:
        """Hold that the batch itself has the same number of partitions each time that it is done.

        Raises:
            UnsupportedError: AQE has chosen it, for this time.
        """

    def logged(self, *, stateful: bool = False) -> LoggedBatch:
        """The batch's entry in the query's offset log.

        Args:
            stateful: whether to look if the checkpoint has state.
        """


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
        raise speculation()
    if hasattr(session, "_jsparkSession"):
        return ClassicBatch(session, batch)
    return ConnectBatch(session, batch, options)


def speculation() -> UnsupportedError:
    """The error for an application with speculation."""
    return UnsupportedError(
        "spark.speculation is on: two attempts of one task would fence each other",
        do="Set spark.speculation=false for this application.",
    )


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
                do="Hand it to writeStream.foreachBatch(...), or call it from your own foreachBatch function: in its "
                "thread, or in a pyspark.InheritableThread. A batch DataFrame is written with "
                'df.write.format("kafka-eos").',
            )
        return str(found)

    def lanes(self, rows: DataFrame) -> int:
        """See `MicroBatch`."""
        plan = rows._jdf.queryExecution()
        _refuse_aqe(plan.executedPlan().toString())
        return int(plan.toRdd().getNumPartitions())

    def check_split(self) -> None:
        """See `MicroBatch`.

        The batch that `foreachBatch` gets is computed by a plan of its own, which the query knows.
        """
        query = self._query()
        execution = query.lastExecution() if query is not None else None
        if execution is None:
            return
        if _varies(str(execution.executedPlan().toString())):
            raise UnsupportedError(
                "adaptive query execution shuffles this stream's batches (Spark does so since 4.1), and splits each "
                "into as many lanes as its data and the cores suggest: a batch that is done again might have others",
                do=f"Set {STATELESS_AQE}=false for this query's session before it starts; the number of lanes is "
                "spark.sql.shuffle.partitions then.",
            )

    def logged(self, *, stateful: bool = False) -> LoggedBatch:
        """See `MicroBatch`.

        Spark writes the log before the batch starts. It is reached through the session state that all sessions of
        the application share, since `foreachBatch` runs in a cloned one.
        """
        query = self._query()
        entry = query.offsetLog().get(self.batch) if query is not None else None
        if entry is None or entry.isEmpty():
            return UNKNOWN
        ends, metadata = _source_ends(entry.get()), offset_metadata(entry.get())
        planned_at = metadata.get().batchTimestampMs() / 1000 if metadata.isDefined() else None
        earlier = query.offsetLog().get(self.batch - 1) if self.batch else None
        before = _source_ends(earlier.get()) if earlier is not None and earlier.isDefined() else {}
        files = HadoopFiles(self._session, str(query.resolvedCheckpointRoot()))
        found = listings(before, ends, files.read)
        initial = {} if self.batch else initial_offsets(ends, files.read)
        return LoggedBatch(ends, planned_at, before, found, stateful and files.exists("state"), initial)

    def _query(self) -> Any:
        jvm: Any = self._context._jvm
        queries = self._session._jsparkSession.sharedState().activeStreamingQueries()
        return queries.get(jvm.java.util.UUID.fromString(self.checkpoint))


def _varies(plan: str) -> bool:
    """Whether an executed plan has a shuffle whose number of partitions AQE has chosen.

    Not of repartition(n), nor of what is broadcast: a table that the stream is joined with.
    """
    final = plan.split("== Initial Plan ==", maxsplit=1)[0]
    broadcast: int | None = None
    for line in final.splitlines() if "AdaptiveSparkPlan" in final else ():
        prefix, node = re.match(r"([ :+-]*)(.*)", line).groups()  # type: ignore[union-attr]
        if broadcast is not None and len(prefix) > broadcast:
            continue
        broadcast = len(prefix) if node.startswith(("BroadcastQueryStage", "BroadcastExchange")) else None
        if node.startswith("Exchange ") and "REPARTITION_BY_NUM" not in node:
            return True
    return False


def _source_ends(entry: Any) -> SourceEnds:
    """The sources of an entry of the offset log, by name, whatever `spark.sql.streaming.offsetLog.formatVersion`."""
    if entry.getClass().getSimpleName() == "OffsetMap":
        pairs = entry.offsetsMap().toSeq()
        named = [(pair._1(), pair._2()) for pair in (pairs.apply(index) for index in range(pairs.size()))]
    else:
        offsets = entry.offsets()
        named = [(index, offsets.apply(index)) for index in range(offsets.size())]
    return {str(name): str(each.get().json()) for name, each in named if each.isDefined()}


class HadoopFiles:
    """A folder as Spark's JVM sees it.

    Args:
        session: a session with a JVM.
        root: the folder.
    """

    def __init__(self, session: SparkSession, root: str) -> None:
        self._session, self._root = session, root
        self._jvm: Any = session.sparkContext._jvm

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        path, files = self._at(name)
        return bool(files.exists(path))

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is no such file."""
        path, files = self._at(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}")
        return path, path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())


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

    def check_split(self) -> None:
        """See `MicroBatch`: the plan of the query can't be seen."""

    def logged(self, *, stateful: bool = False) -> LoggedBatch:  # noqa: ARG002
        """See `MicroBatch`."""
        return UNKNOWN
