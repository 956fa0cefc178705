"""Reading a group's committed offsets with a consumer that does not join it.

`AdminClient.list_consumer_group_offsets` would say at once that the group may not be described, but it crashes the
process where the coordinator is just being chosen (librdkafka issue 5040, seen here with 2.16.0).
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.kafka.admin import DENIED_AFTER_S, patiently
from spark_eos.kafka.failures import is_denied, is_timeout


def committed(consumer: Consumer, partitions: list[TopicPartition], limit_s: float) -> list[TopicPartition]:
    """The committed offsets, negative where there are none.

    Args:
        consumer: with read_committed, offsets are waited for while a transaction is open on them (KIP-447).
        partitions: whose.
        limit_s: how long to try, in seconds.

    Raises:
        KafkaException: what keeps them from us; soon, if that is a missing right.
    """
    for attempt in patiently(limit_s):
        with attempt:
            found = _ask(consumer, partitions, limit_s)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
    return found


def _ask(consumer: Consumer, partitions: list[TopicPartition], limit_s: float) -> list[TopicPartition]:
    """The client asks for a group that it may not see until the time is up, and tells of it elsewhere."""
    started = time.monotonic()
    while True:
        try:
            found: list[TopicPartition] = consumer.committed(partitions, min(DENIED_AFTER_S, limit_s))
            return found
        except KafkaException as exception:
            _raise_denial(consumer)
            if not is_timeout(exception) or time.monotonic() - started >= limit_s:
                raise


def _raise_denial(consumer: Consumer) -> None:
    told = consumer.poll(0)
    error = told.error() if told is not None else None
    if error is not None and is_denied(error):
        raise KafkaException(error)
