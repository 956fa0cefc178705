"""What both readers, of streams and of batch queries, hand to tasks, and what a task does with it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from spark_eos.kafka.loss import report_losses
from spark_eos.kafka.offsets import BoundsByPartition, OffsetRange, losses
from spark_eos.kafka.reader import read_ranges
from spark_eos.kafka.split import Work, tasks
from spark_eos.protocol.positions import Offsets
from spark_eos.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """Ranges of offsets that one task reads, one after the other."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.work = work


def planned(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[RangePartition]:
    """The tasks that read some ranges."""
    return [RangePartition(work) for work in tasks(list(ranges), options.split)]


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The committed records of a task's ranges."""
    assert isinstance(partition, RangePartition)
    yield from read_ranges(options, partition.work)
    _spare_the_collector()


@cache
def _spare_the_collector() -> None:
    """Once in a worker, when all is imported: PySpark's daemon collects garbage after every task.

    It then goes through the 86,000 objects of the imported modules each time: 37 to 45 ms a task, of 40 to 53 ms that
    a near-empty task costs (measured). Frozen ones are left out.
    """
    gc.freeze()


def reachable(start: Offsets, bounds: BoundsByPartition, options: SourceOptions) -> Offsets:
    """Starting offsets, moved to where there is something to read.

    Raises:
        DataLoss: one is not there, and failOnDataLoss is true.
    """
    report_losses(losses(start, bounds), fail=options.fail_on_data_loss)
    return {key: min(max(offset, bounds[key].earliest), bounds[key].end) for key, offset in start.items()}
