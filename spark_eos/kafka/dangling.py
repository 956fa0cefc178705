"""Which of a ledger's rows have a transaction open on them."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.kafka.committed import committed
from spark_eos.kafka.config import ledger_settings
from spark_eos.kafka.failures import failure, is_timeout
from spark_eos.options import ClientSettings

ALL_S, EACH_S = 2.0, 0.5
"""A stable read that takes longer waits for a transaction: of all rows, and of one."""


def dangling(client: ClientSettings, brokers: int, topic: str, group: str, partitions: Sequence[int]) -> list[int]:
    """The partitions of a ledger topic whose committed offset is part of an open transaction.

    Args:
        client, brokers, topic, group: as of `LaneLedger`.
        partitions: which to look at.

    Raises:
        SparkEosError: the brokers do not answer, or refuse.
    """
    consumer = Consumer(ledger_settings(client, brokers, group, stable=True))

    def is_open(asked: Sequence[int], limit_s: float) -> bool:
        try:
            committed(consumer, [TopicPartition(topic, partition) for partition in asked], limit_s)
        except KafkaException as exception:
            if is_timeout(exception):
                return True
            raise failure(exception, f"reading the committed offsets of group {group}") from exception
        return False

    try:
        if not is_open(partitions, ALL_S):
            return []
        return [partition for partition in partitions if is_open([partition], EACH_S)]
    finally:
        consumer.close()
