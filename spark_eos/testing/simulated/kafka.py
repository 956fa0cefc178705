"""SimulatedKafka: Kafka's transactions in memory, for tests without a broker."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_eos.errors import TopicMissing
from spark_eos.kafka.topics import CREATE_IT
from spark_eos.protocol.positions import OURS, Offsets
from spark_eos.testing.simulated.brokers import ID_EXPIRATION_S, Brokers
from spark_eos.testing.simulated.client import TRIES, Client
from spark_eos.testing.simulated.coordinator import Transaction
from spark_eos.testing.simulated.ledger import SimulatedLedger
from spark_eos.testing.simulated.network import FaultyNetwork, Network
from spark_eos.testing.simulated.partition import Entry, Marker, PartitionLog, Payload
from spark_eos.testing.simulated.partitioner import murmur2_partition

LEDGER_TOPIC = "spark-eos-ledger"
BAD_DAY = 0.15
"""How often a `SimulatedKafka` with a seed lets something go wrong, where something could."""


@dataclass(frozen=True)
class SimulatedRecord:
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0


class SimulatedKafka:
    """Brokers in memory: topics, groups and a transaction coordinator that behave as Kafka's do, and one process.

    Nothing happens by itself: time passes with `advance`, a coordinator fails over with `fail_over`. The same calls
    give the same logs.

    Args:
        seed: None for a network that never fails. With a number, requests and answers are lost, delayed and doubled,
            markers come late, coordinators fail over and transactions time out, now and then: the same seed, the same
            mishaps.
        network: another network, instead of the one that `seed` gives.
        expiration_s: after how many seconds an idle transactional.id, or a committed offset, is forgotten.
        tries: how often a client asks again.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        network: Network | None = None,
        expiration_s: float = ID_EXPIRATION_S,
        tries: int = TRIES,
    ) -> None:
        self.brokers = network.brokers if network else Brokers(expiration_s)
        self.network = network or _network(self.brokers, seed)
        self._tries = tries

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic, or give it more partitions."""
        self.brokers.ensure_topic(name, partitions)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Records outside of any transaction, such as a test's input.

        Raises:
            TopicMissing: there is no such topic.
        """
        logs = self._logs(topic)
        where = murmur2_partition(_encoded(key), len(logs)) if partition is None else partition
        now = self.brokers.timestamp
        logs[where].append_plain([Payload(_encoded(key), _encoded(value), (), now) for value in values])

    def client(self, group: str, timeout_s: float = 60.0, ledger_topic: str = LEDGER_TOPIC) -> Client:
        """What makes a query's transactional producers: `client(group).open(transactional_id)`.

        Args:
            group: whose offsets they commit.
            timeout_s: `transaction.timeout.ms`, in seconds.
            ledger_topic: where the query's ledger is.
        """
        return Client(self.network, group, ledger_topic, timeout_s, self._tries)

    def ledger(self, group: str, topic: str = LEDGER_TOPIC) -> SimulatedLedger:
        """The ledger of the query that commits to a group."""
        return SimulatedLedger(self.network, topic, group, self._tries)

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        return self.brokers.partitions(topic)

    # --- what stands there -------------------------------------------------------------------------------------

    def records(self, topic: str, isolation: str = "read_committed") -> list[SimulatedRecord]:
        """What a consumer gets that reads a topic from its beginning, partition by partition.

        Raises:
            TopicMissing: there is no such topic.
        """
        logs = enumerate(self._logs(topic))
        return [_record(topic, number, entry) for number, log in logs for entry in log.records(isolation)]

    def last_stable_offset(self, topic: str, partition: int = 0) -> int:
        """Where read_committed readers stop."""
        return self._logs(topic)[partition].last_stable_offset

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        """Where read_uncommitted readers stop."""
        return self._logs(topic)[partition].high_watermark

    def committed(self, group: str) -> Offsets:
        """A group's committed offsets, ledger rows left out."""
        found = self.brokers.group(group).all()
        return {place: each.offset for place, each in sorted(found.items()) if each.metadata in ("", OURS)}

    def transactions(self) -> list[Transaction]:
        """Every transactional.id that the coordinator knows, with its state."""
        return self.brokers.coordinator.transactions()

    def dump(self, topic: str, partition: int = 0) -> str:
        """The log, one line for each offset, in the manner of Kafka's DumpLogSegments."""
        return "\n".join(map(_dumped, self._logs(topic)[partition].entries))

    def journal(self) -> str:
        """The coordinator's journal, one line for each entry."""
        return "\n".join(map(str, self.brokers.journal))

    def now(self) -> float:
        """Seconds by the brokers' clock: since they began."""
        return self.brokers.now

    # --- what happens ------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.brokers.advance(seconds)
        self.settle()

    def fail_over(self) -> None:
        """The coordinator's broker dies, and another one takes over."""
        self.brokers.fail_over()

    def delete_group(self, group: str) -> None:
        """Delete a group: its committed offsets are gone, ledger rows among them."""
        self.brokers.delete_group(group)

    def settle(self) -> None:
        """Let the brokers finish what they have decided."""
        self.brokers.write_markers()

    def _logs(self, topic: str) -> Sequence[PartitionLog]:
        count = self.brokers.partitions(topic)
        if count is None:
            raise TopicMissing(f"topic {topic} does not exist", do=CREATE_IT)
        return [self.brokers.log(topic, number) for number in range(count)]


def _network(brokers: Brokers, seed: int | None) -> Network:
    if seed is None:
        return Network(brokers)
    dice = random.Random(seed)

    def choose(moment: str, options: Sequence[str]) -> int:
        del moment
        return dice.randrange(len(options)) if dice.random() < BAD_DAY else 0

    return FaultyNetwork(brokers, choose)


def _record(topic: str, partition: int, entry: Entry) -> SimulatedRecord:
    if isinstance(entry.content, Marker):
        raise AssertionError("markers are not read")
    payload = entry.content
    return SimulatedRecord(
        topic, partition, entry.offset, payload.key, payload.value, payload.headers, payload.timestamp
    )


def _dumped(entry: Entry) -> str:
    told = f"offset: {entry.offset} producerId: {entry.producer.id} producerEpoch: {entry.producer.epoch}"
    if isinstance(entry.content, Marker):
        coordinator = entry.content.coordinator_epoch
        return f"{told} isControl: true endTxnMarker: {entry.content.name} coordinatorEpoch: {coordinator}"
    return f"{told} sequence: {entry.sequence} key: {_shown(entry.content.key)} payload: {_shown(entry.content.value)}"


def _shown(value: bytes | None) -> str:
    return "null" if value is None else value.decode(errors="replace")


def _encoded(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
