"""The transaction coordinator: two-phase commit with a durable decision.

What it knows of a transactional.id stands in its journal, the transaction log. PREPARE_COMMIT in the journal is the
commit: a coordinator that takes over redoes what was prepared, and transactions that were open go on (KIP-98).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_eos.protocol.positions import TopicPartition
from spark_eos.testing.simulated.answers import BrokerError, Code
from spark_eos.testing.simulated.partition import Marker, Producer
from spark_eos.testing.simulated.states import COMPLETED, JOURNAL_NAMES, PREPARED, State, check_transition

MAX_TIMEOUT_S = 900.0
"""Kafka's default of transaction.max.timeout.ms."""

Place = TopicPartition | str
"""A partition, or a group by its name: what a transaction writes to, and a marker ends."""


@dataclass(frozen=True)
class Transaction:
    """What the coordinator knows of a transactional.id; an entry of its journal.

    Args:
        id: the transactional.id.
        producer: the producer id, and the newest epoch.
        timeout_s: how long a transaction may be open, in seconds.
        state: where it stands.
        places: what the transaction writes to.
        began_at: when the open transaction began, in seconds.
        updated_at: when anything last changed.
    """

    id: str
    producer: Producer
    timeout_s: float
    state: State = State.EMPTY
    places: frozenset[Place] = frozenset()
    began_at: float = 0.0
    updated_at: float = 0.0

    def __str__(self) -> str:
        where = ", ".join(sorted(p if isinstance(p, str) else f"{p[0]}-{p[1]}" for p in self.places))
        who = f"producer {self.producer.id} epoch {self.producer.epoch}"
        return f"{JOURNAL_NAMES[self.state]} {self.id} ({who})" + (f": {where}" if where else "")


Journal = list[Transaction]


@dataclass(frozen=True)
class PendingMarker:
    """A marker that a coordinator has yet to write."""

    id: str
    producer: Producer
    place: Place
    marker: Marker

    def __str__(self) -> str:
        where = self.place if isinstance(self.place, str) else f"{self.place[0]}-{self.place[1]}"
        who = f"{self.id} epoch {self.producer.epoch}, coordinator {self.marker.coordinator_epoch}"
        return f"marker {self.marker.name} of {who} into {where}"


class Coordinator:
    """One coordinator, from its election to the next.

    Args:
        journal: the transaction log; goes on where the last coordinator ended.
        epoch: of this coordinator: a higher one each time.
        now: seconds since some moment.
    """

    def __init__(self, journal: Journal, epoch: int, now: Callable[[], float]) -> None:
        self._journal, self._epoch, self._now = journal, epoch, now
        self._known: dict[str, Transaction] = {each.id: each for each in journal}
        self._producers = 1 + max((each.producer.id for each in journal), default=-1)
        self.markers: list[PendingMarker] = []
        self.deposed = False
        self._fingerprint = (-1, 0)
        for each in self.transactions():
            if each.state.prepared:
                self._announce(each)

    def transactions(self) -> list[Transaction]:
        """All transactional.ids that are known, by name."""
        return [each for _, each in sorted(self._known.items()) if each.state is not State.DEAD]

    def fingerprint(self) -> int:
        """A hash of all that the coordinator knows, but for when."""
        if len(self._journal) != self._fingerprint[0]:
            known = frozenset((each.id, each.producer, each.state, each.places) for each in self.transactions())
            self._fingerprint = len(self._journal), hash(known)
        return hash((self._fingerprint[1], self._epoch, frozenset(self.markers)))

    def init_producer_id(self, id_: str, timeout_s: float) -> Producer:
        """A new epoch for a transactional.id: fences its older producers, and ends what they left open.

        Raises:
            BrokerError: CONCURRENT_TRANSACTIONS while that is being ended; a timeout that is too long.
        """
        if timeout_s > MAX_TIMEOUT_S:
            raise BrokerError(Code.INVALID_TRANSACTION_TIMEOUT, f"{timeout_s:g} s, and {MAX_TIMEOUT_S:g} s is the most")
        known = self._get(id_)
        if known is None:
            known = Transaction(id_, Producer(self._producers, -1), timeout_s)
            self._producers += 1
        if known.state is State.ONGOING:
            self._prepare(_fenced(known), commit=False)
        if known.state is State.ONGOING or known.state.prepared:
            raise BrokerError(Code.CONCURRENT_TRANSACTIONS, f"the transaction of {id_} is being ended")
        fresh = replace(_fenced(known), state=State.EMPTY, timeout_s=timeout_s, places=frozenset())
        self._write(fresh)
        return fresh.producer

    def add(self, id_: str, producer: Producer, place: Place) -> None:
        """Make a partition or a group part of the open transaction; the first one begins it."""
        known = self._of(id_, producer)
        if known.state.prepared:
            raise BrokerError(Code.CONCURRENT_TRANSACTIONS, f"the last transaction of {id_} is being ended")
        if known.state is not State.ONGOING:
            known = replace(known, places=frozenset(), began_at=self._now())
        self._write(replace(known, state=State.ONGOING, places=known.places | {place}))

    def verify(self, id_: str, producer: Producer, place: Place) -> None:
        """Whether a transaction is open that writes there (KIP-890, part 1: no hanging transactions).

        Raises:
            BrokerError: it is not.
        """
        known = self._of(id_, producer)
        if known.state is not State.ONGOING or place not in known.places:
            raise BrokerError(Code.INVALID_TXN_STATE, f"{place} is not in an open transaction of {id_}")

    def end(self, id_: str, producer: Producer, commit: bool) -> None:
        """Decide. Once this returns the transaction is committed (or aborted); the markers follow.

        Raises:
            BrokerError: the producer is fenced; it is being ended (ask again); there is nothing to end this way.
        """
        known = self._of(id_, producer)
        if known.state is State.ONGOING:
            self._prepare(known, commit)
        elif known.state is PREPARED[commit]:
            raise BrokerError(Code.CONCURRENT_TRANSACTIONS, f"{id_} is being ended")
        elif known.state is not COMPLETED[commit]:
            raise BrokerError(Code.INVALID_TXN_STATE, f"{id_} is {known.state.value}")

    def marked(self, pending: PendingMarker) -> None:
        """A marker is written; the last one completes the transaction. A deposed coordinator's note goes nowhere."""
        if pending not in self.markers:
            return
        self.markers.remove(pending)
        if not self.deposed and all(each.id != pending.id for each in self.markers):
            known = self._known[pending.id]
            self._write(replace(known, state=COMPLETED[pending.marker.commit], places=frozenset()))

    def abort_timed_out(self) -> None:
        """End transactions that have been open for longer than their timeout. Their producers are fenced."""
        for each in self.transactions():
            if each.state is State.ONGOING and self._now() - each.began_at >= each.timeout_s:
                self._prepare(_fenced(each), commit=False)

    def expire_ids(self, idle_s: float) -> None:
        """Forget ids that nothing was done with for so long (`transactional.id.expiration.ms`)."""
        for each in self.transactions():
            if each.state.idle and self._now() - each.updated_at >= idle_s:
                self._write(replace(each, state=State.DEAD))

    def _prepare(self, known: Transaction, commit: bool) -> None:
        prepared = replace(known, state=PREPARED[commit])
        self._write(prepared)
        self._announce(prepared)

    def _announce(self, prepared: Transaction) -> None:
        marker = Marker(prepared.state is State.PREPARE_COMMIT, self._epoch)
        places = sorted(prepared.places, key=str)
        self.markers += [PendingMarker(prepared.id, prepared.producer, place, marker) for place in places]

    def _write(self, after: Transaction) -> None:
        before = self._get(after.id)
        if before is not None:
            check_transition(before.state, after.state)
        self._known[after.id] = replace(after, updated_at=self._now())
        self._journal.append(self._known[after.id])

    def _get(self, id_: str) -> Transaction | None:
        known = self._known.get(id_)
        return None if known is None or known.state is State.DEAD else known

    def _of(self, id_: str, producer: Producer) -> Transaction:
        known = self._get(id_)
        if known is None or known.producer.id != producer.id:
            raise BrokerError(Code.INVALID_PRODUCER_ID_MAPPING, f"{id_} is not producer {producer.id}")
        if known.producer.epoch != producer.epoch:
            why = f"{id_} is at epoch {known.producer.epoch}, not {producer.epoch}"
            raise BrokerError(Code.PRODUCER_FENCED, why)
        return known


def _fenced(known: Transaction) -> Transaction:
    return replace(known, producer=replace(known.producer, epoch=known.producer.epoch + 1))
