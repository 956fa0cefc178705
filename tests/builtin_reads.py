"""Reads topics with Spark's own Kafka source, for comparison: a program of its own, since it needs other JARs.

    python tests/builtin_reads.py cases.json out/

cases.json: {"jars": "a.jar,b.jar", "batch": {name: options}, "stream": {name: options}}. Into out/ go, for each batch
query, its rows as Parquet (folder <name>); for all of them together, results.json: {"schemas": {name: JSON},
"tasks": {name: [[partition, first offset, last offset]]}, "ends": {name: [offsets at the end of each batch]}}.
The checkpoints of streams are in out/checkpoint-<name>.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def tasks(df: DataFrame) -> list[list[int]]:
    """Which offsets each task read."""
    found = df.groupBy(F.spark_partition_id().alias("task"), "topic", "partition").agg(F.min("offset"), F.max("offset"))
    return sorted([row[2], row[3], row[4]] for row in found.collect())


def writer(df: DataFrame, checkpoint: Path) -> DataStreamWriter:
    """A stream that is read and dropped."""
    return df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))


def ends(query: StreamingQuery) -> list[dict[str, Any]]:
    """End offsets of the batches that had rows."""
    progress = [json.loads(each.json) for each in query.recentProgress]
    return [each["sources"][0]["endOffset"] for each in progress if each["numInputRows"]]


def main(cases: dict[str, Any], out: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", cases["jars"])
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # It waits for so long, 500 ms, at every control record that ends a range.
    reading = {"kafka.fetch.max.wait.ms": "5"}
    results: dict[str, Any] = {"schemas": {}, "tasks": {}, "ends": {}}
    for name, options in cases["batch"].items():
        df = spark.read.format("kafka").options(**options, **reading).load()
        df.write.parquet(str(out / name))
        results["schemas"][name], results["tasks"][name] = df.schema.jsonValue(), tasks(df)
    for name, options in cases["stream"].items():
        df = spark.readStream.format("kafka").options(**options, **reading).load()
        query = writer(df, out / f"checkpoint-{name}").trigger(availableNow=True).start()
        query.awaitTermination()
        results["ends"][name] = ends(query)
    (out / "results.json").write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
