"""A streaming job as a process of its own: from one topic to another, stopping at a step until it is told to go on.

    python pipe_job.py BOOTSTRAP SOURCE TARGET CHECKPOINT QUERY_ID [STEP FOLDER]

With STEP, the first lane that comes to this step makes FOLDER/reached and waits for FOLDER/go. Prints the run id, and
at the end of a query that failed its error; then it exits with 1.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from job_end import run_to_its_end

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


@dataclass(frozen=True)
class WaitAt:
    """Called before each step of a lane, in the Spark task."""

    step: str
    folder: str

    def __call__(self, step, task) -> None:
        reached, go = Path(self.folder, "reached"), Path(self.folder, "go")
        if step == self.step and not reached.exists():
            reached.touch()
            while not go.exists():
                time.sleep(0.02)


def main(bootstrap: str, source: str, target: str, checkpoint: str, query_id: str, *wait: str) -> int:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from spark_eos import KafkaSink, source_position

    # No retries: what a lane meets, the query meets.
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka-eos").options(**options).load()
    rows = rows.select("key", "value", F.lit(target).alias("topic"), source_position())
    sink = KafkaSink(
        {"kafka.bootstrap.servers": bootstrap, "query.id": query_id}, before_step=WaitAt(*wait) if wait else None
    )
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return run_to_its_end(spark, query, says_its_run=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
