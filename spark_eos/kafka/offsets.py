"""Arithmetic of offsets: where to start, how much to take, what is gone. Pure: no client, no Spark.

Offsets travel as Spark's Kafka source writes them into the checkpoint, {"topic": {"0": 12}}: the next offset to read.
Spark compares them as text, so `to_json` always gives topics and partitions in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_eos.errors import OptionError, SparkEosError
from spark_eos.protocol.positions import Offsets, TopicPartition, offsets_in_log
from spark_eos.source_options import EARLIEST, LATEST, StartingOffsets

JsonOffsets = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Bounds:
    """What a partition holds now.

    Args:
        earliest: the first offset that is still there (log start offset).
        end: the last stable offset: nothing below it can change any more. Excluded.
    """

    earliest: int
    end: int


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition, from `start` up to and without `end`. Some of them may be no committed records."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets {self.start} to {self.end}"


def to_json(offsets: Offsets) -> JsonOffsets:
    """Offsets as the checkpoint keeps them, sorted by topic and by partition number."""
    found: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def of_json(text: JsonOffsets) -> Offsets:
    """Offsets from the checkpoint.

    Raises:
        SparkEosError: the checkpoint does not hold a Kafka source's offsets.
    """
    found = offsets_in_log(text)
    if text and not found:
        raise SparkEosError(
            "the checkpoint's offsets are not those of a Kafka source",
            do="Use the checkpoint of this query, or a new one.",
        )
    return found


def resolve(
    starting: StartingOffsets, bounds: Mapping[TopicPartition, Bounds], latest: Mapping[TopicPartition, int]
) -> Offsets:
    """Where a new query starts in each partition.

    Args:
        starting: the option startingOffsets.
        bounds: what the partitions hold.
        latest: what "latest" means, where that was fixed already (AvailableNow); else the end of the partition.

    Raises:
        OptionError: the option names other partitions than there are (Spark's rule).
    """
    if isinstance(starting, str):
        word = EARLIEST if starting == "earliest" else LATEST
        starting = dict.fromkeys(bounds, word)
    if starting.keys() != bounds.keys():
        raise _other_partitions(starting.keys(), bounds.keys())

    def one(key: TopicPartition, offset: int) -> int:
        special = {EARLIEST: bounds[key].earliest, LATEST: latest.get(key, bounds[key].end)}
        return special.get(offset, offset)

    return {key: one(key, offset) for key, offset in starting.items()}


def _other_partitions(named: Iterable[TopicPartition], there: Iterable[TopicPartition]) -> OptionError:
    def text(keys: Iterable[TopicPartition]) -> str:
        return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys))

    return OptionError(
        f"option startingOffsets names the partitions {text(named)}, and the topics have {text(there)}",
        do="Name every partition; use -1 (latest) or -2 (earliest) for those that you don't care about.",
    )


def losses(start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, str]:
    """Partitions of which records are gone, or will be passed over, with what happened.

    Args:
        start: the next offset to read of each partition known so far. Any other partition is new, and is read
            from its first record on, which has offset 0.
        bounds: what the partitions hold now.
    """
    keys = sorted(start.keys() | bounds.keys())
    told = {key: _loss(start.get(key), bounds.get(key)) for key in keys}
    return {key: text for key, text in told.items() if text}


def _loss(start: int | None, bounds: Bounds | None) -> str:
    if bounds is None:
        return f"to be read from offset {start}, is gone (deleted, or no longer subscribed)"
    if start is None:
        return f"is new, and starts at offset {bounds.earliest} instead of 0" if bounds.earliest else ""
    if bounds.end < start:
        return f"to be read from offset {start}, ends at {bounds.end} (deleted and created again, or truncated)"
    if bounds.earliest > start:
        return f"to be read from offset {start}, starts at {bounds.earliest} (deleted by retention)"
    return ""


def ends(bounds: Mapping[TopicPartition, Bounds], target: Offsets | None) -> Offsets:
    """How far each partition can be read; with a target (AvailableNow), no further than that, and no new ones."""
    if target is None:
        return {key: found.end for key, found in bounds.items()}
    return {key: min(found.end, target[key]) for key, found in bounds.items() if key in target}


def limited(limit: int, start: Offsets, bounds: Mapping[TopicPartition, Bounds], until: Offsets) -> Offsets:
    """Ends of a batch of about `limit` offsets, shared in proportion to the backlogs.

    As Spark's KafkaMicroBatchStream.rateLimit: shares are rounded down, but no partition with a backlog gets less
    than one offset, so a batch may exceed the limit by the number of partitions.

    Args:
        limit: most offsets, above 0.
        start: the next offset to read, by partition; others are read from their beginning.
        bounds: what the partitions hold. Offsets below the earliest one don't count: there is nothing to read.
        until: how far each partition could be read.
    """
    begin = {key: max(start.get(key, 0), bounds[key].earliest) for key in until}
    backlog = {key: max(0, end - begin[key]) for key, end in until.items()}
    total = sum(backlog.values())

    def one(key: TopicPartition, end: int) -> int:
        share = max(1, limit * backlog[key] // total)
        return min(end, begin[key] + share)

    return {key: one(key, end) if backlog[key] else end for key, end in until.items()}


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What to read between two offsets of the checkpoint, sorted by topic and partition.

    It depends on nothing else, so that a batch that is done again has the same rows in the same places.
    """
    found = [OffsetRange(*key, start.get(key, 0), end[key]) for key in sorted(end)]
    return [each for each in found if each.start < each.end]
