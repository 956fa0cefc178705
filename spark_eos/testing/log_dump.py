"""Kafka's own log as its DumpLogSegments shows it, cut down to what tells of transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from spark_eos.testing.embedded import EmbeddedKafka

FIELD = re.compile(r"(\w+): (\S+)")
OF_BATCH = ("producerId", "producerEpoch")
OF_RECORD = ("endTxnMarker", "coordinatorEpoch", "key", "payload")


def log_of(kafka: EmbeddedKafka, topic: str, partition: int = 0) -> list[str]:
    """A partition's records and markers, one a line: offset, its producer's id and epoch, and what it is.

    Args:
        kafka: where it is.
        topic: topic.
        partition: partition, from 0.

    Raises:
        EmbeddedKafkaError: there is no such partition.
    """
    dump = kafka.dump_log(topic, partition, print_data=True)
    return [line(batch, OF_BATCH, record, OF_RECORD) for batch, record in dumped_records(dump)]


def dumped_records(dump: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Fields of each batch in a dump, and of a record in it."""
    batch: dict[str, str] = {}
    for text in dump.splitlines():
        if text.startswith("baseOffset:"):
            batch = dict(FIELD.findall(text))
        elif text.startswith("| offset:"):
            yield batch, dict(FIELD.findall(text))


def line(batch: Mapping[str, str], of_batch: Iterable[str], record: Mapping[str, str], of_record: Iterable[str]) -> str:
    """A record's offset, and those of the named fields that its batch and it have."""
    fields = [(name, batch.get(name)) for name in of_batch] + [(name, record.get(name)) for name in of_record]
    return "  ".join([f"offset: {record['offset']}", *(f"{name}: {value}" for name, value in fields if value)])
