"""A plain consumer that reads on when brokers are killed, restarted or paused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_eos.checker.rows import Place, position
from spark_eos.checker.settings import Client

Isolation = Literal["read_committed", "read_uncommitted"]

AT_ONCE = 5_000
PAUSE_S = 0.2


class CannotCheck(Exception):
    """Nothing can be said about the topics; the text says why."""


class NoAnswer(CannotCheck):
    """The brokers did not answer in time."""


class Reader:
    """Reads partitions on and on. After an error it goes on with a new client, from where it was.

    Args:
        client: settings of the client, `bootstrap.servers` among them.
        isolation: `read_committed` or `read_uncommitted`.
        starts: the offset to start from, for each partition.

    Attributes:
        reached: the next offset of each partition. Control records count, once the partition's end is met.
        interruptions: how often a new client was needed.
    """

    def __init__(self, client: Client, isolation: Isolation, starts: Mapping[Place, int]) -> None:
        self.reached = dict(starts)
        self.interruptions = 0
        self._settings = {
            **client,
            "group.id": f"check-{uuid.uuid4()}",  # asked for by the client; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "queued.min.messages": 10_000,  # of each partition; by default 100,000 are read ahead
            "log_level": 0,
        }
        self._consumer = self._open()

    def poll(self, timeout_s: float) -> list[Message]:
        """What has come: at once with the first record, empty if there is none within `timeout_s`."""
        try:
            first = self._consumer.poll(timeout_s)
            come = [] if first is None else [first, *self._consumer.consume(AT_ONCE, 0)]
        except KafkaException:
            come, broken = [], True
        else:
            errors = [error for message in come if (error := message.error())]
            broken = any(error.code() != KafkaError._PARTITION_EOF for error in errors)
        messages = [message for message in come if self._is_record(message)]
        if broken:
            self._reopen()
        return messages

    def read_to(self, ends: Mapping[Place, int], patience_s: float) -> Iterator[list[Message]]:
        """Records below the ends, as they come.

        Raises:
            NoAnswer: nothing came for `patience_s` seconds.
        """
        quiet_since = time.monotonic()
        while behind := {place for place, end in ends.items() if self.reached[place] < end}:
            before = dict(self.reached)
            yield [message for message in self.poll(0.1) if _is_below(ends, message)]
            if self.reached != before:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > patience_s:
                raise NoAnswer(f"nothing came for {patience_s:g} s from {sorted(behind)}")

    def close(self) -> None:
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        """Notes how far this message, or the news of a partition's end, brings the reader."""
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            topic, partition, offset = position(message)
            place = topic, partition
            self.reached[place] = max(self.reached[place], offset + (error is None))
        return error is None

    def _open(self) -> Consumer:
        consumer = Consumer(self._settings)
        consumer.assign([TopicPartition(*place, offset) for place, offset in self.reached.items()])
        return consumer

    def _reopen(self) -> None:
        self.interruptions += 1
        self._consumer.close()
        time.sleep(PAUSE_S)
        self._consumer = self._open()


def _is_below(ends: Mapping[Place, int], message: Message) -> bool:
    topic, partition, offset = position(message)
    return offset < ends[topic, partition]
