"""A program that copies an input to two outputs, for the tests of the checker: right unless a test makes it wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_log import until

from spark_eos.checker import Findings, Watch, check

KEYS, EACH = 6, 5
Row = tuple[int, str, str]
"""Partition, key and value."""


@dataclass
class Copy:
    """An input with records, two empty outputs, and a program that copies: right unless a test makes it wrong."""

    bootstrap: str
    source: str
    outputs: tuple[str, str]
    group: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def rows(self) -> list[Row]:
        return [(key % 2, f"k{key}", f"k{key}:{sequence}") for sequence in range(EACH) for key in range(KEYS)]

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
        producer = Producer(settings)
        producer.init_transactions(10)
        producer.begin_transaction()
        yield producer

    def send(self, producer: Producer, rows: list[Row], *topics: str, **columns: object) -> None:
        for topic in topics or self.outputs:
            for partition, key, value in rows:
                producer.produce(topic, value, key, partition, **columns)
        assert producer.flush(10) == 0

    def write(self, rows: list[Row], *topics: str, commit: bool = True, **columns: object) -> None:
        with self.transaction() as producer:
            self.send(producer, rows, *topics, **columns)
            producer.commit_transaction(10) if commit else producer.abort_transaction(10)

    def done(self, offset: int = KEYS * EACH // 2) -> None:
        """Commits this offset of both partitions of the input."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        offsets = [TopicPartition(self.source, p, offset) for p in (0, 1)]

        def committed() -> bool:
            """False while the group's coordinator is on its way."""
            try:
                return bool(consumer.commit(offsets=offsets, asynchronous=False))
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                return False

        until(committed)
        consumer.close()

    def forget(self) -> None:
        """Deletes the group."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_consumer_groups([self.group])[self.group].result(10)

    def watch(self, **how: object) -> Watch:
        return Watch(self.bootstrap, self.outputs, group=self.group, inputs=(self.source,), **how)

    def check(self, watch: Watch | None = None, wait_s: float = 20, **how: object) -> Findings:
        return check(self.bootstrap, (self.source,), self.outputs, group=self.group, watch=watch, wait_s=wait_s, **how)
