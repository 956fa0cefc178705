"""Rows that can't be written, as records of the dead letter topic: what they were, and in headers why they are here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_eos.errors import SparkEosError
from spark_eos.kafka.topics import LONGEST_NAME, Headers, Record
from spark_eos.protocol.names import LaneTask

PREFIX = "spark-eos."


@dataclass(frozen=True)
class DeadLetters:
    """Where the rows of one lane's attempt go that can't be written.

    Args:
        topic: an existing topic.
        task: whose rows.
    """

    topic: str
    task: LaneTask

    def letters(self, record: Record, error: SparkEosError) -> Iterator[Record]:
        """The record as a dead letter: whole, and then with ever less of it, for a topic that it is too large for.

        Args:
            record: as it should have been written.
            error: why it can't be.
        """
        headers = [header for header in record.headers or () if header[0] is not None]
        whole = record._replace(topic=self.topic, partition=None)
        yield whole._replace(headers=headers + self._told(record, error))
        yield whole._replace(value=None, headers=headers + self._told(record, error, "value"))
        yield whole._replace(key=None, value=None, headers=self._told(record, error, "key, value, headers"))

    def _told(self, record: Record, error: SparkEosError, omitted: str | None = None) -> Headers:
        told = {
            "reason": type(error).__name__,
            "message": error.what,
            "topic": record.topic and record.topic[:LONGEST_NAME],
            "partition": record.partition,
            "source": record.position.source,
            "query": self.task.run.query,
            "batch": self.task.batch,
            "lane": self.task.lane,
            "omitted": omitted,
            "size": record.size if omitted else None,
        }
        return [(PREFIX + name, str(value).encode()) for name, value in told.items() if value is not None]
