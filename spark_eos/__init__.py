"""Exactly-once Kafka for Spark Structured Streaming: a transactional sink and a read_committed source."""

from spark_eos.protocol.stats import LaneStats
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.confluent import from_confluent
from spark_eos.spark.json_value import from_json_value
from spark_eos.spark.register import register, source_position
from spark_eos.spark.report import BatchReport
from spark_eos.spark.sink import KafkaSink

__all__ = [
    "BatchReport",
    "KafkaSink",
    "LaneReport",
    "LaneStats",
    "from_confluent",
    "from_json_value",
    "register",
    "source_position",
]
