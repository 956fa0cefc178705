"""The process that has Spark: runs queries that the harness names, one after the other.

    python ways_worker.py MASTER [NAME=VALUE ...]

MASTER is Spark's, or the address of a Connect server (`sc://...`); the rest are settings of the application. Reads a
`Life` as JSON from each line of stdin, and answers with a line: `{"error": text or null}`. Ends with stdin.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from ways_faults import faulty_ways_format
from ways_life import FORMAT, WRITE, Life
from ways_pipelines import Frames, Pipeline
from ways_stateful import PIPELINES
from ways_uses import USES

from spark_eos import register, source_position

LIMIT_S = 90
"""No life takes this long."""
DELTA = "spark.sql.extensions"


def run(spark: SparkSession, life: Life) -> None:
    """Start a query (or a `df.write`), and wait for its end.

    Raises:
        Exception: what the query raised.
    """
    pipeline = PIPELINES[life.pipeline]
    if life.table:
        rows = spark.createDataFrame([(number,) for number in life.table], "number int")
        rows.repartition(3).write.format("delta").mode("append").save(f"{life.folder}/table")
    if life.kind == WRITE:
        _frame(spark, life, pipeline).write.format(_format(spark, life)).mode("append").options(**life.sink()).save()
        return
    query = _writer(spark, life, pipeline).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(LIMIT_S):
            raise TimeoutError("the query does not end")
        if query.exception() is not None:  # Connect's client does not raise it
            raise query.exception()
    finally:
        query.stop()


def _writer(spark: SparkSession, life: Life, pipeline: Pipeline) -> Any:
    writer = _frame(spark, life, pipeline).writeStream.outputMode(pipeline.mode).queryName(life.query_id)
    writer = writer.option("checkpointLocation", life.checkpoint)
    if life.kind != FORMAT:
        return writer.foreachBatch(USES[pipeline.use](life))
    return writer.format(_format(spark, life)).options(**life.sink())


def _format(spark: SparkSession, life: Life) -> str:
    if life.fault:
        spark.dataSource.register(faulty_ways_format(life.fault))
    return "kafka-eos-faulty" if life.fault else "kafka-eos"


def _frame(spark: SparkSession, life: Life, pipeline: Pipeline) -> DataFrame:
    """With the sink's columns. Another version of the code gives another value to the same row."""
    rows = pipeline.build(Frames(spark, life))
    value = F.concat(F.lit(f"v{life.version}|"), F.col("out")).alias("value")
    columns = [F.col("out").alias("key"), value, F.lit(life.target).alias("topic")]
    return rows.select(*columns, *([source_position()] if life.positions else []))


def session(master: str, conf: dict[str, str]) -> SparkSession:
    """The first session; those of lives are made from it."""
    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).create()
    builder = SparkSession.builder.master(master).config(map=conf)
    if DELTA in conf:
        from delta import configure_spark_with_delta_pip  # noqa: PLC0415

        builder = configure_spark_with_delta_pip(builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def fresh(spark: SparkSession, master: str, life: Life) -> SparkSession:
    """A session of its own for a life, with its settings."""
    if master.startswith("sc://"):
        made = SparkSession.builder.remote(master).create()
    else:
        made = spark.newSession()
        made._jvm.SparkSession.setActiveSession(made._jsparkSession)  # where Spark looks formats up
    for name, value in life.conf.items():
        made.conf.set(name, value)
    register(made)
    return made


def main(master: str, *given: str) -> None:
    """Until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    spark = session(master, dict(each.split("=", 1) for each in given))
    print(json.dumps({"error": None}), file=answers, flush=True)
    for line in sys.stdin:
        life, error = Life.from_json(line), None
        mine = fresh(spark, master, life)
        try:
            run(mine, life)
        except Exception as raised:
            error = str(raised)
        if master.startswith("sc://"):
            with suppress(Exception):
                mine.stop()
        print(json.dumps({"error": error}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
