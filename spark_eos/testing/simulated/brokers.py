"""The brokers' side: topics, groups, the coordinator, and the clock they share."""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.protocol.positions import TopicPartition
from spark_eos.testing.simulated.answers import BrokerError, Code
from spark_eos.testing.simulated.coordinator import Coordinator, Journal, PendingMarker
from spark_eos.testing.simulated.group import Group
from spark_eos.testing.simulated.partition import PartitionLog

ID_EXPIRATION_S = 7 * 24 * 3600.0
"""Kafka's default of transactional.id.expiration.ms, and of offsets.retention.minutes."""


STARTED_MS = 1_767_225_600_000
"""When the brokers' clock is at 0, for records' timestamps: the beginning of 2026, in milliseconds since 1970."""


class Brokers:
    """All that the brokers keep. Nothing here happens by itself: time passes when `advance` says so.

    Args:
        expiration_s: how long a transactional.id is kept that nothing is done with, in seconds.
        retention_s: how long a committed offset is kept; by default as long.
    """

    def __init__(self, expiration_s: float = ID_EXPIRATION_S, retention_s: float | None = None) -> None:
        self.now = 0.0
        self.journal: Journal = []
        self._expiration_s = expiration_s
        self._retention_s = expiration_s if retention_s is None else retention_s
        self._elections = 0
        self.coordinator = self._elect()
        self._deposed: list[Coordinator] = []
        self._topics: dict[str, list[PartitionLog]] = {}
        self._groups: dict[str, Group] = {}

    @property
    def timestamp(self) -> int:
        """The time, as records have it: milliseconds since 1970."""
        return STARTED_MS + round(self.now * 1000)

    # --- topics and groups -------------------------------------------------------------------------------------

    def ensure_topic(self, name: str, partitions: int) -> int:
        """Create a topic, or widen it; how many partitions it has then."""
        logs = self._topics.setdefault(name, [])
        logs += [PartitionLog() for _ in range(partitions - len(logs))]
        return len(logs)

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        return len(self._topics[topic]) if topic in self._topics else None

    def log(self, topic: str, partition: int) -> PartitionLog:
        """A partition's log.

        Raises:
            BrokerError: there is none.
        """
        if not 0 <= partition < (self.partitions(topic) or 0):
            raise BrokerError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        return self._topics[topic][partition]

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """Every partition."""
        return {(topic, number): log for topic, logs in self._topics.items() for number, log in enumerate(logs)}

    def group(self, name: str) -> Group:
        """A group; it is there when it is first asked for."""
        return self._groups.setdefault(name, Group(lambda: self.now))

    def delete_group(self, name: str) -> None:
        """Forget a group and all that it has committed."""
        self._groups.pop(name, None)

    def fingerprint(self) -> int:
        """A hash of all that the brokers know, but for the time: equal if they are, in one process."""
        logs = [log.digest for partitions in self._topics.values() for log in partitions]
        groups = [group.fingerprint() for group in self._groups.values()]
        coordinators = [each.fingerprint() for each in (self.coordinator, *self._deposed)]
        return hash((*logs, 0, *groups, 0, *coordinators))

    # --- transactions ------------------------------------------------------------------------------------------

    def markers(self) -> list[PendingMarker]:
        """Markers that are yet to be written, by this coordinator or by one that was deposed meanwhile."""
        return [marker for each in (self.coordinator, *self._deposed) for marker in each.markers]

    def write_marker(self, pending: PendingMarker) -> None:
        """Write one marker; one that comes from a deposed coordinator, or too late, is refused by the log."""
        target = self.log(*pending.place) if isinstance(pending.place, tuple) else self.group(pending.place)
        owners = [each for each in (self.coordinator, *self._deposed) if pending in each.markers]
        try:
            target.end(pending.producer, pending.marker)
        except BrokerError as refused:
            if refused.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        for each in owners:
            each.marked(pending)

    def write_markers(self) -> None:
        """Write all markers that are due."""
        while pending := self.markers():
            self.write_marker(pending[0])

    def any_open(self) -> bool:
        """Whether a transaction is under way."""
        return any(not each.state.idle for each in self.coordinator.transactions())

    def fail_over(self) -> None:
        """The coordinator dies, and another broker goes on from the journal.

        What the old one was about to write may still arrive.
        """
        self.coordinator.deposed = True
        self._deposed = [each for each in (*self._deposed, self.coordinator) if each.markers]
        self.coordinator = self._elect()

    def time_out(self) -> None:
        """Time passes until every open transaction has timed out."""
        self.advance(max((each.timeout_s for each in self.coordinator.transactions()), default=0.0))

    def advance(self, seconds: float) -> None:
        """Let time pass: transactions time out, ids and offsets are forgotten."""
        self.now += seconds
        self.coordinator.abort_timed_out()
        self.coordinator.expire_ids(self._expiration_s)
        for group in self._groups.values():
            group.expire(self._retention_s)

    def _elect(self) -> Coordinator:
        self._elections += 1
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        return Coordinator(self.journal, self._elections, clock)
