"""One partition, written to and read record by record: what the tests of the source's Kafka side run against."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_eos.kafka.listing import Listing
from spark_eos.kafka.offsets import Bounds, OffsetRange
from spark_eos.kafka.reader import read_ranges
from spark_eos.source_options import SourceOptions
from spark_eos.source_values import Subscription
from spark_eos.testing import wait_for_markers


@dataclass
class Log:
    """One partition, written to record by record, as the tests need it."""

    bootstrap: str
    topic: str
    patience_s: float = 10

    @property
    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    @property
    def listing(self) -> Listing:
        return Listing(self.client, Subscription(topics=(self.topic,)))

    def plain(self, *values: str | None, **columns: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(self.topic, value, partition=0, **columns)
        assert producer.flush(10) == 0

    @contextmanager
    def transaction(self, *values: str) -> Iterator[Producer]:
        """An open transaction with these records in the log; aborted at the end if it is still open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(10) == 0
        yield producer

    def committed(self, *values: str) -> None:
        with self.transaction(*values) as producer:
            producer.commit_transaction(10)
        self.settle()

    def aborted(self, *values: str) -> None:
        with self.transaction(*values) as producer:
            producer.abort_transaction(10)
        self.settle()

    def settle(self) -> None:
        wait_for_markers(self.bootstrap, self.topic)

    def delete_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = admin.delete_records([TopicPartition(self.topic, 0, offset)])
        assert [future.result(10).low_watermark for future in asked.values()] == [offset]

    def bounds(self) -> Bounds:
        return self.listing.holdings().bounds[self.topic, 0]

    def options(self, **changes: object) -> SourceOptions:
        patience = {"kafkaConsumer.pollTimeoutMs": str(int(self.patience_s * 1000))}
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **patience, **changes}
        return SourceOptions.of(given)

    def batches(self, start: int, end: int, *, headers: bool = False, fail: bool = True) -> list[pa.RecordBatch]:
        wanted = OffsetRange(self.topic, 0, start, end)
        return list(read_ranges(self.options(includeHeaders=headers, failOnDataLoss=fail), [wanted]))

    def read(self, start: int, end: int, *, fail: bool = True) -> list[str]:
        return [v.decode() for batch in self.batches(start, end, fail=fail) for v in batch.column("value").to_pylist()]


def until(holds: Callable[[], bool], limit_s: float = 60) -> None:
    pause = threading.Event()
    for _ in range(int(limit_s / 0.1)):
        if holds():
            return
        pause.wait(0.1)
    pytest.fail("it never came to that")
