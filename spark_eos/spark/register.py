"""Make the format known to a session, and carry source positions from the source to the sink."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from spark_eos.spark.source import KafkaEosDataSource


def register(spark: SparkSession) -> None:
    """Make `format("kafka-eos")` known to a session.

    Spark finds it by itself where the package is installed with its module `pyspark_kafka_eos`; calling this as
    well does no harm.
    """
    spark.dataSource.register(KafkaEosDataSource)


def source_position(topic: str = "topic", partition: str = "partition", offset: str = "offset") -> Column:
    """The column `source` that tells the sink where a row came from, so that it commits the source's offsets.

        df.select("key", "value", source_position())

    Args:
        topic: name of the column with the source topic (string).
        partition: name of the column with its partition (int).
        offset: name of the column with the row's offset (bigint).
    """
    columns = F.col(topic).alias("topic"), F.col(partition).alias("partition"), F.col(offset).alias("offset")
    return F.struct(*columns).alias("source")
