"""Questions to the cluster, each answered within seconds or with an error: brokers, topics, limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential, wait_fixed

from spark_eos.errors import ClusterError, SparkEosError, TopicMissing
from spark_eos.kafka.config import admin_settings
from spark_eos.kafka.failures import LastWord, error_of, failure, is_lost, is_missing_topic, is_transient, lost_race
from spark_eos.kafka.topics import CREATE_IT

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
"""How long a question may wait for its answer before the brokers count as unreachable."""

AT_WORK_TIMEOUT_S = 30.0
"""The same for a query that is at work: long enough for a broker's restart, as `CALL_TIMEOUT_S` is."""

DENIED_AFTER_S = 3.0
"""How long a client may be refused before that counts: it tries again by itself, and a broker may just be starting."""


def patiently(limit_s: float = REQUEST_TIMEOUT_S) -> Retrying:
    """Try again while the answer is a transient one (a coordinator that loads, an open transaction)."""
    return Retrying(
        retry=retry_if_exception(is_transient),
        wait=wait_exponential(multiplier=0.005, max=0.25),
        stop=stop_after_delay(limit_s),
        reraise=True,
    )


@dataclass(frozen=True)
class Described:
    """A topic: how many partitions it has, its id (KIP-516), whether it is one of Kafka's own."""

    partitions: int
    topic_id: str
    internal: bool


class Cluster:
    """A cluster as its administrators see it. Make it in the process that uses it: clients do not survive a fork.

    Args:
        client: client settings, without the prefix.

    `timeout_s` is how long a question may wait for its answer before the brokers count as unreachable. A query that is
    at work sets it to `AT_WORK_TIMEOUT_S`: it should outlast what is told at once of one that starts.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client, self.timeout_s = client, REQUEST_TIMEOUT_S
        self._last_word = LastWord()

    @cached_property
    def admin(self) -> AdminClient:
        """The client, made when it is first needed: a lane without rows needs none."""
        # The callback must not hold this object: a client in a reference cycle is destroyed by the garbage collector,
        # in whatever thread it runs, and if that is one of the client's own, the process dies.
        try:
            return AdminClient(admin_settings(self._client) | {"error_cb": self._last_word})
        except KafkaException as exception:
            raise failure(exception, "making a Kafka client") from exception

    def ask(self, future: Future[T], doing: str) -> T:
        """The answer to an AdminClient call, or one of our errors."""
        try:
            return self.answer(future)
        except KafkaException as exception:
            raise self.failed(exception, doing) from exception

    def answer(self, future: Future[T]) -> T:
        """The answer to an AdminClient call, or the client's error; soon if the brokers do not let the client in."""
        try:
            found = future.result(timeout=DENIED_AFTER_S)
        except FutureTimeout:
            self._check_let_in()
            found = future.result(timeout=self.timeout_s + 5)
        self.admin.poll(0)
        self._last_word.forget()
        return found

    def _check_let_in(self) -> None:
        self.admin.poll(0)
        denial = self._last_word.denial()
        if denial is not None:
            raise KafkaException(denial)

    def failed(self, exception: KafkaException, doing: str) -> SparkEosError:
        """Our error for the client's, with what the client last heard of the brokers."""
        self.admin.poll(0)
        return failure(exception, doing, self._last_word)

    def brokers(self) -> int:
        """How many brokers the cluster has."""
        found = self.ask(self.admin.describe_cluster(request_timeout=self.timeout_s), "reaching the brokers")
        return len(found.nodes)

    def refresh(self) -> None:
        """Ask for the cluster's metadata anew.

        A long-lived client keeps asking a restarted leader with the epoch it knew, and is refused with
        FENCED_LEADER_EPOCH until it does this (measured: for as long as it was retried, 60 s).
        """
        try:
            self.admin.list_topics(timeout=self.timeout_s)
        except KafkaException as exception:
            raise self.failed(exception, "reaching the brokers") from exception

    def partitions(self, topics: Iterable[str]) -> dict[str, int | None]:
        """Topic to its number of partitions; None for one that does not exist. Never creates one."""
        return {name: found.partitions if found else None for name, found in self.describe(topics).items()}

    def describe(self, topics: Iterable[str]) -> dict[str, Described | None]:
        """Topics by name; None for one that does not exist. Never creates one.

        (A producer's `list_topics(topic)` would, on a broker with auto.create.topics.enable.)
        """
        names = sorted(set(topics))
        return self._past_a_lost_broker()(self._all_described, names) if names else {}

    def _all_described(self, names: list[str]) -> dict[str, Described | None]:
        asked = self.admin.describe_topics(TopicCollection(names), request_timeout=self.timeout_s)
        return {name: self._described(name, asked[name]) for name in names}

    def _described(self, name: str, asked: Future[Any]) -> Described | None:
        try:
            found = self.answer(asked)
        except KafkaException as exception:
            if is_missing_topic(error_of(exception)):
                return None
            raise self.failed(exception, f"looking up topic {name}") from exception
        return Described(len(found.partitions), str(found.topic_id), bool(found.is_internal))

    def matching(self, pattern: str) -> list[str]:
        """Names of the topics whose whole name matches, without Kafka's own."""
        try:
            names = self.admin.list_topics(timeout=self.timeout_s).topics
        except KafkaException as exception:
            raise self.failed(exception, "listing the topics") from exception
        found = self.describe(filter(re.compile(pattern).fullmatch, names))
        return [name for name, described in found.items() if described and not described.internal]

    def require(self, topics: Iterable[str], what_for: str) -> dict[str, int]:
        """Topic to its number of partitions.

        Raises:
            TopicMissing: one of them does not exist.
        """
        found = self.partitions(topics)
        missing = [name for name, count in found.items() if count is None]
        if missing:
            raise TopicMissing(
                f"topic {', '.join(missing)} does not exist ({what_for})",
                do=CREATE_IT,
            )
        return {name: count for name, count in found.items() if count is not None}

    def members(self, group: str) -> int:
        """How many consumers a group has."""
        asked = self.admin.describe_consumer_groups([group], request_timeout=self.timeout_s)
        return len(self.ask(asked[group], f"describing group {group}").members)

    def ensure_partitions(self, topic: str, count: int) -> int:
        """Create a topic if it is absent, and widen it to at least so many partitions; wait until it is usable.

        Returns how many it has then.
        """
        for attempt in patiently():
            with attempt:
                found = self.partitions([topic])[topic]
                if found is not None and found >= count:
                    return found
                self._create(topic, count) if found is None else self._widen(topic, count)
        for attempt in self._until_seen():
            with attempt:
                found = self.partitions([topic])[topic] or 0
                if found < count:
                    raise _NotSeenYet(f"topic {topic} was given {count} partitions, and they do not show")
        return found or count

    def _past_a_lost_broker(self) -> Retrying:
        """Another broker may know the answer that this one took with it. The client does not ask it by itself."""
        return Retrying(
            retry=retry_if_exception(lambda e: isinstance(e.__cause__, KafkaException) and is_lost(e.__cause__)),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(self.timeout_s),
            reraise=True,
        )

    @staticmethod
    def _until_seen() -> Retrying:
        return Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, _NotSeenYet)),
            wait=wait_exponential(multiplier=0.005, max=0.25),
            stop=stop_after_delay(REQUEST_TIMEOUT_S),
            reraise=True,
        )

    def _create(self, topic: str, count: int) -> None:
        asked = self.admin.create_topics([NewTopic(topic, count)], request_timeout=self.timeout_s)
        self._unless_lost_race(asked[topic], f"creating topic {topic}")

    def _widen(self, topic: str, count: int) -> None:
        asked = self.admin.create_partitions([NewPartitions(topic, count)], request_timeout=self.timeout_s)
        self._unless_lost_race(asked[topic], f"adding partitions to topic {topic}")

    def _unless_lost_race(self, future: Future[Any], doing: str) -> None:
        try:
            self.answer(future)
        except KafkaException as exception:
            if not lost_race(exception):
                raise self.failed(exception, doing) from exception

    def topic_setting(self, topic: str, name: str) -> str | None:
        """One setting of a topic, or None where it can't be read (it needs the DescribeConfigs ACL)."""
        return self._setting(ConfigResource(ResourceType.TOPIC, topic), name)

    def _setting(self, resource: ConfigResource, name: str) -> str | None:
        try:
            asked = self.admin.describe_configs([resource], request_timeout=self.timeout_s)
            entry = asked[resource].result(timeout=self.timeout_s + 5).get(name)
        except KafkaException:
            return None
        return str(entry.value) if entry is not None else None


class _NotSeenYet(ClusterError):
    """A broker does not show the new partitions yet."""
