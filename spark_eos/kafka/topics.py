"""Records, and whether the topics that they name can take them: checked before a record is sent.

Without the check the broker would create the topic (auto.create.topics.enable is on by default), with whatever
partitions and replication it likes, and the record would be gone where nobody looks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from spark_eos.errors import NullTopic, PartitionOutOfRange, TopicMissing

CREATE_IT = (
    "Create it with the partitions and the replication that you want; spark-eos never lets a broker create one by "
    "accident."
)

Headers = list[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """One record to write.

    Args:
        topic: where to; None is refused.
        key, value: bytes, or text that is written as UTF-8; None is null.
        partition: None lets the partitioner choose by the key.
        headers: None or a list of name and value.
        timestamp: milliseconds since 1970; 0 is now.
        position: where it came from, for error texts.
    """

    topic: str
    key: bytes | str | None
    value: bytes | str | None
    partition: int | None
    headers: Headers | None
    timestamp: int
    position: str

    @property
    def size(self) -> int:
        """Bytes of key and value, as near as errors need it."""
        return sum(len(part.encode() if isinstance(part, str) else part) for part in (self.key, self.value) if part)


class KnownTopics:
    """Topics that were looked up once, with their number of partitions.

    Args:
        known: topics already looked up (on the driver).
        look_up: a topic's partition count, or None if it does not exist; must create none.
    """

    def __init__(self, known: Mapping[str, int], look_up: Callable[[str], int | None]) -> None:
        self.counts = dict(known)
        self._look_up = look_up

    def checked(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records as they are, each checked before it is handed on.

        Raises:
            NullTopic, PartitionOutOfRange, TopicMissing: for the first record that can't be written.
        """
        counts = self.counts
        for record in records:
            count = counts.get(record.topic)
            if count is None:
                count = self._found(record)
            if record.partition is not None and not 0 <= record.partition < count:
                raise PartitionOutOfRange(
                    f"a row ({record.position}) names partition {record.partition} of topic {record.topic}, which "
                    f"has {count}",
                    do="Correct the column partition, leave it null, or add partitions to the topic.",
                )
            yield record

    def _found(self, record: Record) -> int:
        if record.topic is None:
            raise NullTopic(
                f"a row ({record.position}) has no topic",
                do="Fill the column topic in every row, or set the sink's option topic.",
            )
        count = self._look_up(record.topic)
        if count is None:
            raise TopicMissing(f"topic {record.topic} does not exist (named by a row {record.position})", do=CREATE_IT)
        self.counts[record.topic] = count
        return count
