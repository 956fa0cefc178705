"""Topics as plain Kafka clients see them: whole logs, their stable ends, and a reader that watches all along."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

Place = tuple[str, int]
"""Topic and partition."""
Position = tuple[str, int, int]
"""Topic, partition and offset."""

REQUEST_S = 30


@dataclass(frozen=True)
class Entry:
    """A record as it stands in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def position(self) -> Position:
        return self.topic, self.partition, self.offset

    def header(self, name: str) -> str:
        """The last header of this name as text, empty if there is none."""
        found = [value for key, value in self.headers if key == name]
        return (found[-1] or b"").decode(errors="replace") if found else ""


class TopicsMissing(LookupError):
    """A topic to be read does not exist."""


class Topics:
    """Some topics of a cluster, all their partitions."""

    def __init__(self, bootstrap_servers: str, names: tuple[str, ...]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.names = names
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    @cached_property
    def places(self) -> list[Place]:
        """Every partition. All topics are listed, since asking for one by name may create it."""
        known = self._admin.list_topics(timeout=REQUEST_S).topics
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
            time.sleep(0.2)

    def committed(self, group: str) -> dict[Place, int]:
        """The offsets that a consumer group has committed for these topics."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(*place) for place in self.places], timeout=REQUEST_S)
            return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}
        finally:
            consumer.close()

    def read(self, isolation: str = "read_committed") -> list[Entry]:
        """All records up to the ends as of now, partition by partition in the order of their offsets."""
        ends, starts = (self.stable_ends() if isolation == "read_committed" else self.ends()), self.starts()
        wanted = {place: end for place, end in ends.items() if starts[place] < end}
        consumer = _consumer(self.bootstrap_servers, isolation)
        try:
            consumer.assign([TopicPartition(*place, starts[place]) for place in wanted])
            return sorted(_read_to(consumer, wanted), key=lambda entry: entry.position)
        finally:
            consumer.close()

    def _offsets(self, which: OffsetSpec, isolation: IsolationLevel) -> dict[Place, int]:
        asked = {TopicPartition(*place): which for place in self.places}
        answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_S)
        return {(tp.topic, tp.partition): future.result(REQUEST_S).offset for tp, future in answers.items()}


class LiveReader:
    """A read_committed reader that runs all the while, as a downstream service does, and remembers what it saw.

    Only a digest of each value is kept. Use it as a context manager, and ask for `finish()` at the end.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._seen: dict[Position, bytes] = {}
        self._next: dict[Place, int] = {}
        self._finishing, self._stopping = threading.Event(), threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="live-reader", daemon=True)

    def __enter__(self) -> LiveReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self) -> dict[Position, bytes]:
        """Read on to the ends; all it saw since it started, as digests by position.

        Transactions that were committed a moment ago are waited for: their markers may still be on the way.
        """
        self._finishing.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._seen

    def _run(self) -> None:
        try:
            consumer = _consumer(self._topics.bootstrap_servers, "read_committed")
            try:
                starts = self._topics.starts()
                consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
                while not (self._finishing.is_set() or self._stopping.is_set()):
                    self._note(consumer, 0.2)
                if self._finishing.is_set():
                    self._read_on(consumer)
            finally:
                consumer.close()
        except BaseException as error:  # raised again by finish(), in the thread that asks
            self._failed = error

    def _note(self, consumer: Consumer, timeout_s: float) -> None:
        for entry in _entries(consumer, self._next, timeout_s):
            self._seen[entry.position] = digest(entry.value)

    def _read_on(self, consumer: Consumer) -> None:
        self._topics.hanging(REQUEST_S)
        ends, deadline = self._topics.stable_ends(), time.monotonic() + REQUEST_S
        while any(self._next.get(place, 0) < end for place, end in ends.items()) and not self._stopping.is_set():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the live reader did not reach {ends} in {REQUEST_S} s: {self._next}")
            self._note(consumer, 0.1)


def digest(value: bytes | None) -> bytes:
    """A short fingerprint of a value; null and empty differ."""
    return b"" if value is None else hashlib.blake2b(value, digest_size=8).digest()


def _consumer(bootstrap_servers: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"check-{uuid.uuid4()}",  # asked for by the client; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
        }
    )


def _read_to(consumer: Consumer, ends: Mapping[Place, int]) -> Iterator[Entry]:
    """Entries below the ends. Reading on past control records takes the partition's own end to know."""
    reached: dict[Place, int] = {}
    quiet_since = time.monotonic()
    while any(reached.get(place, 0) < end for place, end in ends.items()):
        before = dict(reached)
        yield from (e for e in _entries(consumer, reached, 0.1) if e.offset < ends[e.topic, e.partition])
        if reached != before:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > REQUEST_S:
            raise TimeoutError(f"nothing came for {REQUEST_S} s; wanted {dict(ends)}, reached {reached}")


def _entries(consumer: Consumer, reached: dict[Place, int], timeout_s: float) -> Iterable[Entry]:
    """What one poll brings, noting in `reached` the next offset of each partition."""
    for message in consumer.consume(5_000, timeout_s):
        error, place = message.error(), (message.topic(), message.partition())
        if error is None:
            reached[place] = message.offset() + 1
            headers = tuple(message.headers() or ())
            yield Entry(*place, message.offset(), message.key(), message.value(), headers)
        elif error.code() == KafkaError._PARTITION_EOF:
            reached[place] = message.offset()
        else:
            raise KafkaException(error)
