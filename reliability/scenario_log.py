"""Kafka's own log as its DumpLogSegments shows it, cut down to what tells the story."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from spark_eos.testing import EmbeddedKafka

FIELD = re.compile(r"(\w+): (\S+)")
OF_BATCH = ("producerId", "producerEpoch")
OF_RECORD = ("endTxnMarker", "coordinatorEpoch", "key", "payload")
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
"""By `transactionStatus`: org.apache.kafka.coordinator.transaction.TransactionState."""


def log_of(kafka: EmbeddedKafka, topic: str, partition: int = 0) -> list[str]:
    """A partition's records and markers, one a line: offset, its producer's id and epoch, and what it is."""
    dump = kafka.dump_log(topic, partition, print_data=True)
    return [_line(record["offset"], batch, OF_BATCH, record, OF_RECORD) for batch, record in _records(dump)]


def states_of(dump: str, transactional_id: str) -> list[str]:
    """The states of a transaction in a dump of the transaction log, with the epoch of the log's leader."""
    found = []
    for batch, record in _records(dump):
        if json.loads(record["key"])["data"]["transactionalId"] == transactional_id and record["payload"] != "<DELETE>":
            data = json.loads(record["payload"])["data"]
            record["state"] = STATES[data["transactionStatus"]]
            found.append(_line(record["offset"], batch, ("partitionLeaderEpoch",), record, ("state",)))
    return found


def markers(log: Iterable[str]) -> list[str]:
    """COMMIT or ABORT of each marker, in the order of the log."""
    return re.findall(r"endTxnMarker: (\w+)", "\n".join(log))


def numbers(log: Iterable[str], name: str) -> list[int]:
    """A field of all lines, such as `producerEpoch`."""
    return [int(number) for number in re.findall(rf"{name}: (\d+)", "\n".join(log))]


def _records(dump: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Fields of each batch, and of a record in it."""
    batch: dict[str, str] = {}
    for line in dump.splitlines():
        if line.startswith("baseOffset:"):
            batch = dict(FIELD.findall(line))
        elif line.startswith("| offset:"):
            yield batch, dict(FIELD.findall(line))


def _line(
    offset: str, batch: dict[str, str], of_batch: Iterable[str], record: dict[str, str], of_record: Iterable[str]
) -> str:
    fields = [(name, batch.get(name)) for name in of_batch] + [(name, record.get(name)) for name in of_record]
    return "  ".join([f"offset: {offset}", *(f"{name}: {value}" for name, value in fields if value)])
