"""A consumer group's committed offsets, those of open transactions apart (KIP-447)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spark_eos.protocol.positions import TopicPartition
from spark_eos.testing.simulated.answers import BrokerError, Code
from spark_eos.testing.simulated.partition import Marker, Producer


@dataclass(frozen=True)
class Committed:
    """A committed offset and its metadata."""

    offset: int
    metadata: str = ""


class Group:
    """One group, as its coordinator keeps it.

    Args:
        now: seconds since some moment.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._committed: dict[TopicPartition, Committed] = {}
        self._committed_at: dict[TopicPartition, float] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}
        self._epochs: dict[int, int] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._changes = 0
        self._fingerprint = (-1, 0)

    def commit_in_transaction(
        self, producer: Producer, offsets: Mapping[TopicPartition, Committed], verify: Callable[[], None]
    ) -> None:
        """Offsets that count once the transaction is committed.

        Raises:
            BrokerError: an older epoch, or no transaction of it with this group.
        """
        self._refuse_older(producer)
        if producer.id not in self._pending:
            verify()
        self._epochs[producer.id] = producer.epoch
        self._pending.setdefault(producer.id, {}).update(offsets)
        self._changes += 1

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Offsets that count at once."""
        self._committed.update(offsets)
        self._changes += 1
        self._committed_at.update(dict.fromkeys(offsets, self._now()))

    def end(self, producer: Producer, marker: Marker) -> None:
        """The end of a transaction: its offsets count, or never will; errors as of `PartitionLog.end`."""
        self._refuse_older(producer)
        if marker.coordinator_epoch < self._coordinator_epochs.get(producer.id, 0):
            raise BrokerError(Code.TRANSACTION_COORDINATOR_FENCED, f"coordinator epoch {marker.coordinator_epoch}")
        self._coordinator_epochs[producer.id] = marker.coordinator_epoch
        self._epochs[producer.id] = producer.epoch
        pending = self._pending.pop(producer.id, {})
        self._changes += 1
        if marker.commit:
            self.commit(pending)

    def fetch(self, places: Iterable[TopicPartition], stable: bool) -> dict[TopicPartition, Committed]:
        """What is committed for some partitions; those without anything are left out.

        Args:
            places: topics and partitions.
            stable: refuse while one of them is in an open transaction.

        Raises:
            BrokerError: UNSTABLE_OFFSET_COMMIT.
        """
        wanted = set(places)
        if stable and any(wanted & pending.keys() for pending in self._pending.values()):
            raise BrokerError(Code.UNSTABLE_OFFSET_COMMIT, "a transaction is open on one of them")
        return {place: self._committed[place] for place in wanted & self._committed.keys()}

    def all(self) -> dict[TopicPartition, Committed]:
        """All that is committed now, whatever transactions are open."""
        return dict(self._committed)

    def pending(self) -> set[TopicPartition]:
        """Partitions with an offset in an open transaction."""
        return {place for offsets in self._pending.values() for place in offsets}

    def fingerprint(self) -> int:
        """A hash of all that the group knows, but for when."""
        if self._changes != self._fingerprint[0]:
            pending = frozenset((id_, frozenset(found.items())) for id_, found in self._pending.items())
            known = (frozenset(self._committed.items()), pending, frozenset(self._epochs.items()))
            self._fingerprint = self._changes, hash(known)
        return self._fingerprint[1]

    def expire(self, retention_s: float) -> None:
        """Forget offsets that are older (`offsets.retention.minutes`)."""
        for place, at in list(self._committed_at.items()):
            if self._now() - at >= retention_s:
                del self._committed[place], self._committed_at[place]

    def _refuse_older(self, producer: Producer) -> None:
        known = self._epochs.get(producer.id, -1)
        if producer.epoch < known:
            raise BrokerError(Code.INVALID_PRODUCER_EPOCH, f"epoch {producer.epoch}, and {known} has committed here")
