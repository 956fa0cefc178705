"""A streaming job on a cluster, as a process of its own: from one topic to another, slow at one row, once.

    python cluster_job.py BOOTSTRAP SOURCE TARGET CHECKPOINT QUERY_ID WAY FOLDER

WAY is foreachBatch or format. The first task that comes to the row `slow` writes its pid to FOLDER/reached and waits
for FOLDER/go. At the end of a query that failed it prints its error, and exits with 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from job_end import run_to_its_end
from quick_spark import QUICK

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

Batches = Iterator[pa.RecordBatch]


def slow_once(folder: str) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: the rows as they are."""

    def wait(batches: Batches) -> Batches:
        for batch in batches:
            if b"slow" in batch.column("key").to_pylist() and not Path(folder, "reached").exists():
                Path(folder, "pid").write_text(str(os.getpid()))
                Path(folder, "pid").rename(Path(folder, "reached"))
                while not Path(folder, "go").exists():
                    time.sleep(0.05)
            yield batch

    return wait


def main(bootstrap: str, source: str, target: str, checkpoint: str, query_id: str, way: str, folder: str) -> int:
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from spark_eos import KafkaSink, source_position

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config(map=QUICK)
    builder = builder.config("spark.driver.memory", "512m").config("spark.executor.memory", "512m")
    # A lane is many batches of rows, so that some are sent while a later one is waited for.
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "10").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    kafka = {"kafka.bootstrap.servers": bootstrap}
    read = spark.readStream.format("kafka-eos").options(**kafka, subscribe=source, startingOffsets="earliest").load()
    rows = read.select("key", "value", F.lit(target).alias("topic"), source_position())
    rows = rows.mapInArrow(slow_once(folder), rows.schema)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    options = kafka | {"query.id": query_id}
    if way == "format":
        writer = writer.format("kafka-eos").options(**options)
    else:
        writer = writer.foreachBatch(KafkaSink(options))
    return run_to_its_end(spark, writer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
