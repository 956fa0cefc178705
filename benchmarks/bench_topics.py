"""Topics that benchmarks read: filled quickly, emptied when done.

Records are as large as is said: a key of 8 bytes, the rest is the value. Both are random bytes, of 10,000 different
records that come again and again, too far apart for lz4 to notice: what is read is as large as what was written.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_eos.testing import wait_for_markers

PARTITIONS = 8
KEY_BYTES = 8
BLOCK = 10_000
"""Records that are written to a partition at once; in a transactional topic, that one transaction has of it."""

QUIET = {"logger": logging.getLogger("spark_eos.benchmark")}
logging.getLogger("spark_eos.benchmark").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Topic:
    """A topic to read.

    Args:
        name: of the topic.
        record_bytes: of key and value together.
        rows: in all partitions together; whole blocks of 80,000 are written, so it has a few more.
        transactional: whether its records are written in transactions, one for each 80,000.
        partitions: how many it has.
    """

    name: str
    record_bytes: int
    rows: int
    transactional: bool
    partitions: int = PARTITIONS

    @property
    def block_rows(self) -> int:
        """Records that are written to a partition at once: fewer where the topic is small, or they are large."""
        return max(1, min(BLOCK, self.rows // self.partitions, (64 << 20) // self.record_bytes))

    @property
    def rows_written(self) -> int:
        """`rows`, in whole blocks."""
        a_turn = self.block_rows * self.partitions
        return -(-self.rows // a_turn) * a_turn


def writer(bootstrap: str, transactional_id: str | None) -> Producer:
    """A producer for large batches, or for transactions."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": "50", **QUIET}
    settings["delivery.report.only.error"] = True
    if transactional_id is None:
        return Producer(settings)
    producer = Producer(settings | {"transactional.id": transactional_id})
    producer.init_transactions(30)
    return producer


def fill(bootstrap: str, topic: Topic) -> None:
    """Write a topic's records, each partition having as many."""
    value_bytes = topic.record_bytes - KEY_BYTES
    block = [{"key": os.urandom(KEY_BYTES), "value": os.urandom(value_bytes)} for _ in range(topic.block_rows)]
    producer = writer(bootstrap, topic.name if topic.transactional else None)
    for _ in range(topic.rows_written // (len(block) * topic.partitions)):
        if topic.transactional:
            producer.begin_transaction()
        for partition in range(topic.partitions):
            sent = producer.produce_batch(topic.name, block, partition=partition)
            assert sent == len(block), "the producer's queue is full"
        if topic.transactional:
            producer.commit_transaction(60)
        else:
            assert producer.flush(60) == 0, "the broker does not keep up"
    wait_for_markers(bootstrap, topic.name)
