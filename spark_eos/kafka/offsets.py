"""Arithmetic of offsets: how far to read, how much to take, what is gone. Pure: no client, no Spark.

Offsets travel as Spark's Kafka source writes them into the checkpoint, {"topic": {"0": 12}}: the next offset to read.
Beside them stand the topics' ids (KIP-516), so that a topic that was deleted and created again is told from the old
one: {"topic": {"0": 12}, "topic ids": {"topic": "TMuVWNiZS..."}}. No topic can have a name with a space. Partitions
that can't be seen (failOnDataLoss=false) wait there too: {..., "out of sight": {"gone": {"0": 7}}}.
Spark compares offsets as text, so `to_json` always gives topics and partitions in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_eos.errors import SparkEosError
from spark_eos.protocol.positions import OUT_OF_SIGHT, TOPIC_IDS, Offsets, TopicPartition, offsets_in_log
from spark_eos.source_options import ISOLATION

JsonOffsets = dict[str, dict[str, Any]]
TopicIds = Mapping[str, str]


@dataclass(frozen=True)
class Bounds:
    """What a partition holds now.

    Args:
        earliest: the first offset that is still there (log start offset).
        end: the last stable offset: nothing below it can change any more. Excluded.
        high_watermark: the end of all that is replicated; above `end` while transactions are open. Excluded.
    """

    earliest: int
    end: int
    high_watermark: int


BoundsByPartition = dict[TopicPartition, Bounds]


@dataclass(frozen=True)
class Holdings:
    """What the subscribed topics hold now.

    Args:
        bounds: by partition; partitions that are gone are absent.
        topic_ids: topic to its id.
    """

    bounds: BoundsByPartition
    topic_ids: TopicIds


@dataclass(frozen=True)
class Marks:
    """The next offset to read in each partition, and the ids of the topics that these are offsets of.

    Args:
        offsets: by partition.
        topic_ids: topic to its id, where it is known: a checkpoint of Spark's own source has none.
        hidden: the same offsets of partitions that could not be seen, which was accepted (failOnDataLoss=false). They
            are no loss any more, and wait here: read from their first record, they would be read twice.
    """

    offsets: Offsets
    topic_ids: TopicIds
    hidden: Offsets = field(default_factory=dict)

    @property
    def all(self) -> Offsets:
        """Hidden or not."""
        return self.hidden | self.offsets

    def replaced(self, now: TopicIds) -> set[str]:
        """Topics that were deleted and created again between these offsets and now."""
        return {topic for topic, known in self.topic_ids.items() if now.get(topic, known) != known}

    def without(self, topics: set[str]) -> Marks:
        """The same without some topics, as if they were new."""
        ids = {topic: found for topic, found in self.topic_ids.items() if topic not in topics}
        offsets = {key: offset for key, offset in self.offsets.items() if key[0] not in topics}
        return Marks(offsets, ids, {key: offset for key, offset in self.hidden.items() if key[0] not in topics})

    def back(self, now: Holdings) -> Marks:
        """The same, where hidden partitions that can be seen again go on; not those of a topic created again."""
        replaced = self.replaced(now.topic_ids)
        seen = {key: offset for key, offset in self.hidden.items() if key in now.bounds and key[0] not in replaced}
        hidden = {key: offset for key, offset in self.hidden.items() if key not in seen}
        return Marks(seen | self.offsets, self.topic_ids, hidden)

    def moved(self, until: Offsets, now: Holdings) -> Marks:
        """Marks at the end of a batch that reads from these up to `until`.

        None moves back: what is below was read. Partitions that can't be seen now are hidden, and no other gets lost.
        """
        offsets = self.offsets | {key: max(end, self.offsets.get(key, end)) for key, end in until.items()}
        gone = {key: offset for key, offset in offsets.items() if key not in now.bounds}
        seen = {key: offset for key, offset in offsets.items() if key not in gone}
        return Marks(seen, {**self.topic_ids, **now.topic_ids}, self.hidden | gone)

    def to_json(self) -> JsonOffsets:
        """As the checkpoint keeps them, sorted by topic and by partition number."""
        found, hidden = to_json(self.offsets), to_json(self.hidden)
        ids = {topic: self.topic_ids[topic] for topic in sorted({*found, *hidden}) if topic in self.topic_ids}
        return found | ({TOPIC_IDS: ids} if ids else {}) | ({OUT_OF_SIGHT: hidden} if hidden else {})

    @classmethod
    def of_json(cls, text: JsonOffsets) -> Marks:
        """As the checkpoint keeps them.

        Raises:
            SparkEosError: the checkpoint does not hold a Kafka source's offsets.
        """
        offsets, hidden = offsets_in_log(text), offsets_in_log(text.get(OUT_OF_SIGHT))
        if text and not offsets and not hidden:
            raise SparkEosError(
                "the checkpoint's offsets are not those of a Kafka source",
                do="Use the checkpoint of this query, or a new one.",
            )
        return cls(offsets, text.get(TOPIC_IDS, {}), hidden)


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition, from `start` up to and without `end`. Some of them may be no committed records."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets {self.start} to {self.end}"


def to_json(offsets: Offsets) -> JsonOffsets:
    """Offsets by topic and partition, sorted."""
    found: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def lost(known: Marks, now: Holdings) -> dict[TopicPartition, str]:
    """Partitions of which records are gone, or will be passed over, with what happened."""
    known, replaced = known.back(now), known.replaced(now.topic_ids)
    told = {
        key: f"to be read from offset {offset}, is another one by now: the topic was deleted and created again"
        for key, offset in sorted(known.offsets.items())
        if key[0] in replaced
    }
    return told | losses(known.without(replaced).offsets, now.bounds)


def losses(start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, str]:
    """The same from offsets alone.

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
        return f"to be read from offset {start}, is gone (deleted, hidden, or no longer subscribed)"
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


def report(now: Holdings, read: Offsets) -> dict[str, Any]:
    """How far everything could be read, and how much is left after a batch, for the query's progress.

    {"topic": {"0": 17}, "high watermark": {"topic": {"0": 25}}, "lag": {"to last stable offset": 0, "to high
    watermark": 8}, "isolation.level": "read_committed"}: a lag to the high watermark that stays is a transaction that
    nobody ends.

    Args:
        now: what the partitions hold.
        read: the end of the batch.
    """
    lag = {
        "to last stable offset": sum(max(0, held.end - read.get(key, 0)) for key, held in now.bounds.items()),
        "to high watermark": sum(max(0, held.high_watermark - read.get(key, 0)) for key, held in now.bounds.items()),
    }
    high = to_json({key: held.high_watermark for key, held in now.bounds.items()})
    return {**to_json(ends(now.bounds, None)), "high watermark": high, "lag": lag, "isolation.level": ISOLATION}
