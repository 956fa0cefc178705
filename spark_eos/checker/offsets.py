"""A watcher of a consumer group's committed offsets: they may not move back."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.checker.reader import PAUSE_S
from spark_eos.checker.rows import Place
from spark_eos.checker.settings import Client
from spark_eos.checker.topic_log import REQUEST_S
from spark_eos.checker.watcher import Watcher

SAMPLE_S = 0.1
GONE = -1


class OffsetsWatcher(Watcher):
    """Samples the offsets that a group has committed for some topics, all their partitions, ten times a second.

    Args:
        client: settings of the client, `bootstrap.servers` among them.
        group: the consumer group.
        topics: those that do not exist yet are looked at as soon as they do.

    Attributes:
        samples: how often it looked.
        interruptions: how often it could not.
        moves: place, offset before, offset after (-1: none any more) of those that moved back.
    """

    name = "offsets watcher"

    def __init__(self, client: Client, group: str, topics: tuple[str, ...]) -> None:
        super().__init__()
        # read_committed, so that the answer is stable. A new group coordinator answers the other kind before it knows
        # which of its records are replicated (its high watermark is behind), with offsets of a moment ago.
        self._settings = {**client, "group.id": group, "isolation.level": "read_committed", "log_level": 0}
        self._topics = topics
        self._client: Consumer | None = None
        self._last: dict[Place, int] = {}
        self.samples = self.interruptions = 0
        self.moves: list[tuple[Place, int, int]] = []

    def look(self) -> None:
        try:
            if self._client is None:
                self._client = Consumer(self._settings)
            self._note(self._committed(self._client))
            self._stopping.wait(SAMPLE_S)
        except KafkaException:
            self.interruptions += 1
            self.close()
            self._stopping.wait(PAUSE_S)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _committed(self, client: Consumer) -> dict[Place, int]:
        # All topics are listed, since asking for one by name may create it.
        known = client.list_topics(timeout=REQUEST_S).topics
        asked = [TopicPartition(name, p) for name in self._topics if name in known for p in known[name].partitions]
        found = client.committed(asked, timeout=REQUEST_S) if asked else []
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.error is None}

    def _note(self, found: dict[Place, int]) -> None:
        self.samples += 1
        for place, offset in found.items():
            before, now = self._last.get(place, GONE), max(offset, GONE)
            if now < before:
                self.moves.append((place, before, now))
            self._last[place] = now
