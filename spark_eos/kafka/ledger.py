"""The ledger on committed offsets: see `spark_eos.protocol.ledger` for what the rows say.

Reads are stable (KIP-447: read_committed sets `require_stable`): a partition with an open transaction gives no answer
until the transaction has ended. Without it a reader could see the offset before last, and write a batch twice; a
commit is acknowledged before its markers are written, so that happens even without a crash (measured).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.committed import committed
from spark_eos.kafka.config import ledger_settings
from spark_eos.kafka.failures import failure, is_timeout
from spark_eos.kafka.hanging import hanging
from spark_eos.options import ClientSettings
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow, decode_lane, decode_query
from spark_eos.protocol.names import QUERY_PARTITION, lane_partition
from spark_eos.protocol.positions import OURS, Offsets
from spark_eos.protocol.positions import TopicPartition as Key

REQUEST_TIMEOUT_S = 30.0
"""How long a stable read waits for a transaction of another process to end."""

PART = 500
"""Committed offsets to ask for at once. A reader of several parts has fenced whoever could write in between."""


class LaneLedger:
    """One query's ledger, as a lane sees it. Makes its clients when they are first needed; `close` ends them.

    Args:
        client: client settings, without the prefix.
        brokers: how many brokers the cluster has.
        topic: the ledger topic.
        group: the query's consumer group.
    """

    def __init__(self, client: ClientSettings, brokers: int, topic: str, group: str) -> None:
        self._client, self._brokers, self._topic, self._group = client, brokers, topic, group
        self._consumers: dict[bool, Consumer] = {}

    def query(self) -> QueryRow | None:
        """The query's row alone."""
        return self._read([QUERY_PARTITION], stable=True).query

    def lane(self, lane: int) -> tuple[QueryRow | None, LaneRow | None]:
        """The query's row and one lane's. Other lanes' rows can be mid-transaction, and are not asked for."""
        view = self._read((QUERY_PARTITION, lane_partition(lane)), stable=True)
        return view.query, view.lanes.get(lane)

    def offsets(self, keys: Iterable[Key], *, stable: bool = True) -> Offsets:
        """What the group has committed for source partitions; 0 where it has committed nothing."""
        wanted = sorted(keys)
        found = {(each.topic, each.partition): each.offset for each in self._committed(wanted, stable)}
        return {key: found.get(key, 0) for key in wanted}

    def close(self) -> None:
        """End the clients."""
        while self._consumers:
            self._consumers.popitem()[1].close()

    def _read(self, partitions: Iterable[int], stable: bool) -> LedgerView:
        query: QueryRow | None = None
        lanes: dict[int, LaneRow] = {}
        for each in self._committed([(self._topic, partition) for partition in partitions], stable):
            if each.partition == QUERY_PARTITION:
                query = decode_query(each.offset, each.metadata or "")
            else:
                lane = each.partition - lane_partition(0)
                lanes[lane] = decode_lane(lane, each.offset, each.metadata or "")
        return LedgerView(query, lanes)

    def _committed(self, keys: Iterable[Key], stable: bool) -> list[TopicPartition]:
        wanted = [TopicPartition(*key) for key in keys]
        if not wanted:
            return []
        doing = f"reading the committed offsets of group {self._group}"
        try:
            # All of 5,000 at once take five times as long as in parts (211 and 40 ms, measured).
            parts = (wanted[start : start + PART] for start in range(0, len(wanted), PART))
            found = [each for part in parts for each in committed(self._consumer(stable), part, REQUEST_TIMEOUT_S)]
        except KafkaException as exception:
            if is_timeout(exception) and stable:
                doing += (
                    f" (a transaction was open on it for {REQUEST_TIMEOUT_S:.0f} s, `spark-eos lanes` shows where, "
                    "and `spark-eos fence` aborts what a dead query left open; "
                    'brokers 4.3 can leave one open, see "What Kafka must hold" in docs/SINK.md; or no broker answered)'
                )
            raise failure(exception, doing) from exception
        return [each for each in found if each.offset >= 0]

    def _consumer(self, stable: bool) -> Consumer:
        if stable not in self._consumers:
            settings = ledger_settings(self._client, self._brokers, self._group, stable)
            try:
                self._consumers[stable] = Consumer(settings)
            except KafkaException as exception:
                raise failure(exception, "making a Kafka client") from exception
        return self._consumers[stable]


class KafkaLedger(LaneLedger):
    """One query's ledger, as the driver sees it.

    Args:
        cluster: the cluster that the sink writes to.
        client, brokers, topic, group: as of `LaneLedger`.

    `partitions` is how many the topic had when `ensure` was last called.
    """

    def __init__(self, cluster: Cluster, client: ClientSettings, brokers: int, topic: str, group: str) -> None:
        super().__init__(client, brokers, topic, group)
        self._cluster = cluster
        self.partitions = 0

    def ensure(self, lanes: int) -> None:
        """Create the ledger topic, or widen it, until every lane has its partition."""
        self.partitions = self._cluster.ensure_partitions(self._topic, lane_partition(lanes))

    def view(self, stable: bool, lanes: int | None = None) -> LedgerView:
        """The query's row, and those of its first so many lanes, or of all that the topic has room for.

        All of 5,000 take 0.25 to 0.9 s to read (measured), whichever query has made the topic that wide.

        Args:
            stable: wait until no transaction is open on any of them.
            lanes: how many.
        """
        count = self.partitions or self._cluster.partitions([self._topic])[self._topic] or 0
        wanted = count if lanes is None else min(count, lane_partition(lanes))
        return self._read(range(wanted), stable)

    def committed_by_others(self, keys: Iterable[Key]) -> list[Key]:
        """Those source partitions whose offset another program has committed."""
        found = self._committed(sorted(keys), stable=False)
        return [(each.topic, each.partition) for each in found if each.metadata != OURS]

    def hanging(self) -> list[int]:
        """Lanes whose row is in an open transaction, of all that the topic has room for."""
        lanes = range(lane_partition(0), self.partitions)
        found = hanging(self._consumer(stable=True), self._topic, lanes)
        return [partition - lane_partition(0) for partition in found]

    def members(self) -> int:
        """How many consumers the group has."""
        return self._cluster.members(self._group)

    def group_metadata(self) -> bytes:
        """The group's metadata for `send_offsets_to_transaction`: plain bytes, made once and shipped to tasks.

        It has no generation, since nobody subscribes: the transactional.id is the only fence.
        """
        return cast(bytes, self._consumer(stable=True).consumer_group_metadata())
