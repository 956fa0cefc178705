"""Seeded settlements: the same seed gives the same bytes.

    python jobs/generate_settlements.py --bootstrap-servers localhost:9092 --events 100000

A few merchants have most of the volume, some settlements call for no refund, and about 1 % is malformed in one of
eight ways. Each event is keyed by its merchant and carries the merchant's own sequence number, counted from 0.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Event = tuple[bytes, bytes]
"""Key and value."""

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
    bootstrap_servers: str, topic: str, events: Iterable[Event], on_sent: Callable[[int], Any] = lambda _: None
) -> None:
    """Write events to a topic, keyed as the Java client would.

    Args:
        on_sent: called now and then with how many were sent since the last call.

    Raises:
        KafkaException: an event could not be written.
    """
    failed: list[Exception] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(KafkaException(error))

    settings = {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 20}
    producer = Producer(settings | {"enable.idempotence": True, "compression.type": "lz4"})
    unreported = 0
    for key, value in events:
        _produce(producer, topic, key, value, delivered)
        unreported += 1
        if unreported == 5_000:
            producer.poll(0)
            on_sent(unreported)
            unreported = 0
    producer.flush()
    on_sent(unreported)
    if failed:
        raise failed[0]


def _produce(producer: Producer, topic: str, key: bytes, value: bytes, delivered: Callable[..., None]) -> None:
    while True:
        try:
            return producer.produce(topic, value, key, on_delivery=delivered)
        except BufferError:  # the client's queue is full
            producer.poll(0.1)


def main(
    bootstrap_servers: Annotated[str, typer.Option(help="Brokers: host:port,host:port.")] = "localhost:9092",
    topic: Annotated[str, typer.Option(help="An existing topic.")] = "settlements",
    seed: Annotated[int, typer.Option(help="Decides every byte.")] = 7,
    events: Annotated[int, typer.Option(min=1, help="How many, the malformed included.")] = 100_000,
    merchants: Annotated[int, typer.Option(min=1)] = 40,
) -> None:
    """Write seeded settlements to a topic."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("settlements", total=events)
        send(bootstrap_servers, topic, generate(seed, events, merchants), lambda n: progress.advance(task, n))
    console.print(f"{events} settlements of {merchants} merchants in {topic} (seed {seed})")


if __name__ == "__main__":
    typer.run(main)
