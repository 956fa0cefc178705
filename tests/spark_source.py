"""The source on topics of a real broker, and the means to write to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession

from spark_eos.source_options import SourceOptions
from spark_eos.spark.stream_reader import KafkaEosStreamReader
from spark_eos.testing import wait_for_markers


@dataclass
class Source:
    """A stream on some topics, and the means to write to them."""

    bootstrap: str
    topics: list[str]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": ",".join(self.topics)}
        return {**servers, "startingOffsets": "earliest", **self.options}

    def but(self, **options: str) -> Source:
        return Source(self.bootstrap, self.topics, self.options | options)

    def reader(self) -> KafkaEosStreamReader:
        """What Spark's driver talks to, without Spark."""
        return KafkaEosStreamReader(SourceOptions.of(self.given, "stream"))

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("kafka-eos").options(**self.given).load()

    def batch(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("kafka-eos").options(**self.given).load()

    def write(self, *values: str, partition: int = 0, commit: bool = True, **columns: Any) -> None:
        """One transaction with these records in the first topic."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.topics[0]}-{values[0]}"})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topics[0], value, partition=partition, **columns)
        producer.flush(10)
        producer.commit_transaction(10) if commit else producer.abort_transaction(10)
        wait_for_markers(self.bootstrap, self.topics[0])

    @contextmanager
    def open_transaction(self, *values: str) -> Iterator[None]:
        """These records in partition 0, in a transaction that is aborted at the end."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.topics[0]}-open"})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topics[0], value, partition=0)
        producer.flush(10)
        yield
        producer.abort_transaction(10)

    def plain(self, *values: str, partition: int = 0) -> None:
        """Records without a transaction: offsets without gaps."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.topics[0], value, partition=partition)
        producer.flush(10)

    def delete_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(self.topics[0], 0, offset)]).values():
            future.result(10)

    def widen(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_partitions([NewPartitions(self.topics[0], partitions)]).values():
            future.result(10)
