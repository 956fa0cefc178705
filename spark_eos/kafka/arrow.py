"""Records of Kafka as Arrow batches, with the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from spark_eos.kafka.offsets import OffsetRange


def arrow_schema(*, headers: bool) -> pa.Schema:
    """Columns of Spark's Kafka source, with the types that Spark expects from a Python data source."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema([*fields, *([("headers", pa.list_(pa.field("element", header)))] if headers else [])])


def to_arrow(records: list[Message], wanted: OffsetRange, *, headers: bool) -> pa.RecordBatch:
    """Records of one partition as a batch; a record without headers has null there, as in Spark."""
    schema, count = arrow_schema(headers=headers), len(records)
    kinds, millis = zip(*map(Message.timestamp, records), strict=True)
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.repeat(wanted.topic, count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(list(map(Message.offset, records)), pa.int64()),
        pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(schema.field("timestamp").type),
        # librdkafka counts from 0 (not available), Kafka's Java client and Spark from -1.
        pc.subtract(pa.array(kinds, pa.int32()), pa.scalar(1, pa.int32())),
    ]
    if headers:
        columns.append(pa.array([_headers(record) for record in records], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _headers(record: Message) -> list[dict[str, Any]] | None:
    pairs = cast("list[tuple[str, bytes | None]] | None", record.headers())
    return [{"key": key, "value": value} for key, value in pairs] if pairs else None
