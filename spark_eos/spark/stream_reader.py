"""Streams of committed records: which offsets a micro-batch has.

Batch 0 of a query is always empty: it puts the starting offsets into the checkpoint. Spark asks a source for
them again when batch 0 is done again, and has no place to keep them for a Python source. "latest" would be a later
offset by then: records of the first attempt would be lost, or differ from what a sink has committed already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_eos.errors import SparkEosError
from spark_eos.kafka.listing import NOTHING, Listing
from spark_eos.kafka.loss import report_losses
from spark_eos.kafka.offsets import (
    Holdings,
    JsonOffsets,
    Marks,
    OffsetRange,
    ends,
    limited,
    losses,
    lost,
    ranges,
    report,
)
from spark_eos.kafka.places import Places
from spark_eos.protocol.positions import TOPIC_IDS, Offsets, TopicPartition
from spark_eos.source_options import SourceOptions
from spark_eos.spark.ranges import planned, reachable, read_partition
from spark_eos.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaEosStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver (with one client, made on first use), and reads ranges in tasks.

    Args:
        options: as the user gave them. Only they are pickled into tasks.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clients: Listing | None = None
        self._seen: Holdings | None = None
        self._read_to: Offsets = {}
        self._target: Offsets | None = None
        self._initial: JsonOffsets | None = None
        self._end_of_batch_0: JsonOffsets | None = None
        self._began_at = -math.inf
        self._told: dict[TopicPartition, str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaEosStreamReader, (self._options,)

    def initialOffset(self) -> JsonOffsets:
        """Where a new query starts. Spark asks several times, and gets the same answer.

        Raises:
            OptionError: the options name other partitions than there are, or a place that they do not have.
            DataLoss: an option names an offset that is not there, and failOnDataLoss is true.
        """
        if self._initial is None:
            found = self._look()
            start = Places(self._options, self._listing).start(found.bounds, self._target)
            start = reachable(start, found.bounds, self._options)
            self._initial = Marks(start, found.topic_ids).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what "all that is available now" is."""
        self._target = ends(self._look().bounds, None)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The options maxOffsetsPerTrigger and minOffsetsPerTrigger; Spark has room for one."""
        pace = self._options.pace
        if pace.most:
            return ReadMaxRows(pace.most)
        return ReadMinRows(pace.least) if pace.least else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:
        """Where the next batch ends.

        Raises:
            DataLoss: records between `start` and now are gone, and failOnDataLoss is true.
        """
        if start == self._initial and self._end_of_batch_0 is None:
            self._end_of_batch_0 = start
            self._read_to = Marks.of_json(start).offsets
            return start
        known = Marks.of_json(start)
        found = self._look(known)
        self._tell_of(lost(known, found))
        begin = known.back(found).without(known.replaced(found.topic_ids))
        until = ends(found.bounds, self._target)
        if self._is_too_early(begin.offsets, until, limit):
            self._read_to = begin.offsets
            return start
        if isinstance(limit, ReadMaxRows):
            until = limited(limit.max_rows, begin.offsets, found.bounds, until)
        end = begin.moved(until, found)
        self._read_to = end.offsets
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far everything could be read when Spark last asked, and the lag; for the query's progress."""
        return report(self._seen, self._read_to) if self._seen is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks that read what is between two offsets. They depend on nothing but these and the options.

        Raises:
            DataLoss: a batch is done again after a restart, and its records are gone.
            SparkEosError: it is the first batch of Spark's own source, which did not finish it.
        """
        if start == self._initial and self._end_of_batch_0 in (None, end):
            _check_batch_0_is_ours(start, end)
            self._end_of_batch_0 = end
            return []
        first, last = Marks.of_json(start), Marks.of_json(end)
        first = first.without(first.replaced(last.topic_ids))
        wanted = ranges(first.all, last.offsets)
        if wanted and self._seen is None:
            wanted = self._still_there(wanted, last)
        return planned(wanted, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of one task's ranges."""
        return read_partition(partition, self._options)

    def stop(self) -> None:
        self._clients = None

    @property
    def _listing(self) -> Listing:
        if self._clients is None:
            options = self._options
            self._clients = Listing(options.client, options.subscription, strict=options.fail_on_data_loss)
        return self._clients

    def _look(self, known: Marks = NOTHING) -> Holdings:
        self._seen = self._listing.holdings(known)
        return self._seen

    def _tell_of(self, lost: dict[TopicPartition, str]) -> None:
        """Raise, or warn of each once: a partition that is shorter than its mark is so at every look."""
        fail = self._options.fail_on_data_loss
        news = {key: what for key, what in lost.items() if fail or self._told.get(key) != what}
        self._told = lost
        report_losses(news, fail=fail)

    def _is_too_early(self, begin: Offsets, until: Offsets, limit: ReadLimit) -> bool:
        """Whether to wait for more (minOffsetsPerTrigger); as in Spark, a run's first batch is not held back."""
        pace = self._options.pace
        if pace.least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        new = sum(max(0, end - begin.get(key, 0)) for key, end in until.items())
        now = time.monotonic()
        if new < pace.least and now - self._began_at < pace.patience_ms / 1000:
            return True
        self._began_at = now
        return False

    def _still_there(self, wanted: list[OffsetRange], last: Marks) -> list[OffsetRange]:
        """A task that reads what is not there finds out late: ask the cluster before it starts.

        Ranges of a topic that was deleted and created again are left out: its offsets are other records by now.
        """
        start = {(each.topic, each.partition): each.start for each in wanted}
        end = {(each.topic, each.partition): each.end for each in wanted}
        found = self._look(Marks(start, last.topic_ids, last.all))
        there = Holdings({key: held for key, held in found.bounds.items() if key in start}, found.topic_ids)
        told = lost(Marks(start, last.topic_ids), there)
        short = {key: offset for key, offset in end.items() if key in there.bounds and offset > there.bounds[key].end}
        told = losses(short, {key: there.bounds[key] for key in short}) | told
        report_losses(told, fail=self._options.fail_on_data_loss)
        gone = last.replaced(found.topic_ids)
        return [each for each in wanted if each.topic not in gone]


def _check_batch_0_is_ours(start: JsonOffsets, end: JsonOffsets) -> None:
    """Batch 0 of Spark's own source has rows, and where it starts does not stand in the offset log."""
    if TOPIC_IDS in start and end and TOPIC_IDS not in end:
        raise SparkEosError(
            "the checkpoint's first batch was planned by Spark's own Kafka source, and is not finished",
            do='Run the query with format("kafka") until the batch is done, or with a new checkpoint.',
        )
