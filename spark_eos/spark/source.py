"""The format `kafka-eos`: a streaming source of committed records, with the columns of Spark's own Kafka source.

Batch 0 of a query is always empty: it puts the starting offsets into the checkpoint. Spark asks a source for
them again when batch 0 is done again, and has no place to keep them for a Python source. "latest" would be a later
offset by then: records of the first attempt would be lost, or differ from what a sink has committed already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from spark_eos.errors import SchemaError
from spark_eos.kafka.offsets import (
    Bounds,
    JsonOffsets,
    OffsetRange,
    ends,
    limited,
    losses,
    of_json,
    ranges,
    resolve,
    to_json,
)
from spark_eos.kafka.reader import BoundsByPartition, Listing, data_loss, read_range
from spark_eos.protocol.positions import Offsets
from spark_eos.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def source_schema(*, headers: bool) -> StructType:
    """Columns of Spark's Kafka source, in its order."""
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    header = StructType().add("key", StringType()).add("value", BinaryType())
    return schema.add("headers", ArrayType(header)) if headers else schema


class KafkaEosDataSource(DataSource):
    """`spark.readStream.format("kafka-eos")`. Options: see `spark_eos.source_options.SOURCE_OPTIONS`.

    `trigger(once=True)`, deprecated by Spark, runs one batch, and a new query's first batch is empty (see above):
    use `trigger(availableNow=True)`.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka-eos"

    def schema(self) -> StructType:
        """The columns. Options are checked here, so that `load()` fails on a wrong one.

        Raises:
            OptionError: see `SourceOptions.of`.
        """
        return source_schema(headers=SourceOptions.of(self.options).include_headers)

    def streamReader(self, schema: StructType) -> KafkaEosStreamReader:
        """The reader.

        Raises:
            OptionError: see `SourceOptions.of`.
            SchemaError: the user gave another schema than the source has.
        """
        options = SourceOptions.of(self.options)
        if schema != source_schema(headers=options.include_headers):
            raise SchemaError(
                f"the format kafka-eos has columns of its own, not {schema.simpleString()}",
                do="Leave out .schema(...), and parse the column value.",
            )
        return KafkaEosStreamReader(options)


class RangePartition(InputPartition):
    """One range of offsets, read by one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class KafkaEosStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver (with one client, made on first use), and reads ranges in tasks.

    Args:
        options: as the user gave them. Only they are pickled into tasks.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._listing: Listing | None = None
        self._seen: BoundsByPartition | None = None
        self._target: Offsets | None = None
        self._initial: JsonOffsets | None = None
        self._end_of_batch_0: JsonOffsets | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaEosStreamReader, (self._options,)

    def initialOffset(self) -> JsonOffsets:
        """Where a new query starts. Spark asks several times, and gets the same answer.

        Raises:
            OptionError: startingOffsets does not name the partitions that there are.
            DataLoss: startingOffsets names an offset that is not there.
        """
        if self._initial is None:
            found = self._look({})
            start = resolve(self._options.starting_offsets, found, self._target or {})
            self._initial = to_json(self._existing(start, found))
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what "all that is available now" is."""
        self._target = ends(self._look({}), None)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxOffsetsPerTrigger."""
        limit = self._options.max_offsets
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:
        """Where the next batch ends.

        Raises:
            DataLoss: records between `start` and now are gone, and failOnDataLoss is true.
        """
        if start == self._initial and self._end_of_batch_0 is None:
            self._end_of_batch_0 = start
            return start
        begin = of_json(start)
        found = self._look(begin)
        self._report(losses(begin, found))
        until = ends(found, self._target)
        if isinstance(limit, ReadMaxRows):
            until = limited(limit.max_rows, begin, found, until)
        return to_json(until)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """How far everything could be read when Spark last asked; for the query's progress."""
        return to_json(ends(self._seen, None)) if self._seen is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One range for each Kafka partition that has something between two offsets; by topic and partition.

        Raises:
            DataLoss: a batch is done again after a restart, and its records are gone.
        """
        if start == self._initial and self._end_of_batch_0 in (None, end):
            self._end_of_batch_0 = end
            return []
        wanted = ranges(of_json(start), of_json(end))
        if wanted and self._seen is None:
            self._check_replay(wanted)
        return [RangePartition(each) for each in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of one range, in a task."""
        assert isinstance(partition, RangePartition)
        return read_range(
            self._options.client,
            partition.wanted,
            headers=self._options.include_headers,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def stop(self) -> None:
        self._listing = None

    def _look(self, known: Offsets) -> BoundsByPartition:
        if self._listing is None:
            self._listing = Listing(self._options.client, self._options.topics)
        self._seen = self._listing.bounds(known)
        return self._seen

    def _check_replay(self, wanted: list[OffsetRange]) -> None:
        """A task that reads what is not there finds out late: ask the cluster before it starts."""
        start = {(each.topic, each.partition): each.start for each in wanted}
        found = {key: bounds for key, bounds in self._look(start).items() if key in start}
        self._report(losses(start, found))
        end = {(each.topic, each.partition): each.end for each in wanted}
        shrunk = {key: Bounds(0, found[key].end) for key in found}
        self._report(losses(end, shrunk))

    def _existing(self, start: Offsets, found: BoundsByPartition) -> Offsets:
        """Starting offsets that are there: where they are not, that is data loss, or they are moved."""
        self._report(losses(start, found))
        return {key: min(max(offset, found[key].earliest), found[key].end) for key, offset in start.items()}

    def _report(self, lost: dict[tuple[str, int], str]) -> None:
        told = "; ".join(f"topic {topic}, partition {partition}, {what}" for (topic, partition), what in lost.items())
        if told and self._options.fail_on_data_loss:
            raise data_loss(told)
        if told:
            log.warning("records are passed over (failOnDataLoss is false): %s", told)
