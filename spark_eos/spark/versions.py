"""Spark 4.1 beside 4.2: what it does not give to Python sources, and how source and sink do without. All of it is here.

Spark 4.2 hands `latestOffset` the start of the batch and a limit, and asks for `Trigger.AvailableNow` and for the lag.
Spark 4.1 calls `latestOffset()` and asks for nothing else. With `Trigger.AvailableNow` it runs one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

SPARK_41 = find_spec("pyspark.sql.streaming.datasource") is None

if TYPE_CHECKING or not SPARK_41:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """As in Spark 4.2, like those below."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMinRows(ReadLimit):
        """Wait for so many rows."""

        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """So many rows and no more."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """Spark 4.1 has no use for it."""


if TYPE_CHECKING:
    import pyarrow as pa

    from spark_eos.kafka.offsets import JsonOffsets
    from spark_eos.spark.stream_reader import KafkaEosStreamReader

__all__ = [
    "SPARK_41",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "Spark41StreamReader",
    "SupportsTriggerAvailableNow",
    "arrow_type",
    "as_spark_asks",
    "offset_metadata",
]

log = logging.getLogger(__name__)


def arrow_type(spark_type: DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values; timestamps are in UTC, as in 4.1 they always are."""
    in_utc: dict[str, Any] = {} if SPARK_41 else {"timezone": "UTC"}
    return to_arrow_type(spark_type, **in_utc)


def as_spark_asks(reader: KafkaEosStreamReader) -> DataSourceStreamReader:
    """The reader for the Spark that runs."""
    return Spark41StreamReader(reader) if SPARK_41 else reader


class Spark41StreamReader(DataSourceStreamReader):
    """Knows by itself where a batch starts: where the last one ended.

    After a restart that is the last end in the checkpoint. Spark 4.1 tells it before it asks for anything: it calls
    `partitions(end, end)` (PythonMicroBatchStream.setLatestSeenOffset). A new query starts at its initial offset. What
    `latestOffset()` has answered is the next start, whether its batch has rows or not: a query whose batch fails ends,
    and another reader is made.

    Args:
        reader: plans and reads.
    """

    def __init__(self, reader: KafkaEosStreamReader) -> None:
        self._reader = reader
        self._last_end: JsonOffsets | None = None
        self._began = False

    def initialOffset(self) -> JsonOffsets:
        """See `KafkaEosStreamReader`, as for the others."""
        return self._reader.initialOffset()

    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]
        """Where the next batch ends, within the options' limits."""
        start = self.initialOffset() if self._last_end is None else self._last_end
        self._last_end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        self._tell_what_is_left()
        return self._last_end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        if self._last_end is None:
            self._last_end = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of one task's ranges."""
        return self._reader.read(partition)

    def stop(self) -> None:
        self._reader.stop()

    def _tell_what_is_left(self) -> None:
        """Once a run: nothing tells the reader whether Spark will ask for more."""
        left = (self._reader.reportLatestOffset() or {}).get("lag", {}).get("to last stable offset", 0)
        if left and not self._began:
            log.warning(
                "%d offsets are left after this run's first batch; Spark 4.1 runs no second one with "
                "trigger(availableNow=True) or trigger(once=True): start the query again, or use another trigger",
                left,
            )
        self._began = True


def offset_metadata(entry: Any) -> Any:
    """The metadata of an entry of the offset log, a Scala Option, from the JVM's object."""
    return entry.metadata() if SPARK_41 else entry.metadataOpt()
