"""Records of Kafka as Arrow batches, with the columns of Spark's Kafka source."""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

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
    # One flat array, since a tuple a record would be most of the work: kind, milliseconds, kind, milliseconds, ...
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, records)), np.int64, 2 * count)
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.repeat(wanted.topic, count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(_offsets(records)),
        pa.array(times[1::2]).cast(pa.timestamp("ms", tz="UTC")).cast(schema.field("timestamp").type),
        # librdkafka counts from 0 (not available), Kafka's Java client and Spark from -1.
        pa.array((times[0::2] - 1).astype(np.int32)),
    ]
    if headers:
        columns.append(pa.array([_headers(record) for record in records], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _offsets(records: list[Message]) -> NDArray[np.int64]:
    first, last = (cast("int", records[index].offset()) for index in (0, -1))
    if last - first + 1 == len(records):
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, records), np.int64, len(records))


def _headers(record: Message) -> list[dict[str, Any]] | None:
    pairs = cast("list[tuple[str, bytes | None]] | None", record.headers())
    return [{"key": key, "value": value} for key, value in pairs] if pairs else None
