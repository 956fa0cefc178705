"""What the subscribed partitions hold, and where in them a time or a group's committed offset is. For the driver."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from spark_eos.errors import BrokerUnreachable, TopicMissing
from spark_eos.kafka.admin import REQUEST_TIMEOUT_S, Cluster, Described, patiently
from spark_eos.kafka.committed import committed
from spark_eos.kafka.config import ledger_settings
from spark_eos.kafka.failures import error_of, failure, is_missing_topic, is_transient
from spark_eos.kafka.offsets import Bounds, Holdings, Marks, lost
from spark_eos.protocol.positions import Offsets
from spark_eos.protocol.positions import TopicPartition as Key
from spark_eos.source_values import Subscription

SECOND_LOOK_S = 0.5
LOOKS = 3
"""A new leader may for a moment tell of less than the last one: look again before calling it data loss (as Spark)."""

RESTART_S = 60.0
"""How long brokers that have answered before may be away: a broker that restarts must not end the query."""

NOTHING = Marks({}, {})


class Listing:
    """Looks up what the subscribed partitions hold. Belongs to the driver's process: clients do not survive a fork.

    Args:
        client: client settings, without the prefix.
        subscription: which partitions.
        strict: whether losses end the query. Else a topic that is named may be missing if the checkpoint knows it as
            out of sight, and what was looked at again in vain is not looked at again each time.
    """

    def __init__(self, client: Mapping[str, str], subscription: Subscription, *, strict: bool = True) -> None:
        self._client = client
        self._cluster = Cluster(client)
        self._subscription = subscription
        self._patience_s = REQUEST_TIMEOUT_S
        self._strict = strict
        self._in_vain: set[Key] = set()

    def holdings(self, known: Marks = NOTHING) -> Holdings:
        """What each partition holds now; partitions that are gone are absent.

        Args:
            known: offsets of the checkpoint. While the answer contradicts them, it is asked for again a few times,
                unless that was in vain the last time.

        Raises:
            TopicMissing: a topic does not exist, and the checkpoint does not know it either.
            AccessDenied: the brokers do not let the client in, or it may not describe a topic.
            BrokerUnreachable: no answer within about `REQUEST_TIMEOUT_S`, or `RESTART_S` if there was one before.
        """
        found = self._reach(known)
        for _ in range(LOOKS - 1):
            if not known.all or lost(known, found).keys() <= self._in_vain:
                break
            time.sleep(SECOND_LOOK_S)
            found = self._reach(known)
        self._in_vain = set(lost(known, found)) if known.all and not self._strict else set()
        return found

    def at(self, millis: Mapping[Key, int]) -> dict[Key, int | None]:
        """The first offset below the last stable one with this timestamp or a later one; None where there is none.

        Args:
            millis: milliseconds since 1970, by partition.
        """
        asked = {TopicPartition(*key): OffsetSpec.for_timestamp(when) for key, when in millis.items()}
        for attempt in patiently():
            with attempt:
                found = self._answers(self._ask(asked))
        return {key: offset if offset >= 0 else None for key, offset in found.items()}

    def committed(self, group: str, keys: Iterable[Key], *, stable: bool = True) -> dict[Key, int | None]:
        """The committed offsets of a group; None where it has none.

        Args:
            group: whose.
            keys: of which partitions.
            stable: wait until no transaction is open on them; else they are as last committed.

        Raises:
            AccessDenied: the client may not describe the group.
        """
        settings = ledger_settings(self._client, self._cluster.brokers(), group, stable)
        doing = f"reading the committed offsets of group {group}"
        try:
            consumer = Consumer(settings)
            try:
                found = committed(consumer, [TopicPartition(*key) for key in keys], REQUEST_TIMEOUT_S)
            finally:
                consumer.close()
        except KafkaException as exception:
            raise failure(exception, doing) from exception
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def _reach(self, known: Marks) -> Holdings:
        """Ask again when a connection breaks."""
        found = Retrying(
            retry=retry_if_exception_type(BrokerUnreachable),
            wait=wait_fixed(0.25),
            stop=stop_after_delay(self._patience_s),
            reraise=True,
        )(self._look, known)
        self._patience_s = RESTART_S
        return found

    def _look(self, known: Marks) -> Holdings:
        topics = self._topics({topic for topic, _ in (known.offsets if self._strict else known.all)})
        every = [(topic, index) for topic, found in topics.items() for index in range(found.partitions)]
        wanted = self._subscription.partitions or every
        there = [TopicPartition(t, i) for t, i in wanted if t in topics and i < topics[t].partitions]
        bounds = self._bounds(there) if there else {}
        return Holdings(bounds, {name: found.topic_id for name, found in topics.items()})

    def _topics(self, known: set[str]) -> dict[str, Described]:
        wanted = self._subscription
        if wanted.pattern:
            names: Iterable[str] = self._cluster.matching(wanted.pattern)
        else:
            names = wanted.topics or {topic for topic, _ in wanted.partitions}
        described = self._cluster.describe(names)
        found = {name: topic for name, topic in described.items() if topic is not None}
        self._check_there(described.keys() - found.keys() - known, found, known)
        return found

    def _check_there(self, missing: set[str], found: Mapping[str, Described], known: set[str]) -> None:
        option = self._subscription.option
        if missing:
            told = f"topic {', '.join(sorted(missing))} does not exist (option {option})"
        elif not found and not known:
            pattern = self._subscription.pattern
            told = f"no topic matches {pattern!r} among those that the client may describe (option {option})"
        else:
            beyond = [f"{t}-{i}" for t, i in self._subscription.partitions if t in found and i >= found[t].partitions]
            if not beyond or known:
                return
            told = f"partition {', '.join(beyond)} does not exist (option {option})"
        raise TopicMissing(
            told, do="Create it, or correct the option; spark-eos never lets a broker create one by accident."
        )

    def _bounds(self, partitions: list[TopicPartition]) -> dict[Key, Bounds]:
        for attempt in patiently():
            with attempt:
                # All questions are on their way before the first answer is waited for. The high watermark is asked
                # for last: with the end asked for after it, a quiet partition could seem to be ahead of itself.
                asked = [
                    self._ask(dict.fromkeys(partitions, OffsetSpec.earliest())),
                    self._ask(dict.fromkeys(partitions, OffsetSpec.latest())),
                    self._ask(dict.fromkeys(partitions, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED),
                ]
                earliest, end, high = map(self._answers, asked)
        keys = sorted(earliest.keys() & end.keys() & high.keys())
        return {key: Bounds(earliest[key], end[key], max(high[key], end[key])) for key in keys}

    def _ask(
        self,
        specs: dict[TopicPartition, OffsetSpec],
        # With it the end is the last stable offset: nothing below it can still be aborted.
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        futures: dict[TopicPartition, Future[ListOffsetsResultInfo]] = self._cluster.admin.list_offsets(
            specs, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
        )
        return futures

    def _answers(self, futures: dict[TopicPartition, Future[ListOffsetsResultInfo]]) -> Offsets:
        found: Offsets = {}
        for partition, future in futures.items():
            try:
                found[partition.topic, partition.partition] = self._cluster.answer(future).offset
            except KafkaException as exception:
                if is_missing_topic(error_of(exception)):
                    continue  # deleted just now: absent
                if is_transient(exception):
                    self._cluster.refresh()
                    raise  # to `patiently`
                raise self._cluster.failed(exception, f"looking up offsets of topic {partition.topic}") from exception
        return found
