"""A read_committed reader of the older proposal: it takes all records and holds back those of open transactions.

Kafka's brokers give read_committed readers nothing beyond the last stable offset, and tell them which transactions were
aborted. This reader needs neither: it keeps a map from transaction and partition to records, and delivers a
transaction's when it meets the marker. To go on after a crash it needs two offsets. It is here to be compared with
Kafka's way: both deliver the same records; these come in the order of markers, and wait for no older transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_eos.protocol.positions import TopicPartition
from spark_eos.testing.simulated.partition import PLAIN, Entry, Marker, PartitionLog


@dataclass(frozen=True)
class ReaderState:
    """What a reader keeps of a partition: every marker below `position`, and nothing above, was acted on.

    Args:
        first_pending: where the earliest transaction begins that was open there; without one, the position.
        position: the next offset to read.
    """

    first_pending: int = 0
    position: int = 0


class PendingReader:
    """Reads partitions record by record.

    Args:
        logs: the partitions.
        states: where an earlier reader stood, as its `states` told after what it delivered last.
    """

    def __init__(
        self, logs: dict[TopicPartition, PartitionLog], states: dict[TopicPartition, ReaderState] | None = None
    ) -> None:
        self._logs = logs
        self._pending: dict[tuple[int, TopicPartition], list[Entry]] = {}
        self._positions: dict[TopicPartition, int] = {}
        for place in logs:
            self._recover(place, (states or {}).get(place, ReaderState()))

    @property
    def states(self) -> dict[TopicPartition, ReaderState]:
        """What to keep, so that another reader goes on from here."""
        return {place: ReaderState(self._first_pending(place), at) for place, at in self._positions.items()}

    def read(self, place: TopicPartition) -> list[Entry] | None:
        """Take the next offset of a partition; what is delivered then, or None at the log's end.

        Keep the `states` together with what was delivered, or it is delivered again after a crash.
        """
        position = self._positions[place]
        if position == self._logs[place].high_watermark:
            return None
        self._positions[place] = position + 1
        return self._taken(place, self._logs[place].entries[position])

    def read_all(self) -> Iterator[tuple[TopicPartition, Entry]]:
        """All that can be delivered now, partition by partition."""
        for place in self._logs:
            while (entries := self.read(place)) is not None:
                for entry in entries:
                    yield place, entry

    def _taken(self, place: TopicPartition, entry: Entry) -> list[Entry]:
        if isinstance(entry.content, Marker):
            held = self._pending.pop((entry.producer.id, place), [])
            return held if entry.content.commit else []
        if entry.producer == PLAIN:
            return [entry]
        self._pending.setdefault((entry.producer.id, place), []).append(entry)
        return []

    def _recover(self, place: TopicPartition, state: ReaderState) -> None:
        """Fetch again what was held back. What ended before the position was delivered, and is passed over."""
        for entry in self._logs[place].entries[state.first_pending : state.position]:
            self._taken(place, entry)
        self._positions[place] = state.position

    def _first_pending(self, place: TopicPartition) -> int:
        held = (entries[0].offset for (_, where), entries in self._pending.items() if where == place)
        return min(held, default=self._positions[place])
