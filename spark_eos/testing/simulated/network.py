"""Between clients and brokers: what becomes of a request, and what the brokers do meanwhile.

Every request of every client passes here. `Network` is the network of a good day. `FaultyNetwork` loses, delays and
duplicates; each time that something could go either way it asks a `choose`, so that a seed, or a search through all
choices, decides what happens, and the same choices give the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from spark_eos.testing.simulated.answers import BrokerError, Unanswered

if TYPE_CHECKING:
    from spark_eos.testing.simulated.brokers import Brokers

T = TypeVar("T")
Choose = Callable[[str, Sequence[str]], int]
"""Asked what it is about, and what could happen; answers with an index. 0 is always what happens on a good day."""

FAIL_OVER = "brokers: the coordinator fails over"
TIME_OUT = "brokers: transactions time out"


class Api(Enum):
    """Kinds of requests, by Kafka's names."""

    METADATA = "Metadata"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"
    ADD_OFFSETS = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"
    OFFSET_FETCH = "OffsetFetch"

    @property
    def changes(self) -> bool:
        """It changes something, so that it matters whether and how often it is done."""
        return self not in (Api.METADATA, Api.OFFSET_FETCH)


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request on its way.

    Args:
        api: what kind.
        client: who asks: the transactional.id or the group.
        call: what the broker does with it.
        detail: what it asks for, to be shown.
    """

    api: Api
    client: str
    call: Callable[[], T]
    detail: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.api.value, self.client, self.detail) if part)


class Network:
    """Every request is done and answered, and the brokers write their markers at once.

    Args:
        brokers: who answers.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers

    def send(self, request: Request[T]) -> T:
        """Send a request and wait for its answer.

        Raises:
            BrokerError: it was refused.
            Unanswered: no answer came.
        """
        try:
            return request.call()
        finally:
            self.brokers.write_markers()

    def pause(self, request: Request[Any]) -> None:
        """A client's back-off before it asks again: 100 ms."""
        del request
        self.brokers.advance(0.1)


class FaultyNetwork(Network):
    """A network that may do what networks do, and brokers that take their time.

    Args:
        brokers: who answers.
        choose: decides.
        faults: how many bad things may happen in all: requests and answers that are lost, delays, duplicates,
            coordinators that fail over, and clocks that jump by a transaction timeout.
    """

    def __init__(self, brokers: Brokers, choose: Choose, faults: int = 1_000_000) -> None:
        super().__init__(brokers)
        self.choose, self.faults = choose, faults
        self.late: list[Request[Any]] = []
        self.log: list[str] = []

    def send(self, request: Request[T]) -> T:
        """As `Network.send`; a request may be late, twice, or gone."""
        self.between(f"before {request}")
        try:
            return self._delivered(request)
        finally:
            self.between(f"after {request}")

    def pause(self, request: Request[Any]) -> None:
        """Before a client asks again: the brokers have time to do one thing."""
        self.between(f"waiting {request}")
        self.brokers.advance(0.1)

    def between(self, moment: str) -> None:
        """Something else may happen here. By itself the network lets the brokers do none, one or several things."""
        while happens := self.choose(moment, ["nothing", *(name for name, _ in self.events())]):
            self.happen(happens - 1)

    def events(self) -> list[tuple[str, Callable[[], None]]]:
        """What the brokers and the network could do now: write a marker, deliver what is late, fail over, time out."""
        found: list[tuple[str, Callable[[], None]]] = []
        brokers = self.brokers
        for pending in brokers.markers():
            found.append((f"brokers: {pending}", lambda pending=pending: brokers.write_marker(pending)))  # type: ignore[misc]
        for request in self.late:
            found.append((f"network: late {request}", lambda request=request: self.deliver_late(request)))  # type: ignore[misc]
        if self.faults and brokers.any_open():
            found.append((FAIL_OVER, self._counted(brokers.fail_over)))
            found.append((TIME_OUT, self._counted(brokers.time_out)))
        return found

    def happen(self, index: int) -> None:
        """Let one of `events` happen."""
        name, event = self.events()[index]
        self.note(name)
        event()

    def note(self, happened: str) -> None:
        """A line of the log of what happened."""
        self.log.append(happened)

    def fates(self, request: Request[Any]) -> list[str]:
        """What may become of a request; first what does on a good day."""
        return list(FATES) if self.faults > 0 and request.api.changes else ["delivered"]

    def _delivered(self, request: Request[T]) -> T:
        fates = self.fates(request)
        fate = fates[self.choose(f"{request}", fates)]
        self.note(f"{request}: {fate}")
        self.faults -= fate != "delivered"
        return cast(T, FATES[fate](self, request))

    def _deliver(self, request: Request[T]) -> T:
        return request.call()

    def _lose(self, request: Request[T]) -> T:
        raise Unanswered(str(request))

    def _lose_answer(self, request: Request[T]) -> T:
        _done_by_brokers(request)
        raise Unanswered(str(request))

    def _delay(self, request: Request[T]) -> T:
        self.late.append(request)
        raise Unanswered(str(request))

    def _duplicate(self, request: Request[T]) -> T:
        self.late.append(request)
        return request.call()

    def deliver_late(self, request: Request[Any]) -> None:
        """A request arrives that nobody waits for any more."""
        self.late.remove(request)
        _done_by_brokers(request)

    def _counted(self, event: Callable[[], None]) -> Callable[[], None]:
        def happen() -> None:
            self.faults -= 1
            event()

        return happen


FATES: dict[str, Callable[[FaultyNetwork, Request[Any]], Any]] = {
    "delivered": FaultyNetwork._deliver,
    "lost": FaultyNetwork._lose,
    "answer lost": FaultyNetwork._lose_answer,
    "delayed": FaultyNetwork._delay,
    "duplicated": FaultyNetwork._duplicate,
}


def _done_by_brokers(request: Request[Any]) -> None:
    """Nobody hears the answer, good or bad."""
    try:
        request.call()
    except BrokerError:
        return
