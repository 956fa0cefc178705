"""Queries that take all there is, and end."""

from __future__ import annotations

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_eos.spark.versions import SPARK_41


def take_all(writer: DataStreamWriter, limit_s: float = 120) -> StreamingQuery:
    """Run a query to the end of what is available now; raises what the query raised.

    Spark 4.1 runs one batch with `availableNow=True`: there, as many batches as it takes are asked for.
    """
    if SPARK_41:
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return query
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(limit_s), "the query does not end"
    finally:
        query.stop()
    return query
