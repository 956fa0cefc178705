"""The two kinds of brokers that tests/contract runs on: real ones, and simulated ones behind the same calls."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka_log import until
from tests_support import Query, QueryCalls, committed_messages

from spark_eos.protocol.parallel import one_by_one
from spark_eos.protocol.ports import LanePorts
from spark_eos.protocol.positions import Offsets
from spark_eos.testing import EmbeddedKafka, SimulatedKafka, wait_for_markers
from spark_eos.testing.broker import run_tool
from spark_eos.testing.simulated.brokers import Brokers
from spark_eos.testing.simulated.group import Committed
from spark_eos.testing.simulated.kafka import SimulatedRecord
from spark_eos.testing.simulated.network import Network, Request

T = TypeVar("T")


class RealCluster:
    """A broker, from outside."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka, self._bootstrap = kafka, kafka.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})

    def topic(self, partitions: int = 1, name: str = "topic") -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        self.create_topic(unique, partitions)
        return unique

    def create_topic(self, name: str, partitions: int) -> None:
        self._kafka.create_topic(name, partitions=partitions)

    def query(self, query: str, topic: str) -> Query:
        return Query(self._bootstrap, query, topic)

    def partitions(self, topic: str) -> int | None:
        found = self._admin.list_topics(timeout=10).topics.get(topic)
        return found and len(found.partitions)

    def records(self, topic: str) -> list[SimulatedRecord]:
        return [
            SimulatedRecord(
                m.topic(), m.partition(), m.offset(), m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]
            )
            for m in committed_messages(self._bootstrap, topic)
        ]

    def dump(self, topic: str) -> str:
        return self._kafka.dump_log(topic, 0)

    def last_stable_offset(self, topic: str) -> int:
        return self._end(topic, IsolationLevel.READ_COMMITTED)

    def high_watermark(self, topic: str) -> int:
        return self._end(topic, IsolationLevel.READ_UNCOMMITTED)

    def _end(self, topic: str, level: IsolationLevel) -> int:
        where = TopicPartition(topic, 0)
        return self._admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=level)[where].result(10).offset

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(10)

    def commit(self, group: str, offsets: Offsets) -> None:
        """As another program does."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer(settings)
        consumer.commit(offsets=[TopicPartition(*key, at) for key, at in offsets.items()], asynchronous=False)
        consumer.close()

    def transactional_ids(self) -> list[str]:
        listed = run_tool("org.apache.kafka.tools.TransactionsCommand", ["--bootstrap-server", self._bootstrap, "list"])
        return [line.split()[0] for line in listed.splitlines()[1:] if line.strip()]

    def later(self, seconds: float) -> bool:
        """Time passes."""
        time.sleep(seconds)
        return True

    def settle(self, topic: str) -> None:
        """Until markers are written."""
        wait_for_markers(self._bootstrap, topic)

    def until_timed_out(self, topic: str) -> None:
        """Until no transaction is open in partition 0: brokers look for such every 10 s."""
        until(lambda: self.last_stable_offset(topic) == self.high_watermark(topic), 25)

    def read_while(self, read: Callable[[], T], act: Callable[[], None]) -> T:
        """What a read gives that has to wait until something is done."""
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(read)
            act()
            return found.result(30)


class _Waiting(Network):
    """Does something while the first client waits that has to ask again."""

    act: Callable[[], None] | None = None

    def pause(self, request: Request[Any]) -> None:
        act, self.act = self.act, None
        if act is not None:
            act()
        super().pause(request)


class SimulatedCluster:
    """Brokers in memory, with the calls of `RealCluster`."""

    def __init__(self, brokers: Brokers | None = None) -> None:
        self._network = _Waiting(brokers or Brokers())
        self.kafka = SimulatedKafka(network=self._network)

    def topic(self, partitions: int = 1, name: str = "topic") -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        self.create_topic(unique, partitions)
        return unique

    def create_topic(self, name: str, partitions: int) -> None:
        self.kafka.create_topic(name, partitions)

    def query(self, query: str, topic: str) -> SimulatedQuery:
        return SimulatedQuery(self.kafka, query, topic)

    def partitions(self, topic: str) -> int | None:
        return self.kafka.brokers.partitions(topic)

    def records(self, topic: str) -> list[SimulatedRecord]:
        return self.kafka.records(topic)

    def dump(self, topic: str) -> str:
        return self.kafka.dump(topic)

    def last_stable_offset(self, topic: str) -> int:
        return self.kafka.last_stable_offset(topic)

    def high_watermark(self, topic: str) -> int:
        return self.kafka.high_watermark(topic)

    def delete_group(self, group: str) -> None:
        self.kafka.delete_group(group)

    def commit(self, group: str, offsets: Offsets) -> None:
        self.kafka.brokers.group(group).commit({key: Committed(at) for key, at in offsets.items()})

    def transactional_ids(self) -> list[str]:
        return [each.id for each in self.kafka.transactions()]

    def later(self, seconds: float) -> bool:
        self.kafka.advance(seconds)
        return True

    def settle(self, topic: str) -> None:
        """Markers are written at once."""

    def until_timed_out(self, topic: str) -> None:
        self.kafka.brokers.time_out()
        self.kafka.settle()
        assert self.last_stable_offset(topic) == self.high_watermark(topic)

    def read_while(self, read: Callable[[], T], act: Callable[[], None]) -> T:
        self._network.act = act
        found = read()
        assert self._network.act is None, "nothing made the read wait"
        return found


Cluster = RealCluster | SimulatedCluster


@dataclass
class SimulatedQuery(QueryCalls):
    """One query id on simulated brokers: the twin of `tests_support.Query`."""

    kafka: SimulatedKafka
    query: str
    topic: str
    client: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = self.kafka.ledger(self.query)
        self.factory = self.kafka.client(self.query, int(self.client.get("transaction.timeout.ms", 60_000)) / 1000)
        self.fencing = {"for_each": one_by_one}

    @property
    def ports(self) -> LanePorts:
        return LanePorts(self.ledger, self.factory.open, self.factory.timeout_s, self.kafka.now)

    def values(self, topic: str | None = None) -> list[str]:
        return sorted(each.value.decode() for each in self.kafka.records(topic or self.topic))

    def uncommitted(self) -> list[str]:
        return [each.value.decode() for each in self.kafka.records(self.topic, "read_uncommitted")]
