"""Which partitions of a ledger topic have a transaction open on their row."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.kafka.committed import committed
from spark_eos.kafka.failures import failure, is_timeout

ALL_S, SOME_S = 2.0, 0.5
"""A stable read that takes longer waits for a transaction: of all rows, and of a part of them."""


def hanging(consumer: Consumer, topic: str, partitions: Sequence[int]) -> list[int]:
    """The partitions whose committed offset is part of an open transaction, found by halves.

    Args:
        consumer: of the group, read_committed.
        topic: the ledger topic.
        partitions: which to look at.

    Raises:
        SparkEosError: the brokers do not answer, or refuse.
    """

    def is_open(asked: Sequence[int], limit_s: float) -> bool:
        try:
            committed(consumer, [TopicPartition(topic, partition) for partition in asked], limit_s)
        except KafkaException as exception:
            if is_timeout(exception):
                return True
            raise failure(exception, f"reading the ledger rows of {topic}") from exception
        return False

    def found(asked: Sequence[int]) -> list[int]:
        if len(asked) == 1:
            return list(asked)
        halves = asked[: len(asked) // 2], asked[len(asked) // 2 :]
        return [partition for half in halves if is_open(half, SOME_S) for partition in found(half)]

    return found(partitions) if partitions and is_open(partitions, ALL_S) else []
