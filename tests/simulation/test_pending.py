"""The older proposal's reader delivers what Kafka's read_committed readers get, each record once, over crashes."""

from __future__ import annotations

import random

import pytest

from spark_eos.testing import SimulatedKafka
from spark_eos.testing.simulated.partition import Marker, PartitionLog, Payload, Producer
from spark_eos.testing.simulated.pending import PendingReader, ReaderState

PLACES = [("out", 0), ("out", 1)]
STEPS = 120


def scribble(kafka: SimulatedKafka, dice: random.Random) -> None:
    """Producers that write, commit and abort in turns, to two partitions; some stay open."""
    brokers = kafka.brokers
    open_: dict[str, Producer] = {}
    sequences: dict[tuple[Producer, int], int] = {}
    for step in range(STEPS):
        id_, partition = f"t{dice.randrange(4)}", dice.randrange(2)
        what = dice.choice(["write", "write", "write", "plain", "commit", "abort"])
        if what == "plain":
            kafka.produce("out", [f"plain {step}"], partition=partition)
        elif what == "write":
            producer = open_.get(id_) or brokers.coordinator.init_producer_id(id_, 60)
            open_[id_] = producer
            brokers.coordinator.add(id_, producer, ("out", partition))
            first = sequences.get((producer, partition), 0)
            values = [f"{id_} {step} {n}" for n in range(dice.randrange(1, 4))]
            payloads = [Payload(None, value.encode()) for value in values]
            sequences[producer, partition] = first + len(values)
            brokers.log("out", partition).append(producer, first, payloads, lambda: None)
        elif id_ in open_:
            brokers.coordinator.end(id_, open_.pop(id_), commit=what == "commit")
            brokers.write_markers()


def logs_of(seed: int) -> tuple[dict[tuple[str, int], PartitionLog], random.Random]:
    kafka, dice = SimulatedKafka(), random.Random(seed)
    kafka.create_topic("out", 2)
    scribble(kafka, dice)
    return {place: kafka.brokers.log(*place) for place in PLACES}, dice


def committed_offsets(log: PartitionLog) -> set[int]:
    """What a reader without a last stable offset may deliver: committed records, also behind an open transaction."""
    outcome: dict[int, bool] = {}
    found = set()
    for entry in reversed(log.entries):
        if isinstance(entry.content, Marker):
            outcome[entry.producer.id] = entry.content.commit
        elif entry.producer.id < 0 or outcome.get(entry.producer.id):
            found.add(entry.offset)
    return found


@pytest.mark.parametrize("seed", range(50))
def test_each_committed_record_is_delivered_once_whenever_the_reader_dies(seed):
    logs, dice = logs_of(seed)
    reader, kept = PendingReader(logs), {}
    delivered: dict[tuple[str, int], list[int]] = {place: [] for place in PLACES}
    crashes = 0
    while places := [p for p in PLACES if kept.get(p, ReaderState()).position < logs[p].high_watermark]:
        if dice.random() < 0.1:
            reader, crashes = PendingReader(logs, kept), crashes + 1
        place = dice.choice(places)
        entries = reader.read(place)
        if dice.random() < 0.1:
            reader, crashes = PendingReader(logs, kept), crashes + 1  # before what it gave was kept
            continue
        delivered[place] += [entry.offset for entry in entries]
        kept = reader.states
    assert crashes > 10
    for place, log in logs.items():
        assert len(delivered[place]) == len(set(delivered[place]))
        assert set(delivered[place]) == committed_offsets(log)
        stable = [offset for offset in sorted(delivered[place]) if offset < log.last_stable_offset]
        assert stable == [entry.offset for entry in log.records()]
        assert kept[place] == ReaderState(log.last_stable_offset, log.high_watermark)


def test_what_is_open_is_held_back_and_delivered_at_its_marker():
    kafka = SimulatedKafka()
    kafka.create_topic("out")
    reader = PendingReader({("out", 0): kafka.brokers.log("out", 0)})
    coordinator, log = kafka.brokers.coordinator, kafka.brokers.log("out", 0)
    first, second = coordinator.init_producer_id("t1", 60), coordinator.init_producer_id("t2", 60)
    for id_, producer, values in (("t1", first, "01"), ("t2", second, "23")):
        coordinator.add(id_, producer, ("out", 0))
        log.append(producer, 0, [Payload(None, value.encode()) for value in values], lambda: None)
    assert list(reader.read_all()) == []
    assert reader.states == {("out", 0): ReaderState(0, 4)}
    coordinator.end("t2", second, commit=True)
    kafka.settle()
    assert [entry.content.value for _, entry in reader.read_all()] == [b"2", b"3"]
    assert list(log.records()) == []  # Kafka's own reader waits for the first, which is still open
    assert reader.states == {("out", 0): ReaderState(0, 5)}
    coordinator.end("t1", first, commit=True)
    kafka.settle()
    assert [entry.content.value for _, entry in reader.read_all()] == [b"0", b"1"]
    assert [entry.offset for entry in log.records()] == [0, 1, 2, 3]
    assert reader.states == {("out", 0): ReaderState(6, 6)}
