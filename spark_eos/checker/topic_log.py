"""Topics as plain Kafka clients see them: whole logs, their stable ends, the offsets committed for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from spark_eos.checker.reader import PAUSE_S, CannotCheck, Isolation, NoAnswer, Reader
from spark_eos.checker.rows import NO_TIMESTAMP, Place, Position, digest, headers_of, position, timestamp_of
from spark_eos.checker.settings import Client

T = TypeVar("T")

REQUEST_S = 5
"""How long one request may take before it is made again."""
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Entry:
    """A record as it stands in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NO_TIMESTAMP
    """In ms since 1970."""

    @property
    def position(self) -> Position:
        return self.topic, self.partition, self.offset

    @property
    def digest(self) -> int:
        """Of all that it has, as a live reader remembers it."""
        return digest(self.key, self.value, self.headers, self.timestamp)

    def header(self, name: str) -> str:
        """The last header of this name as text, empty if there is none."""
        found = [value for key, value in self.headers if key == name]
        return (found[-1] or b"").decode(errors="replace") if found else ""

    @classmethod
    def of(cls, message: Message) -> Entry:
        place = position(message)
        return cls(*place, message.key(), message.value(), headers_of(message), timestamp_of(message))


class TopicsMissing(CannotCheck):
    """A topic to be read does not exist."""


class Topics:
    """Some topics of a cluster, all their partitions.

    Args:
        bootstrap_servers: `host:port`, with commas between.
        names: the topics.
        patience_s: how long to ask, in seconds, when brokers do not answer, or answer with an error.
        client: further settings of the clients, by librdkafka's names, to log in with.

    Raises:
        CannotCheck: the client refuses its settings.
        TopicsMissing: (from every method) a topic does not exist.
        NoAnswer: (from every method) the brokers did not answer in time, or refuse the login.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        names: tuple[str, ...],
        patience_s: float = PATIENCE_S,
        client: Client | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.client = {**(client or {}), "bootstrap.servers": bootstrap_servers}
        self.names = names
        self.patience_s = patience_s
        self._told: deque[KafkaError] = deque(maxlen=1)
        self._admin = self._client()

    @cached_property
    def places(self) -> list[Place]:
        """Every partition. All topics are listed, since asking for one by name may create it."""
        known = self._patiently(lambda: self._admin.list_topics(timeout=min(REQUEST_S, self.patience_s)).topics)
        missing = [name for name in self.names if name not in known]
        if missing:
            raise TopicsMissing(f"there is no topic {', '.join(missing)} on {self.bootstrap_servers}")
        return [(name, partition) for name in self.names for partition in sorted(known[name].partitions)]

    def starts(self) -> dict[Place, int]:
        """The first offset that is still there."""
        return self._offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def ends(self) -> dict[Place, int]:
        """High watermarks: open and aborted transactions count."""
        return self._offsets(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def stable_ends(self) -> dict[Place, int]:
        """Last stable offsets: where the first open transaction begins, or the high watermark."""
        return self._offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def hanging(self, timeout_s: float) -> list[Place]:
        """Partitions with a transaction that is still open after waiting for its end."""
        deadline = time.monotonic() + timeout_s
        while True:
            ends, stable = self.ends(), self.stable_ends()
            hanging = sorted(place for place in ends if stable[place] < ends[place])
            if not hanging or time.monotonic() > deadline:
                return hanging
            time.sleep(PAUSE_S)

    def committed(self, group: str) -> dict[Place, int]:
        """The offsets that a consumer group has committed for these topics."""
        settings = {**self.client, "group.id": group, "log_level": 0}
        asked = [TopicPartition(*place) for place in self.places]
        with closing(Consumer(settings)) as client:
            found = self._patiently(lambda: client.committed(asked, timeout=REQUEST_S))
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    def messages(self, isolation: Isolation = "read_committed") -> Iterator[Message]:
        """All records up to the ends as of now, each partition's in the order of their offsets."""
        ends, starts = (self.stable_ends() if isolation == "read_committed" else self.ends()), self.starts()
        wanted = {place: end for place, end in ends.items() if starts[place] < end}
        with closing(Reader(self.client, isolation, {place: starts[place] for place in wanted})) as reader:
            yield from chain.from_iterable(reader.read_to(wanted, self.patience_s))

    def read(self, isolation: Isolation = "read_committed") -> list[Entry]:
        """All records up to the ends as of now, partition by partition in the order of their offsets."""
        return sorted(map(Entry.of, self.messages(isolation)), key=lambda entry: entry.position)

    def listed(
        self, which: OffsetSpec, isolation: IsolationLevel, places: Collection[Place] | None = None
    ) -> dict[Place, ListOffsetsResultInfo]:
        """Offsets of these partitions, or of all, with the epochs of the leaders that were asked."""
        asked = {TopicPartition(*place): which for place in (self.places if places is None else places)}

        def ask() -> dict[Place, ListOffsetsResultInfo]:
            answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_S)
            wait(answers.values())  # all of them: a client may not go before its answers have come
            return {(tp.topic, tp.partition): future.result() for tp, future in answers.items()}

        return self._patiently(ask) if asked else {}

    def _offsets(self, which: OffsetSpec, isolation: IsolationLevel) -> dict[Place, int]:
        return {place: found.offset for place, found in self.listed(which, isolation).items()}

    def _patiently(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                self._refused()
                if time.monotonic() > deadline:
                    silence = f"{self.bootstrap_servers} did not answer for {self.patience_s:g} s"
                    raise NoAnswer(f"{silence}: {error}") from error
                time.sleep(PAUSE_S)
                # A client of before a leader's restart asks it with the epoch it knew, and is refused for ever.
                self._admin = self._client()

    def _refused(self) -> None:
        """Who is not let in need not ask again. An answer to a request does not tell it; the client's errors do."""
        self._admin.poll(0)
        if self._told and self._told[-1].code() == KafkaError._AUTHENTICATION:
            raise NoAnswer(self._told[-1].str())

    def _client(self) -> AdminClient:
        settings: dict[str, Any] = {**self.client, "error_cb": self._told.append, "log_level": 0}
        try:
            return AdminClient(settings)
        except KafkaException as error:
            raise CannotCheck(f"the client refuses its settings: {error.args[0].str()}") from None
