"""Batch queries on Kafka: everything committed between two places, as it was when the query was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_eos.errors import OptionError
from spark_eos.kafka.listing import Listing
from spark_eos.kafka.offsets import BoundsByPartition, ranges
from spark_eos.kafka.places import Places
from spark_eos.protocol.positions import Offsets
from spark_eos.source_options import SourceOptions
from spark_eos.spark.ranges import RangePartition, planned, reachable, read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaEosReader(DataSourceReader):
    """Plans on the driver, and reads ranges in tasks.

    Args:
        options: as the user gave them.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; one without work where there is nothing to read, since Spark wants at least one.

        Raises:
            OptionError: the start or the end does not fit what the partitions hold.
            DataLoss: the start is not there any more, and failOnDataLoss is true.
        """
        listing = Listing(self._options.client, self._options.subscription)
        bounds = listing.holdings().bounds
        places = Places(self._options, listing)
        start, end = places.start(bounds), places.end(bounds)
        start = reachable(start, bounds, self._options)
        self._check(start, end, bounds)
        return planned(ranges(start, end), self._options) or [RangePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of one task's ranges."""
        return read_partition(partition, self._options)

    def _check(self, start: Offsets, end: Offsets, bounds: BoundsByPartition) -> None:
        for key, last in end.items():
            where, held = f"topic {key[0]}, partition {key[1]}", bounds[key]
            if last > held.end:
                raise OptionError(
                    f"option {self._options.end.option}: {where} is to be read up to offset {last}, and its last "
                    f"stable offset is {held.end} (high watermark {held.high_watermark})",
                    do="Use -1 (latest). What is above the last stable offset may still be aborted.",
                )
            if start[key] > last:
                raise OptionError(
                    f"{where}: {self._options.start.option} (offset {start[key]}) is after "
                    f"{self._options.end.option} (offset {last})",
                    do="A query starts at or before its end.",
                )
