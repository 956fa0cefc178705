"""What a query's checkpoint says of a micro-batch: the offsets of its sources, and what these stand for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.positions import TOPIC_IDS, Offsets, TopicPartition, offsets_in_log

ReadFile = Callable[[str], str | None]
"""The text of a file of the checkpoint, by its path there; None if there is no such file."""

SourceEnds = Mapping[str, str]
"""Source, by its name in the checkpoint's folder `sources`, to its offset as JSON, as Spark wrote it."""

WITH_LISTINGS = "sources:"
"""Begins a content that is made of more than offsets."""


@dataclass(frozen=True)
class LoggedBatch:
    """An entry of the offset log.

    Args:
        sources: where the batch ends; None where the log can't be reached.
        planned_at: when Spark fixed which rows are in the batch, seconds since 1970; a batch that is done again keeps
            it.
        before: where it starts: the entry before. Empty for a query's first batch.
        listings: of sources whose offsets do not define their rows: what does, as far as the checkpoint tells.
        stateful: the checkpoint has state.
        initial: where its Kafka sources start, of a query's first batch.
    """

    sources: SourceEnds | None
    planned_at: float | None = None
    before: SourceEnds = field(default_factory=dict)
    listings: Mapping[str, str] = field(default_factory=dict)
    stateful: bool = False
    initial: SourceEnds = field(default_factory=dict)

    @cached_property
    def content(self) -> str | None:
        """Digest of what the batch is made of: equal contents of equal batch ids are equal batches. None if that can't
        be known: the offset 3 of a folder is its third list of files, whichever files these are."""
        if self.sources is None:
            return None
        unclear = [name for name, end in self.sources.items() if not defines_rows(json.loads(end))]
        if any(name not in self.listings for name in unclear):
            return None
        told = list(self.sources.values()) + [self.listings[name] for name in unclear]
        digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
        return WITH_LISTINGS + digest if unclear else digest

    @cached_property
    def previous(self) -> str | None:
        """The content of the batch before, where offsets alone define it."""
        return LoggedBatch(self.before).content if self.before else None

    @cached_property
    def offsets(self) -> Offsets:
        """The end offsets of the sources that are Kafka. What two sources read is processed where both are."""
        offsets: Offsets = {}
        for found in self._each_kafka(self.sources or {}):
            for key, offset in found.items():
                offsets[key] = min(offset, offsets.get(key, offset))
        return offsets

    @cached_property
    def shared(self) -> bool:
        """Whether several sources read one partition: a position is then that of several rows."""
        keys: list[TopicPartition] = [key for found in self._each_kafka(self.sources or {}) for key in found]
        return len(keys) > len(set(keys))

    @cached_property
    def starts(self) -> Offsets:
        """The start offsets of the sources that are Kafka; none of a topic that was created again meanwhile."""
        replaced = self._topic_ids(self.before) - self._topic_ids(self.sources or {})
        gone = {topic for topic, _ in replaced}
        found: Offsets = {}
        for offsets in self._each_kafka(self.before or self.initial):
            for key, offset in offsets.items():
                if key[0] not in gone:
                    found[key] = min(offset, found.get(key, offset))
        return found

    @property
    def topics(self) -> set[str]:
        """Of its Kafka sources."""
        return {topic for topic, _ in self.offsets.keys() | self.starts.keys()}

    def in_cluster(self, counts: Mapping[str, int]) -> BatchLog:
        """What the protocol needs of it: of topics that this cluster has, as a query may read from another one.

        Args:
            counts: topic to its number of partitions, of those that it has.
        """
        starts, ends = (
            {key: at for key, at in offsets.items() if key[1] < counts.get(key[0], 0)}
            for offsets in (self.starts, self.offsets)
        )
        return BatchLog(self.content, self.previous, starts, ends, self.shared, self.stateful)

    @staticmethod
    def _each_kafka(ends: SourceEnds) -> Iterable[Offsets]:
        return (offsets_in_log(json.loads(end)) for end in ends.values())

    @staticmethod
    def _topic_ids(ends: SourceEnds) -> set[tuple[str, str]]:
        entries = (json.loads(end) for end in ends.values())
        ids = [entry.get(TOPIC_IDS, {}) for entry in entries if isinstance(entry, dict)]
        return {pair for each in ids if isinstance(each, dict) for pair in each.items()}


UNKNOWN = LoggedBatch(None)


def defines_rows(end: Any) -> bool:
    """Whether a source's offsets say which rows are between two of them: Kafka's, and the versions of a Delta table."""
    of_delta = isinstance(end, dict) and {"reservoirId", "reservoirVersion", "index"} <= end.keys()
    return bool(offsets_in_log(end)) or of_delta


def listings(before: SourceEnds, ends: SourceEnds, read: ReadFile) -> dict[str, str]:
    """What the checkpoint's folder `sources` says of sources whose offsets do not define their rows.

    Args:
        before, ends: the batch.
        read: reads the checkpoint.

    Returns:
        Source to text. A folder's list of files; when a rate source was begun; nothing of any other source.
    """
    found: dict[str, str] = {}
    for name, text in ends.items():
        end = json.loads(text)
        if defines_rows(end):
            continue
        if isinstance(end, dict) and end.keys() == {"logOffset"}:
            begun = json.loads(before[name])["logOffset"] if name in before else -1
            listed = _files(name, range(begun + 1, end["logOffset"] + 1), read)
        elif isinstance(end, int) or (isinstance(end, dict) and end.keys() == {"offset", "timestamp"}):
            listed = read(f"sources/{name}/0")
        else:
            listed = None
        if listed is not None:
            found[name] = listed
    return found


def initial_offsets(ends: SourceEnds, read: ReadFile) -> dict[str, str]:
    """Where a query's first batch starts, by source: that of kafka-eos has no rows, so it starts where it ends; Spark's
    own Kafka source keeps its start in the checkpoint's `sources`."""
    found: dict[str, str] = {}
    for name, end in ends.items():
        if offsets_in_log(json.loads(end)):
            found[name] = end if TOPIC_IDS in end else (read(f"sources/{name}/0") or "").split("\n")[-1]
    return {name: text for name, text in found.items() if text.startswith("{")}


def _files(name: str, lists: range, read: ReadFile) -> str | None:
    """Files by path and time, of the lists with these numbers; None if one of them is not there."""
    found: list[str] = []
    for number in lists:
        folder = f"sources/{name}/{number}"
        text = read(folder) or read(f"{folder}.compact")
        if text is None:
            return None
        entries = map(json.loads, text.splitlines()[1:])
        found += sorted(f"{each['path']} {each['timestamp']}" for each in entries if each["batchId"] == number)
    return "\n".join(found)
