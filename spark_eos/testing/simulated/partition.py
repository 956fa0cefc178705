"""One partition's log: records, transaction markers, the last stable offset, and what a read_committed reader sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from spark_eos.testing.simulated.answers import BrokerError, Code

NO_PRODUCER = -1


@dataclass(frozen=True)
class Producer:
    """Who writes: producer id and epoch."""

    id: int
    epoch: int


PLAIN = Producer(NO_PRODUCER, -1)
"""A producer without transactions."""


@dataclass(frozen=True)
class Payload:
    """What a record holds. Two are equal whenever they were written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Marker:
    """A control record: the end of a producer's transaction in one partition."""

    commit: bool
    coordinator_epoch: int

    @property
    def name(self) -> str:
        return "COMMIT" if self.commit else "ABORT"


@dataclass(frozen=True)
class Entry:
    """One offset of the log."""

    offset: int
    producer: Producer
    sequence: int
    content: Payload | Marker


class PartitionLog:
    """A partition with one replica, as its leader keeps it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.digest = 0
        """Of all entries: equal if they are, in one process."""
        self._epochs: dict[int, int] = {}
        self._next_sequence: dict[Producer, int] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._aborted: list[tuple[int, int, int]] = []

    @property
    def high_watermark(self) -> int:
        """The next offset."""
        return len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins; without one, the high watermark. Readers stop there."""
        return min(self._open.values(), default=self.high_watermark)

    def append(
        self, producer: Producer, first_sequence: int, payloads: Sequence[Payload], verify: Callable[[], None]
    ) -> None:
        """Records of a transaction.

        Args:
            producer: whose.
            first_sequence: number of the first record; each producer epoch counts from 0 in each partition.
            payloads: the records.
            verify: asks the coordinator whether this partition is part of the producer's open transaction (KIP-890,
                part 1). Asked where the log knows of none.

        Raises:
            BrokerError: an older epoch, a gap in the sequence, no transaction.
        """
        self._refuse_older(producer)
        expected = self._next_sequence.get(producer, 0)
        if first_sequence + len(payloads) <= expected:
            return  # a duplicate of what is written
        if first_sequence != expected:
            why = f"got {first_sequence}, expected {expected}"
            raise BrokerError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if producer.id not in self._open:
            verify()
            self._open[producer.id] = self.high_watermark
        self._epochs[producer.id] = producer.epoch
        self._write(producer, first_sequence, payloads)
        self._next_sequence[producer] = first_sequence + len(payloads)

    def append_plain(self, payloads: Sequence[Payload]) -> None:
        """Records outside of any transaction."""
        self._write(PLAIN, 0, payloads)

    def end(self, producer: Producer, marker: Marker) -> None:
        """Write a marker: from here on the transaction's records are committed, or never seen.

        Raises:
            BrokerError: of an older epoch, or of a coordinator that has been replaced.
        """
        self._refuse_older(producer)
        if marker.coordinator_epoch < self._coordinator_epochs.get(producer.id, 0):
            raise BrokerError(Code.TRANSACTION_COORDINATOR_FENCED, f"coordinator epoch {marker.coordinator_epoch}")
        self._coordinator_epochs[producer.id] = marker.coordinator_epoch
        self._epochs[producer.id] = producer.epoch
        first = self._open.pop(producer.id, None)
        if first is not None and not marker.commit:
            self._aborted.append((producer.id, first, self.high_watermark))
        self._keep(Entry(self.high_watermark, producer, -1, marker))

    def records(self, isolation: str = "read_committed") -> Iterator[Entry]:
        """What a reader sees, in the order of offsets; no markers.

        Args:
            isolation: `read_committed` or `read_uncommitted`.
        """
        committed = isolation == "read_committed"
        for entry in self.entries[: self.last_stable_offset if committed else None]:
            if isinstance(entry.content, Payload) and not (committed and self._is_aborted(entry)):
                yield entry

    def _write(self, producer: Producer, first_sequence: int, payloads: Sequence[Payload]) -> None:
        for number, payload in enumerate(payloads, first_sequence):
            self._keep(Entry(self.high_watermark, producer, number, payload))

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.digest = hash((self.digest, entry))

    def _is_aborted(self, entry: Entry) -> bool:
        return any(entry.producer.id == id_ and first <= entry.offset < end for id_, first, end in self._aborted)

    def _refuse_older(self, producer: Producer) -> None:
        known = self._epochs.get(producer.id, -1)
        if producer.epoch < known:
            raise BrokerError(Code.INVALID_PRODUCER_EPOCH, f"epoch {producer.epoch}, and {known} has written here")
