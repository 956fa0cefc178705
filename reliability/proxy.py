"""A proxy between Kafka clients and one broker that knows requests, and does what a network does to one of them.

Why one of our own: toxiproxy sees bytes, and can't tell an EndTxn from a Fetch. Kroxylicious sees requests, and is a
JVM service with filters to be written in Java. Kafka's own fault proxy (KAFKA-21074, test fixtures of 4.4.1) is Java
too, and changes or delays answers: it neither holds back one request nor sends it twice. Of Kafka's format 12 bytes
are needed: each frame is a length (int32) and as many bytes; a request starts with api key (int16), version (int16)
and correlation id (int32), an answer with that correlation id.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType, TracebackType

from spark_eos.testing import EmbeddedKafka
from spark_eos.testing.ports import free_ports

LINGER_S = 10.0
"""How long a broker may take to answer a client that has gone."""


class Api(IntEnum):
    """The requests that faults are made for, by their api keys. WRITE_TXN_MARKERS is the brokers' own: where they
    advertise the proxy's port, they too come this way."""

    PRODUCE = 0
    METADATA = 3
    INIT_PRODUCER_ID = 22
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28


class Effect(Enum):
    """What happens to a request."""

    DROP_ANSWER = "the broker does it, the answer never comes, the connection stays"
    DELAY = "it reaches the broker late, also when its sender has gone; what was sent after it waits behind it"
    DUPLICATE = "it reaches the broker twice; the second answer is lost"
    RESET = "the broker does it, the connection is reset before the answer"
    RESET_BEFORE = "the connection is reset, the broker never sees it"


@dataclass
class Hit:
    """A fault that happened: when it began and ended, in seconds since 1970; `ended` is None until it has."""

    began: float
    ended: float | None = None

    def end(self) -> None:
        self.ended = time.time()


@dataclass
class Armed:
    """A fault to be made; what `arm` gives back.

    `left` is how many requests it still waits for, `hits` what has happened.
    """

    api: Api
    effect: Effect
    left: int
    seconds: float
    containing: bytes
    hits: list[Hit] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether all of it has happened, and ended."""
        return not self.left and all(hit.ended is not None for hit in self.hits)

    def wait(self, timeout_s: float) -> Hit:
        """Wait until it is over; the last hit.

        Raises:
            TimeoutError: a request was never made, or a fault has not ended.
        """
        deadline = time.monotonic() + timeout_s
        while not self.over:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} is not over after {timeout_s:g} s")
            time.sleep(0.02)
        return self.hits[-1]


class Proxy:
    """Passes everything on, but for the requests that a fault is armed for. Runs in a thread of its own.

    The broker must advertise `port`, or clients go past it: see `proxied_kafka`.

    Args:
        broker_port: where the broker listens, on loopback.
        port: where to listen, on loopback.
    """

    def __init__(self, broker_port: int, port: int) -> None:
        self.broker_port, self.port = broker_port, port
        self._armed: list[Armed] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        if not self._started.wait(10):
            raise OSError(f"the proxy could not listen on port {self.port}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    def arm(self, api: Api, effect: Effect, times: int = 1, seconds: float = 0.0, containing: bytes = b"") -> Armed:
        """Make a fault of the next such requests.

        Args:
            api: of which requests.
            effect: what happens to them.
            times: how many.
            seconds: how long a DELAY is.
            containing: only requests with these bytes in them, such as a transactional.id.
        """
        armed = Armed(api, effect, times, seconds, containing)
        with self._lock:
            self._armed.append(armed)
        return armed

    def disarm(self) -> None:
        """Forget what has not happened yet."""
        with self._lock:
            self._armed.clear()

    def claim(self, api: int, frame: bytes) -> tuple[Armed, Hit] | None:
        """The fault that a request meets; one of its times is used up."""
        with self._lock:
            for armed in self._armed:
                if armed.left and armed.api == api and armed.containing in frame:
                    hit = Hit(time.time())
                    armed.hits.append(hit)
                    armed.left -= 1
                    return armed, hit
        return None

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self._started.set()
        await self._ended.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                upstream = await asyncio.open_connection("127.0.0.1", self.broker_port)
            except OSError:
                return  # the broker is down, which the client sees as such
            with contextlib.closing(upstream[1]):
                await _Connection(self, (reader, writer), upstream).run()


@contextlib.contextmanager
def proxied_kafka(config: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """One broker that clients reach through a proxy, whichever address they ask first.

    Args:
        config: further settings of the broker.
    """
    broker_port, port = free_ports(2)
    advertised = {"advertised.listeners": f"BROKER://127.0.0.1:{port}"}
    with Proxy(broker_port, port) as proxy, EmbeddedKafka(config={**advertised, **config}, port=broker_port) as kafka:
        yield kafka, proxy


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """One client's connection, and the proxy's own to the broker."""

    def __init__(self, proxy: Proxy, client: Stream, broker: Stream) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_broker, self._to_broker = broker
        # By correlation id, what becomes of its answers in turn: None to pass it on, or the hit that ends with it.
        self._answers: defaultdict[int, deque[Hit | None]] = defaultdict(deque)

    async def run(self) -> None:
        answers = asyncio.ensure_future(self._pass_answers())
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._pass_requests(answers)
            # What the broker was given, it shall do, though nobody is there to hear of it.
            deadline = time.monotonic() + LINGER_S
            while any(self._answers.values()) and not answers.done() and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
        finally:
            answers.cancel()

    async def _pass_requests(self, answers: asyncio.Future[None]) -> None:
        # The broker has closed, so the client shall see it.
        answers.add_done_callback(lambda _: self._to_client.close())
        while True:
            frame = await _read(self._from_client)
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            met = self._proxy.claim(api, frame)
            if met is None:
                await self._forward(frame, correlation)
            else:
                await self._meet(*met, frame, correlation)

    async def _meet(self, armed: Armed, hit: Hit, frame: bytes, correlation: int) -> None:
        if armed.effect is Effect.DROP_ANSWER:
            await self._forward(frame, correlation, hit)
        elif armed.effect is Effect.DELAY:
            await asyncio.sleep(armed.seconds)
            await self._forward(frame, correlation)
            hit.end()
        elif armed.effect is Effect.DUPLICATE:
            await self._forward(frame, correlation)
            await self._forward(frame, correlation, hit)
        else:
            if armed.effect is Effect.RESET:
                await self._forward(frame, correlation, Hit(hit.began))
            self._reset()
            hit.end()

    async def _forward(self, frame: bytes, correlation: int, hit: Hit | None = None) -> None:
        self._answers[correlation].append(hit)
        self._to_broker.write(frame)
        await self._to_broker.drain()

    def _reset(self) -> None:
        """RST rather than FIN, as a firewall or a dead host would."""
        raw: socket.socket = self._to_client.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._to_client.transport.abort()

    async def _pass_answers(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _read(self._from_broker)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                waiting = self._answers[correlation]
                hit = waiting.popleft()
                if not waiting:
                    del self._answers[correlation]
                if hit is not None:
                    hit.end()
                elif not self._to_client.is_closing():
                    self._to_client.write(frame)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """One frame, with its length before it."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack(">i", length)[0])
