"""The ledger on simulated brokers: what `spark_eos.kafka.ledger` is on real ones."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.errors import BrokerUnreachable
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow, decode_lane, decode_query
from spark_eos.protocol.names import QUERY_PARTITION, lane_partition
from spark_eos.protocol.positions import OURS, Offsets, TopicPartition
from spark_eos.testing.simulated.answers import BrokerError, Unanswered
from spark_eos.testing.simulated.client import asked
from spark_eos.testing.simulated.group import Committed
from spark_eos.testing.simulated.network import Api, Network, Request


class SimulatedLedger:
    """One query's ledger. Implements `spark_eos.protocol.ports.QueryLedger`.

    Args:
        network: how it reaches the brokers.
        topic: the ledger topic.
        group: the query's consumer group.
        tries: how often a request is made again that is not answered.
    """

    def __init__(self, network: Network, topic: str, group: str, tries: int) -> None:
        self._network, self._topic, self._group, self._tries = network, topic, group, tries

    def ensure(self, lanes: int) -> None:
        """Create the ledger topic, or widen it."""
        self._network.brokers.ensure_topic(self._topic, lane_partition(lanes))

    def query(self) -> QueryRow | None:
        """The query's row alone."""
        return self._read([QUERY_PARTITION], stable=True).query

    def lane(self, lane: int) -> tuple[QueryRow | None, LaneRow | None]:
        """The query's row and one lane's."""
        view = self._read([QUERY_PARTITION, lane_partition(lane)], stable=True)
        return view.query, view.lanes.get(lane)

    def view(self, stable: bool, lanes: int | None = None) -> LedgerView:
        """The query's row, and those of its first so many lanes, or of all that the topic has room for."""
        count = self._network.brokers.partitions(self._topic) or 0
        return self._read(range(count if lanes is None else min(count, lane_partition(lanes))), stable)

    def offsets(self, keys: Iterable[TopicPartition], *, stable: bool = True) -> Offsets:
        """Committed offsets of source partitions; 0 where nothing is committed."""
        wanted = sorted(keys)
        found = self._fetch(wanted, stable) if wanted else {}
        return {key: found[key].offset if key in found else 0 for key in wanted}

    def committed_by_others(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those source partitions whose offset was not committed by the connector."""
        found = self._fetch(sorted(keys), stable=False)
        return [place for place, each in sorted(found.items()) if each.metadata != OURS]

    def hanging(self) -> list[int]:
        """Lanes whose row is in an open transaction."""
        pending = self._network.brokers.group(self._group).pending()
        first = lane_partition(0)
        return sorted(number - first for topic, number in pending if topic == self._topic and number >= first)

    def members(self) -> int:
        """Nobody subscribes here."""
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, partitions: Iterable[int], stable: bool) -> LedgerView:
        query: QueryRow | None = None
        lanes: dict[int, LaneRow] = {}
        found = self._fetch([(self._topic, partition) for partition in partitions], stable)
        for (_, partition), each in sorted(found.items()):
            if partition == QUERY_PARTITION:
                query = decode_query(each.offset, each.metadata)
            else:
                lane = partition - lane_partition(0)
                lanes[lane] = decode_lane(lane, each.offset, each.metadata)
        return LedgerView(query, lanes)

    def _fetch(self, places: list[TopicPartition], stable: bool) -> dict[TopicPartition, Committed]:
        group = self._network.brokers.group(self._group)
        shown = ", ".join(f"{topic}-{partition}" for topic, partition in places) + (" stable" if stable else "")
        request = Request(Api.OFFSET_FETCH, self._group, lambda: group.fetch(places, stable), shown)
        try:
            return asked(self._network, request, self._tries)
        except (BrokerError, Unanswered) as error:
            raise BrokerUnreachable(
                f"reading the committed offsets of group {self._group}: {error}",
                do="Wait until the transaction that is open has ended, or timed out, and restart the query.",
            ) from error
