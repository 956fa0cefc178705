"""A streaming job of a Spark Connect client, as a process of its own: from one topic to another.

    python connect_job.py URL BOOTSTRAP SOURCE TARGET CHECKPOINT QUERY_ID WAY [OPTION=VALUE ...]

WAY is foreachBatch or format. At the end of a query that failed it prints its error, and exits with 1.
"""

from __future__ import annotations

import sys

from job_end import run_to_its_end


def main(url: str, bootstrap: str, source: str, target: str, checkpoint: str, query_id: str, way: str, *given) -> int:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from spark_eos import KafkaSink, source_position

    spark = SparkSession.builder.remote(url).getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}
    read = spark.readStream.format("kafka-eos").options(**kafka, subscribe=source, startingOffsets="earliest")
    rows = read.load().select("key", "value", F.lit(target).alias("topic"), source_position())
    options = kafka | {"query.id": query_id} | dict(each.split("=", 1) for each in given)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if way == "format":
        writer = writer.format("kafka-eos").options(**options)
    else:
        writer = writer.foreachBatch(KafkaSink(options))
    return run_to_its_end(spark, writer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
