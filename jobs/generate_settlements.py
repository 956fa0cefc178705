"""Seeded settlements: the same seed gives the same bytes.

    python jobs/generate_settlements.py --bootstrap-servers localhost:9092 --events 100000

A few merchants have most of the volume, some settlements call for no refund, and about 1 % is malformed in one of
eight ways. Each event is keyed by its merchant and carries the merchant's own sequence number, counted from 0.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import takewhile
from threading import Event as Flag
from typing import Any

from confluent_kafka import KafkaException, Producer
from job_options import job_app
from job_settings import JobSettings, Name
from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Event = tuple[bytes, bytes]
"""Key and value."""

PRODUCER = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
}
MALFORMED_SHARE = 0.01
FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)

# Reason, how often, and the share of the amount that goes back: from, to.
REASONS: tuple[tuple[str, float, float, float], ...] = (
    ("settled in full", 0.40, 0.0, 0.0),
    ("dispute rejected", 0.05, 0.0, 0.0),
    ("order cancelled", 0.20, 1.0, 1.0),
    ("item returned", 0.20, 0.1, 0.9),
    ("charged twice", 0.05, 0.5, 0.5),
    ("delivered late – कूपन", 0.10, 0.05, 0.2),  # not ASCII, on purpose
)

Spoiler = Callable[[dict[str, Any], random.Random], bytes]


def _encode(settlement: dict[str, Any]) -> bytes:
    return json.dumps(settlement, ensure_ascii=False, separators=(",", ":")).encode()


def _cut_off(settlement: dict[str, Any], rng: random.Random) -> bytes:
    whole = _encode(settlement)
    return whole[: rng.randrange(1, len(whole))]


def _without_a_field(settlement: dict[str, Any], rng: random.Random) -> bytes:
    del settlement[rng.choice(sorted(settlement))]
    return _encode(settlement)


def _trailing_junk(settlement: dict[str, Any], _: random.Random) -> bytes:
    return _encode(settlement) + b"{}"


# Each makes an event that no reading of the rules can call good.
SPOILERS: tuple[Spoiler, ...] = (
    _cut_off,
    _without_a_field,
    _trailing_junk,
    lambda settlement, _: _encode(settlement | {"amount_paise": str(settlement["amount_paise"])}),
    lambda settlement, _: _encode(settlement | {"amount_paise": -settlement["amount_paise"]}),
    lambda settlement, _: _encode(settlement | {"refund_paise": settlement["amount_paise"] + 1}),
    lambda settlement, _: _encode(settlement)[:-1] + b',"note":"\xff\xfe"}',
    lambda _settlement, _rng: b"",
)


def generate(seed: int = 7, events: int = 100_000, merchants: int = 40) -> Iterator[Event]:
    """Events in the order they happened.

    Args:
        seed: decides every byte.
        events: how many, the malformed included.
        merchants: how many merchants share them; the n-th has about 1/n of the first one's volume.
    """
    rng = random.Random(seed)
    names = [f"MER-{1001 + i}" for i in range(merchants)]
    volumes = [1 / (1 + i) for i in range(merchants)]
    weights = [share for _, share, _, _ in REASONS]
    sequences = dict.fromkeys(names, 0)
    moment = FIRST_MOMENT
    chosen_names = rng.choices(names, volumes, k=events)
    chosen_reasons = rng.choices(REASONS, weights, k=events)
    for number, (merchant, (reason, _, least, most)) in enumerate(zip(chosen_names, chosen_reasons, strict=True)):
        moment += timedelta(milliseconds=int(rng.expovariate(1 / 400)))
        amount = 100 + int(rng.paretovariate(1.2) * 9_900)
        settlement = {
            "settlement_id": f"STL-{seed}-{number:09d}",
            "merchant": merchant,
            "sequence": sequences[merchant],
            "amount_paise": amount,
            "refund_paise": int(amount * rng.uniform(least, most)),
            "reason": reason,
            "at": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
        }
        sequences[merchant] += 1
        spoiled = rng.random() < MALFORMED_SHARE
        yield merchant.encode(), rng.choice(SPOILERS)(settlement, rng) if spoiled else _encode(settlement)


def send(
    client: Mapping[str, str], topic: str, events: Iterable[Event], on_sent: Callable[[int], Any] = lambda _: None
) -> int:
    """Write events to a topic, keyed as the Java client would.

    Args:
        client: settings of the Kafka client, `bootstrap.servers` among them.
        on_sent: called now and then with how many were sent since the last call.

    Returns:
        How many.

    Raises:
        KafkaException: an event could not be written.
    """
    failed: list[Exception] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(KafkaException(error))

    producer = Producer(dict(client) | PRODUCER)
    sent = reported = 0
    for sent, (key, value) in enumerate(events, 1):
        _produce(producer, topic, key, value, delivered)
        if sent - reported == 5_000:
            producer.poll(0)
            on_sent(sent - reported)
            reported = sent
    producer.flush()
    on_sent(sent - reported)
    if failed:
        raise failed[0]
    return sent


def _produce(producer: Producer, topic: str, key: bytes, value: bytes, delivered: Callable[..., None]) -> None:
    while True:
        try:
            return producer.produce(topic, value, key, on_delivery=delivered)
        except BufferError:  # the client's queue is full
            producer.poll(0.1)


class GeneratorSettings(JobSettings):
    """`conf/generate_settlements.toml` explains each key."""

    file = "generate_settlements"

    topic: Name = Field("settlements", description="An existing topic.")
    seed: int = Field(7, strict=True, description="Decides every byte.")
    events: int = Field(100_000, gt=0, strict=True, description="How many, the malformed included.")
    merchants: int = Field(40, gt=0, strict=True, description="How many merchants share them.")


def run(settings: GeneratorSettings) -> None:
    """Write the settlements until SIGTERM asks to stop, and say how many."""
    asked_to_stop = Flag()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    console = Console()
    events = generate(settings.seed, settings.events, settings.merchants)
    wanted = takewhile(lambda _: not asked_to_stop.is_set(), events)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("settlements", total=settings.events)
        sent = send(settings.client, settings.topic, wanted, lambda n: progress.advance(task, n))
    console.print(f"{sent} settlements of {settings.merchants} merchants in {settings.topic} (seed {settings.seed})")


app = job_app(GeneratorSettings, "Write seeded settlements to a topic.", lambda settings: partial(run, settings))

if __name__ == "__main__":
    app()
