"""The warehouse's table without Spark: what there is for it to write, and the files that Delta's log names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
from confluent_kafka import Producer


def fill(brokers: str, topic: str, partitions: int, rows: int) -> list[str]:
    """So many refunds in each partition; their ids in order."""
    ids = [f"RFD-{number:06}" for number in range(partitions * rows)]
    producer = Producer({"bootstrap.servers": brokers})
    for number, refund_id in enumerate(ids):
        refund = {"refund_id": refund_id, "merchant": "MER-1", "amount_paise": number}
        producer.produce(topic, json.dumps(refund).encode(), b"MER-1", number % partitions)
    assert producer.flush(30) == 0
    return ids


def committed_files(table: Path) -> Iterator[Path]:
    """The data files that commits have added."""
    for commit in (table / "_delta_log").glob("*.json"):
        actions = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
        yield from (table / action["add"]["path"] for action in actions if "add" in action)


def ids_in(table: Path) -> list[str]:
    """The refunds of these files, in order of their ids."""
    tables = map(pyarrow.parquet.read_table, committed_files(table))
    return sorted(str(each) for rows in tables for each in rows["refund_id"])
