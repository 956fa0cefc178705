"""The protocol's transaction on simulated brokers: what `spark_eos.kafka.producer` is on real ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar, cast

from spark_eos.errors import (
    BrokerUnreachable,
    Fenced,
    SparkEosError,
    TopicMissing,
    TransactionAborted,
    TransactionTimeoutTooLong,
    Unconfirmed,
)
from spark_eos.kafka.deadletters import DeadLetters
from spark_eos.kafka.topics import CREATE_IT, KnownTopics, Record, WritableRows
from spark_eos.protocol.ledger import Row
from spark_eos.protocol.ports import Rows
from spark_eos.protocol.positions import OURS, Offsets, TopicPartition
from spark_eos.testing.simulated.answers import BrokerError, Code, Unanswered
from spark_eos.testing.simulated.coordinator import Place
from spark_eos.testing.simulated.group import Committed
from spark_eos.testing.simulated.network import Api, Network, Request
from spark_eos.testing.simulated.partition import Payload, Producer
from spark_eos.testing.simulated.partitioner import murmur2_partition

log = logging.getLogger("spark_eos.testing")
T = TypeVar("T")

TRIES = 300
"""How often a request is made: 100 ms apart, as long as the real client's calls take at most (30 s)."""

ASK_THE_LEDGER = "The next attempt asks the ledger how it ended."
NEXT_ATTEMPT = "Nothing of it is visible; the next attempt writes it again."


@dataclass(frozen=True)
class Client:
    """What the clients of one query have in common.

    Args:
        network: how they reach the brokers.
        group: whose offsets they commit.
        ledger_topic: where ledger rows are committed to.
        timeout_s: `transaction.timeout.ms`, in seconds.
        tries: how often a request is made that is not answered.
    """

    network: Network
    group: str
    ledger_topic: str
    timeout_s: float = 60.0
    tries: int = TRIES

    @contextmanager
    def open(
        self, id_: str, topics: Mapping[str, int] = MappingProxyType({}), letters: DeadLetters | None = None
    ) -> Iterator[SimulatedTransaction]:
        """A fresh producer. Leaving the context drops it: what is open stays open.

        Args:
            id_: its transactional.id.
            topics: topics already looked up, with their number of partitions.
            letters: where rows go that can't be written; without it they are errors.
        """
        yield SimulatedTransaction(self, id_, topics, letters)


class SimulatedTransaction:
    """A fresh producer of one transactional.id. Implements `spark_eos.protocol.ports.Transaction`; see `Client`."""

    def __init__(self, client: Client, id_: str, topics: Mapping[str, int], letters: DeadLetters | None) -> None:
        self._client, self._network, self._id, self._letters = client, client.network, id_, letters
        self._topics = KnownTopics(topics, client.network.brokers.partitions)
        self._producer: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[Place] = set()
        self._open = False
        self.queue_waits = 0
        self.disconnected = False

    def fence(self) -> None:
        """`init_transactions`."""
        brokers = self._network.brokers
        ask = partial(self._asked, Api.INIT_PRODUCER_ID)
        self._producer = ask(lambda: brokers.coordinator.init_producer_id(self._id, self._client.timeout_s))
        self._sequences.clear()

    def begin(self) -> None:
        """Known to the client only: brokers hear of it with the first record, or the first offset."""
        self._open = True
        self._added.clear()

    def write(self, rows: Rows) -> int:
        """Send the rows; returns how many went to the dead letters."""
        dead = 0
        batches: dict[TopicPartition, list[Payload]] = {}
        for record in cast(WritableRows, rows).records():
            error = self._topics.refusal(record)
            if error is not None:
                record = self._letter(record, error)  # noqa: PLW2901
                dead += 1
            headers = tuple((name, _bytes(value)) for name, value in record.headers or ())
            when = record.timestamp or self._network.brokers.timestamp
            payload = Payload(_bytes(record.key), _bytes(record.value), headers, when)
            batches.setdefault(self._place(record), []).append(payload)
        for place, payloads in batches.items():
            self._produce(place, payloads)
        return dead

    def flush(self) -> None:
        """Nothing is left to be sent."""

    def commit_offsets(self, rows: Iterable[Row], offsets: Offsets) -> None:
        """Ledger rows and source offsets into the transaction."""
        found = {(self._client.ledger_topic, row.partition): Committed(row.next_batch, row.metadata()) for row in rows}
        found |= {place: Committed(offset, OURS) for place, offset in self._here(offsets)}
        self._add(Api.ADD_OFFSETS, self._client.group)
        group, producer = self._network.brokers.group(self._client.group), self._fenced
        verify = partial(self._verify, producer, self._client.group)
        shown = ", ".join(f"{topic}-{partition}={each.offset}" for (topic, partition), each in sorted(found.items()))

        def commit() -> None:
            for place in found:
                self._network.brokers.log(*place)
            group.commit_in_transaction(producer, found, verify)

        self._asked(Api.TXN_OFFSET_COMMIT, commit, shown)

    def _here(self, offsets: Offsets) -> list[tuple[TopicPartition, int]]:
        ledger = self._client.ledger_topic
        return [(place, at) for place, at in offsets.items() if place[0] != ledger and self._topics.has(*place)]

    def commit(self) -> None:
        """Commit; `Unconfirmed` if no answer came."""
        self._open = False
        if not self._added:
            return  # the brokers know of no transaction
        producer = self._fenced
        ask = partial(self._ask, Api.END_TXN, detail="commit")
        try:
            ask(lambda: self._network.brokers.coordinator.end(self._id, producer, commit=True))
        except Unanswered as error:
            raise Unconfirmed("no answer to the commit came", do="The next attempt asks the ledger.") from error
        except BrokerError as error:
            if error.code.fenced:
                raise _fenced_by(error) from error
            raise Unconfirmed(
                f"the commit was answered with {error}", do="The next attempt asks the ledger."
            ) from error

    def abort(self) -> None:
        """Abort as well as may be."""
        if not self._open:
            return
        self._open = False
        if not self._added:
            return
        producer = self._fenced
        try:
            end = partial(self._network.brokers.coordinator.end, self._id, producer, commit=False)
            self._ask(Api.END_TXN, end, "abort")
        except (BrokerError, Unanswered) as error:
            log.warning("the transaction could not be aborted, the next attempt's fence will do it: %s", error)

    # --- requests ----------------------------------------------------------------------------------------------

    @property
    def _fenced(self) -> Producer:
        if self._producer is None:
            raise AssertionError("a producer is fenced before it begins")
        return self._producer

    def _produce(self, place: TopicPartition, payloads: list[Payload]) -> None:
        self._add(Api.ADD_PARTITIONS, place)
        log_, producer, first = self._network.brokers.log(*place), self._fenced, self._sequences.get(place, 0)
        verify = partial(self._verify, producer, place)
        self._sequences[place] = first + len(payloads)
        shown = f"{place[0]}-{place[1]} from sequence {first}"
        self._asked(Api.PRODUCE, lambda: log_.append(producer, first, payloads, verify), shown)

    def _add(self, api: Api, place: Place) -> None:
        if place in self._added:
            return
        self._added.add(place)
        producer = self._fenced
        shown = place if isinstance(place, str) else f"{place[0]}-{place[1]}"
        self._asked(api, lambda: self._network.brokers.coordinator.add(self._id, producer, place), shown)

    def _verify(self, producer: Producer, place: Place) -> None:
        self._network.brokers.coordinator.verify(self._id, producer, place)

    def _asked(self, api: Api, call: Callable[[], T], detail: str = "") -> T:
        """A request of which nothing is visible if it fails."""
        try:
            return self._ask(api, call, detail)
        except Unanswered as error:
            raise BrokerUnreachable(f"no broker answered: {error}", do=NEXT_ATTEMPT) from error
        except BrokerError as error:
            if error.code.fenced:
                raise _fenced_by(error) from error
            if error.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicMissing(str(error), do=CREATE_IT) from error
            if error.code is Code.INVALID_TRANSACTION_TIMEOUT:
                raise TransactionTimeoutTooLong(str(error), do="Set kafka.transaction.timeout.ms to less.") from error
            raise TransactionAborted(f"a broker answered {error}", do=NEXT_ATTEMPT) from error

    def _ask(self, api: Api, call: Callable[[], T], detail: str = "") -> T:
        return asked(self._network, Request(api, self._id, call, detail), self._client.tries)

    # --- records -----------------------------------------------------------------------------------------------

    def _place(self, record: Record) -> TopicPartition:
        topic = cast(str, record.topic)
        if record.partition is not None:
            return topic, record.partition
        return topic, murmur2_partition(_bytes(record.key), self._network.brokers.partitions(topic) or 1)

    def _letter(self, record: Record, error: SparkEosError) -> Record:
        if self._letters is None:
            raise error
        return next(self._letters.letters(record, error))


def asked(network: Network, request: Request[T], tries: int) -> T:
    """An answer, asking again as a client does: where the broker says so, or says nothing.

    Raises:
        BrokerError: the broker refuses, for good or to the end.
        Unanswered: nothing came to the end.
    """
    unanswered = 0
    for _ in range(TRIES):
        try:
            return network.send(request)
        except BrokerError as error:
            if not error.code.retriable:
                raise
            last: Exception = error
        except Unanswered as error:
            unanswered += 1
            if unanswered == tries:
                raise
            last = error
        network.pause(request)
    raise last


def _fenced_by(error: BrokerError) -> Fenced:
    if error.code is Code.INVALID_PRODUCER_ID_MAPPING:
        return Fenced(
            f"{error}. The brokers have forgotten this transactional.id (transactional.id.expiration.ms)",
            do="Restart the query, unless another run of it is alive.",
        )
    return Fenced(
        f"a newer producer of this transactional.id exists, or its transaction timed out ({error})",
        do="Nothing, if the query was started twice or its task was tried again: the newer one goes on.",
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
