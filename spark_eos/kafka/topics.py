"""Records, and whether the topics that they name can take them: checked before a record is sent.

Without the check the broker would create the topic (auto.create.topics.enable is on by default), with whatever
partitions and replication it likes, and the record would be gone where nobody looks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from spark_eos.errors import HeaderWithoutKey, NullTopic, PartitionOutOfRange, SparkEosError, TopicMissing
from spark_eos.protocol.ports import Rows

CREATE_IT = (
    "Create it with the partitions and the replication that you want; spark-eos never lets a broker create one by "
    "accident."
)

LONGEST_NAME = 249
"""Letters of a topic's name, at most."""

_LEGAL_TOPIC = re.compile(rf"(?!\.\.?$)[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")

Headers = list[tuple[str, str | bytes | None]]


class Place(Protocol):
    """Where a row came from; its text is for errors."""

    @property
    def source(self) -> str | None:
        """`settlements-3@17`, or None where the row carries no source position."""


class Record(NamedTuple):
    """One record to write.

    Args:
        topic: where to; None is refused.
        key, value: None is null, which is not the same as empty.
        partition: None lets the partitioner choose by the key.
        headers: None or a list of name and value; a header without a name is refused.
        timestamp: milliseconds since 1970; 0 is now.
        position: where it came from.
    """

    topic: str | None
    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: Headers | None
    timestamp: int
    position: Place

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        parts = (self.key, self.value, *(part for header in self.headers or () for part in header))
        return sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part)


class WritableRows(Rows, Protocol):
    """Rows that a producer can send."""

    def records(self) -> Iterator[Record]: ...


class KnownTopics:
    """Topics with their number of partitions, each looked up at most once by a lane.

    Args:
        known: topics already looked up (on the driver, when the query started).
        look_up: a topic's partition count, or None if it does not exist; must create none.
    """

    def __init__(self, known: Mapping[str, int], look_up: Callable[[str], int | None]) -> None:
        self._counts: dict[Any, int | None] = dict(known)
        self._look_up = look_up
        self._looked_up: set[str] = set()

    def refusal(self, record: Record) -> SparkEosError | None:
        """Why a record can't be written; None where its topic, partition and headers are right."""
        count, partition = self._counts.get(record.topic), record.partition
        if count is None or record.headers or (partition is not None and not 0 <= partition < count):
            return self._looked_into(record)
        return None

    def has(self, topic: str, partition: int) -> bool:
        """Whether these brokers have a partition: a source position may be of another cluster."""
        count = self._count(topic, partition)
        return count is not None and 0 <= partition < count

    def _looked_into(self, record: Record) -> SparkEosError | None:
        if record.topic is None:
            return _null_topic(record)
        if any(name is None for name, _ in record.headers or ()):
            return _header_without_key(record)
        partition = record.partition or 0
        count = self._count(record.topic, partition)
        if count is None:
            return _missing(record)
        return None if 0 <= partition < count else _out_of_range(record, count)

    def _count(self, topic: str, partition: int) -> int | None:
        """Asked anew where the topic may have been made, or widened, since the driver asked."""
        count = self._counts.get(topic)
        if topic not in self._looked_up and (count is None or partition >= count):
            count = self._look_up(topic) if _LEGAL_TOPIC.fullmatch(topic) else None
            self._looked_up.add(topic)
            self._counts[topic] = count
        return count


def _null_topic(record: Record) -> NullTopic:
    return NullTopic(
        f"a row ({record.position}) has no topic",
        do="Fill the column topic in every row, or set the sink's option topic.",
    )


def _header_without_key(record: Record) -> HeaderWithoutKey:
    return HeaderWithoutKey(
        f"a row ({record.position}) for topic {record.topic} has a header without a key",
        do="Give every element of headers a key.",
    )


def _missing(record: Record) -> TopicMissing:
    name = (record.topic or "")[:LONGEST_NAME]
    return TopicMissing(f"topic {name} does not exist (named by a row {record.position})", do=CREATE_IT)


def _out_of_range(record: Record, count: int) -> PartitionOutOfRange:
    return PartitionOutOfRange(
        f"a row ({record.position}) names partition {record.partition} of topic {record.topic}, which has {count}",
        do="Correct the column partition, leave it null, or add partitions to the topic.",
    )
