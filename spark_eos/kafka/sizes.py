"""How large a record is on the wire, and whether its topic is certain to refuse it.

The client refuses a record by its own limit (message.max.bytes) when it is queued: exactly, and one by one. A broker
looks at the compressed batch (max.message.bytes of the topic), answers when it is sent, and the transaction has to be
aborted. What it will say is known before only where the client does not compress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from confluent_kafka import Message

from spark_eos.errors import RecordTooLarge
from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.topics import Headers, Record

LOOKED_AT_FROM = 10_000
"""Bytes from which on a record is compared with its topic's limit. Asking for the limit takes a lane about 10 ms
(measured), and a topic whose limit is lower is not foreseen: most batches of small records would not fit it either."""

Content = str | bytes | None

BATCH_HEADER = 61
"""Bytes before the first record of a batch (message format v2, KIP-98)."""


def batch_size(key: Content, value: Content, headers: Headers | None) -> int:
    """Bytes of the batch that holds one record and nothing else, uncompressed: what a broker compares."""
    listed = headers or []
    named = sum(_part(name) + _part(content) for name, content in listed)
    # Attributes, and the differences to the batch's timestamp and offset: one byte each.
    body = 3 + _part(key) + _part(value) + _varint(len(listed)) + named
    return BATCH_HEADER + _varint(body) + body


def _part(content: Content) -> int:
    if content is None:
        return 1
    size = len(content.encode() if isinstance(content, str) else content)
    return _varint(size) + size


def _varint(number: int) -> int:
    """Bytes of a number from 0 on: seven bits each, after the bit for the sign."""
    return max(1, ((2 * number).bit_length() + 6) // 7)


class Sizes:
    """The limits of one client and of the topics that it writes to; each topic is asked about once.

    Args:
        client: client settings, without the prefix.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client, self._cluster = client, Cluster(client)
        self._limits: dict[str, int | None] = {}
        codec = client.get("compression.type") or client.get("compression.codec")
        self._compresses = codec not in (None, "none")

    def refused_by_topic(self, record: Record) -> bool:
        """Whether the record's topic is certain to refuse it; False where that can't be known."""
        if self._compresses or record.size < LOOKED_AT_FROM or record.topic is None:
            return False
        limit = self._limit(record.topic)
        return limit is not None and batch_size(record.key, record.value, record.headers) > limit

    def _limit(self, topic: str) -> int | None:
        if topic not in self._limits:
            found = self._cluster.topic_setting(topic, "max.message.bytes")
            self._limits[topic] = int(found) if found is not None else None
        return self._limits[topic]

    def too_large(self, topic: str, key: bytes | None, size: int) -> RecordTooLarge:
        """The error about a record of so many bytes, or about the largest one of a batch that was refused."""
        client = self._client.get("message.max.bytes", "1000000 by default")
        queue = self._client.get("queue.buffering.max.kbytes", "1048576 by default")
        return RecordTooLarge(
            f"a record for {topic} with key {shown(key)} has {size} bytes, and the limits are {client} "
            f"(kafka.message.max.bytes, of the client), {queue} kB (kafka.queue.buffering.max.kbytes, of its queue) "
            f"and {self._limit(topic) or 'unknown'} (max.message.bytes, of the topic)",
            do="Raise the limit that it exceeds, or make the record smaller.",
        )

    def batch_too_large(self, topic: str) -> RecordTooLarge:
        """The error about a batch of which each record alone would have been taken."""
        limit, batch = self._limit(topic), self._client.get("batch.size", "1000000 by default")
        return RecordTooLarge(
            f"a batch of records for {topic} is larger than {limit} bytes (max.message.bytes, of the topic), and none "
            f"of them is; batches have up to {batch} bytes (kafka.batch.size)",
            do="Set kafka.batch.size to at most the topic's max.message.bytes.",
        )

    def fits_alone(self, message: Message) -> bool:
        """Whether the topic would take this record in a batch of its own, however little it can be compressed."""
        limit = self._limit(message.topic() or "")
        headers = cast(Headers, message.headers())
        return limit is not None and batch_size(message.key(), message.value(), headers) <= limit


def shown(key: bytes | None) -> str:
    """A record's key as an error may show it: at most 64 bytes of it."""
    return "null" if key is None else repr(key[:64].decode(errors="backslashreplace"))
