"""Refunds into a Delta table, each once: the pipeline's end, where Kafka's transactions do not reach.

    python jobs/refunds_to_warehouse.py --bootstrap-servers localhost:9092 --table warehouse/refunds
    ./spark-submit.sh jobs/refunds_to_warehouse.py --config conf/production.toml

Reads committed refunds only, and writes each micro-batch in one commit of Delta's log, which knows by query, checkpoint
and batch what it has: see warehouse_table.py. All options are in conf/refunds_to_warehouse.toml.
"""

from __future__ import annotations

import json
from typing import ClassVar, Literal

from job_options import job_app
from job_runner import counted, streaming
from job_settings import Name, StreamSettings
from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from warehouse_table import OFFSET, PARTITION, TIMESTAMP, TOPIC, WarehouseTable

from spark_eos import from_json_value
from spark_eos.kafka.admin import Cluster

CORRUPT = "_corrupt_record"
EARLIEST = -2


class WarehouseSettings(StreamSettings):
    """`conf/refunds_to_warehouse.toml` explains each key."""

    file = "refunds_to_warehouse"
    delta = True

    topic: Name = Field("refunds-emitted", description="Topic of the refunds.")
    table: Name = Field(description="Folder of the Delta table.")
    columns: Name = Field(description="Fields of a refund, as DDL; new ones are added to the table.")
    on_other_checkpoint: Literal["fail", "adopt"] = Field(
        "fail", description="'adopt' for one start when the table's checkpoint is lost."
    )


class WarehouseJob:
    """Refunds in, rows of the table out.

    Args:
        settings: of the job.
    """

    reads: ClassVar[str] = "refunds"

    def __init__(self, settings: WarehouseSettings) -> None:
        self._settings = settings
        adopts = settings.on_other_checkpoint == "adopt"
        self._table = WarehouseTable(settings.table, settings.query_id, adopts)

    def rows(self, spark: SparkSession) -> DataFrame:
        settings = self._settings
        options = settings.source_options(settings.topic)
        # A checkpoint that is new to a table with rows of this topic goes on behind them. Those of another say nothing.
        if last := {p: end for (topic, p), end in self._table.ends(spark).items() if topic == settings.topic}:
            options["startingOffsets"] = self._behind(last)
        refunds = spark.readStream.format("kafka-eos").options(**options).load()
        return counted(
            warehouse_rows(refunds, settings.columns),
            rows=F.count(F.lit(1)),
            corrupt=F.count(F.col(CORRUPT)),
        )

    def _behind(self, last: dict[int, int]) -> str:
        topic = self._settings.topic
        partitions = Cluster(self._settings.client).partitions([topic])[topic] or 0  # the source tells what is missing
        return json.dumps({topic: {str(p): last.get(p, EARLIEST - 1) + 1 for p in range(partitions)}})

    def write(self, df: DataFrame, batch_id: int) -> None:
        self._table.append(df, batch_id)


def warehouse_rows(refunds: DataFrame, columns: str) -> DataFrame:
    """A refund's fields, its text where it is not one, and where it stands in Kafka."""
    parsed = refunds.select("*", from_json_value("value", columns, CORRUPT).alias("refund"))
    return parsed.select(
        "refund.*",
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIMESTAMP),
    )


app = job_app(WarehouseSettings, "Keep a Delta table of the refunds, each of them in it once.", streaming(WarehouseJob))

if __name__ == "__main__":
    app()
