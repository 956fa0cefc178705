"""Exactly-once Kafka for Spark Structured Streaming: a transactional sink and a read_committed source."""

from spark_eos.spark.register import register, source_position
from spark_eos.spark.sink import KafkaSink

__all__ = ["KafkaSink", "register", "source_position"]
