"""A lane's rows as Arrow gives them, and as the protocol and the producer want them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.kafka.topics import Headers, Record
from spark_eos.protocol.positions import SourceRange, TopicPartition
from spark_eos.spark.digests import row_digests


class ArrowRows:
    """One Arrow batch of a lane, with the sink's columns (see `spark_eos.spark.columns`).

    Args:
        batch: some of key, value, topic, partition, headers, timestamp, source.
        topic: topic of every row, or None to take the column's.
    """

    def __init__(self, batch: pa.RecordBatch, topic: str | None) -> None:
        self._batch, self._topic = batch, topic
        self._lists: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def ranges(self) -> Sequence[SourceRange]:
        """Each source partition's smallest and largest offset here, computed by Arrow, not row by row."""
        source = self._column("source")
        if source is None:
            return ()
        topic, partition, offset = (source.field(name) for name in ("topic", "partition", "offset"))
        # An outer join gives rows whose position is null, or a struct of nulls.
        whole = reduce(pc.and_, map(pc.is_valid, (source, topic, partition, offset)))
        table = pa.table({"t": topic, "p": partition, "o": offset}).filter(whole)
        grouped = table.group_by(["t", "p"], use_threads=False)
        found = grouped.aggregate([("o", "min"), ("o", "max"), ("o", "count")])
        columns = (found.column(name).to_pylist() for name in ("t", "p", "o_min", "o_max", "o_count"))
        return [SourceRange(*each) for each in zip(*columns, strict=True)]

    def beyond(self, floor: Mapping[TopicPartition, int]) -> ArrowRows:
        """The rows that are not below the floor of their source partition."""
        source = self._column("source")
        if source is None:
            return self
        keep = pa.array([True] * len(self))
        topic, partition, offset = (source.field(name) for name in ("topic", "partition", "offset"))
        for each in self.ranges():
            limit = floor.get(each.key, 0)
            if each.first < limit:
                here = pc.and_(pc.equal(topic, each.topic), pc.equal(partition, each.partition))
                below = pc.fill_null(pc.and_(here, pc.less(offset, limit)), False)
                keep = pc.and_(keep, pc.invert(below))
        return ArrowRows(self._batch.filter(keep), self._topic)

    def digests(self) -> bytes:
        """See `spark_eos.protocol.ports.Rows`; whichever way the lane is cut into batches."""
        return row_digests(
            len(self),
            topic=self._topic if self._topic is not None else self._column("topic"),
            key=self._bytes("key"),
            value=self._bytes("value"),
            partition=self._column("partition"),
            timestamp=self._millis(),
            headers=self._list("headers"),
        )

    def payload_bytes(self) -> int:
        """Bytes of keys and values, counted by Arrow: of this slice, without buffers shared with other rows."""
        columns = [column for name in ("key", "value") if (column := self._column(name)) is not None]
        return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)

    def records(self) -> Iterator[Record]:
        """The rows as records, in order."""
        size = len(self)
        topics: Any = repeat(self._topic, size) if self._topic is not None else self._list("topic")
        headers = self._list("headers")
        return map(
            Record,
            topics,
            self._bytes("key"),
            self._bytes("value"),
            self._list("partition"),
            map(_headers, headers) if self._column("headers") is not None else headers,
            self._timestamps(),
            _Positions(self._column("source"), size),
        )

    def _column(self, name: str) -> Any:
        index = self._batch.schema.get_field_index(name)
        return self._batch.column(index) if index >= 0 else None

    def _list(self, name: str) -> Any:
        column = self._column(name)
        if column is None:
            return repeat(None, len(self))
        if name not in self._lists:
            self._lists[name] = column.to_pylist()
        return self._lists[name]

    def _bytes(self, name: str) -> Any:
        """A column as bytes. Text stays as it is: UTF-8, or whatever bytes Spark's cast to string let through."""
        column = self._column(name)
        if column is None:
            return repeat(None, len(self))
        if name not in self._lists:
            large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
            self._lists[name] = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
        return self._lists[name]

    def _millis(self) -> Any:
        """Milliseconds since 1970, as Arrow has them; None without the column."""
        column = self._column("timestamp")
        if column is None:
            return None
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return pc.fill_null(pc.divide(micros, 1000), 0)

    def _timestamps(self) -> Any:
        """The same, 0 lets the client take the time of sending."""
        millis = self._millis()
        return repeat(0, len(self)) if millis is None else millis.to_pylist()


class _Positions:
    """Where each row came from, as text that is only made if an error asks for it."""

    def __init__(self, source: Any, size: int) -> None:
        self._source, self._size = source, size

    def __iter__(self) -> Iterator[Position]:
        return (Position(self._source, index) for index in range(self._size))


class Position:
    """One row's place: its source position where it has one, else its number in its Arrow batch."""

    __slots__ = ("_index", "_source")

    def __init__(self, source: Any, index: int) -> None:
        self._source, self._index = source, index

    @property
    def source(self) -> str | None:
        """`settlements-3@17`: topic, partition and offset; None where the row carries none."""
        found = self._found()
        return f"{found['topic']}-{found['partition']}@{found['offset']}" if found else None

    def __str__(self) -> str:
        found = self._found()
        if found is None:
            return f"row {self._index} of its Arrow batch"
        return f"from {found['topic']}-{found['partition']} offset {found['offset']}"

    def _found(self) -> dict[str, Any] | None:
        return self._source[self._index].as_py() if self._source is not None else None


def _headers(listed: list[dict[str, Any]] | None) -> Headers | None:
    if listed is None:
        return None
    return [(each["key"], each["value"]) if each is not None else (None, None) for each in listed]
