"""The topics and folders that a combination reads and writes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from ways_stateful import late

from spark_eos.testing import EmbeddedKafka, wait_for_markers

IN_PARTITIONS, MORE_PARTITIONS, OUT_PARTITIONS = 3, 4, 2
PATIENCE_S = 30.0


@dataclass
class Places:
    """What one combination has for itself.

    Args:
        kafka: the broker.
        folder: for files, tables, checkpoints and marks.
        name: begins the topics' names.
    """

    kafka: EmbeddedKafka
    folder: Path
    name: str
    partitions: int = IN_PARTITIONS
    _waiting: list[int] = field(default_factory=list)

    def make(self, *, second: bool) -> None:
        """Create topics and folders."""
        (self.folder / "files").mkdir(parents=True)
        (self.folder / "marks").mkdir()
        self.kafka.create_topic(self.source, IN_PARTITIONS)
        self.kafka.create_topic(self.target, OUT_PARTITIONS)
        if second:
            self.kafka.create_topic(self.second, OUT_PARTITIONS)

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def second(self) -> str:
        return f"{self.name}-second"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    def feed(self, numbers: Iterable[int]) -> None:
        """To the source, evenly to its partitions."""
        self._produce(self.source, numbers, self.partitions)

    def feed_second(self, numbers: Iterable[int], *, lag: bool) -> None:
        """To the second topic; with a lag, some of them at the next call."""
        waited, numbers = self._waiting, list(numbers)
        self._waiting = [number for number in numbers if lag and late(number)]
        now = [number for number in numbers if number not in self._waiting]
        self._produce(self.second, [*waited, *now], OUT_PARTITIONS)

    def feed_file(self, numbers: Iterable[int]) -> None:
        """A file of lines, which is there at once."""
        draft = self.folder / "draft"
        draft.write_text("".join(f"{number}\n" for number in numbers))
        draft.rename(self.folder / "files" / f"{uuid.uuid4()}.txt")

    def widen(self) -> None:
        """One more partition of the source, for what is fed from now on."""
        self.partitions = MORE_PARTITIONS
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(self.source, self.partitions)])[self.source].result(PATIENCE_S)

    def committed(self, group: str) -> dict[int, int]:
        """The offsets of the source that a group has committed; without partitions that have none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            asked = [TopicPartition(self.source, each) for each in range(self.partitions)]
            found = consumer.committed(asked, PATIENCE_S)
            return {each.partition: each.offset for each in found if each.offset >= 0}
        finally:
            consumer.close()

    def ends(self) -> dict[int, int]:
        """Where the source's partitions end."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        asked = {TopicPartition(self.source, each): OffsetSpec.latest() for each in range(self.partitions)}
        return {place.partition: found.result(PATIENCE_S).offset for place, found in admin.list_offsets(asked).items()}

    def visible(self) -> Counter[str]:
        """What a read_committed reader sees in the target, once no transaction is open there."""
        wait_for_markers(self.bootstrap, self.target)
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"ways-{uuid.uuid4()}", "log_level": 0}
        settings |= {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "enable.auto.commit": False}
        consumer = Consumer(settings | {"isolation.level": "read_committed"})
        try:
            consumer.assign([TopicPartition(self.target, each, 0) for each in range(OUT_PARTITIONS)])
            return _read(consumer)
        finally:
            consumer.close()

    def _produce(self, topic: str, numbers: Iterable[int], partitions: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for number in numbers:
            producer.produce(topic, str(number), str(number), number % partitions)
        if producer.flush(PATIENCE_S):
            raise TimeoutError("the input could not be written")


def _read(consumer: Consumer) -> Counter[str]:
    found: Counter[str] = Counter()
    ended = 0
    while ended < OUT_PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        if message is None:
            raise TimeoutError("the reader is held back")
        if message.error():
            ended += 1
        else:
            found[message.value().decode()] += 1
    return found
