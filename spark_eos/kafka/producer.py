"""The protocol's transaction on a fresh librdkafka producer.

Fresh each time, because librdkafka speaks transactions v1: a delayed EndTxn of the previous transaction can land on
the next one of the same producer epoch (KAFKA-17754, librdkafka issue 5423). `init_transactions` gives a new epoch,
and what is late then is rejected.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from spark_eos.errors import BrokerUnreachable, RecordTooLarge, SparkEosError
from spark_eos.kafka.admin import REQUEST_TIMEOUT_S
from spark_eos.kafka.config import SMALL_CLUSTER, producer_settings, transaction_timeout_ms
from spark_eos.kafka.deadletters import DeadLetters
from spark_eos.kafka.failures import (
    Verb,
    classify,
    error_of,
    is_late,
    is_missing_topic,
    is_state,
    is_too_large,
    transaction_failure,
)
from spark_eos.kafka.sizes import Sizes, shown
from spark_eos.kafka.topics import KnownTopics, Record, WritableRows
from spark_eos.kafka.watchdog import bounded
from spark_eos.options import ClientSettings
from spark_eos.protocol.ledger import Row
from spark_eos.protocol.ports import Rows
from spark_eos.protocol.positions import OURS, Offsets

log = logging.getLogger("spark_eos.kafka")

CALL_TIMEOUT_S = 30.0
"""For each transactional call but the flush. Long enough for a broker's restart or a coordinator's move."""

FULL_QUEUE_WAITS_S = (0.001, 0.1)
"""How long to wait for room in the client's queue: the first time, doubled each time, and at most."""

REASON_S = 1.0
"""How long to wait for the reason why the client has failed the transaction, before it is told without one."""

Deliveries = list[tuple[KafkaError, Message]]
"""Deliveries that failed, with why."""


@dataclass(frozen=True)
class ProducerFactory:
    """Makes transactions for one query. Plain values only: it is shipped to Spark's tasks.

    Args:
        client: client settings, without the prefix.
        brokers: how many brokers the cluster has.
        ledger_topic: where ledger rows are committed to.
        group_metadata: of the query's group, as `KafkaLedger.group_metadata` makes it.
        call_timeout_s: bound of each transactional call but the flush; at most the transaction's timeout.
        mark: metadata of the source offsets: see `mark_of`.
    """

    client: ClientSettings
    brokers: int
    ledger_topic: str
    group_metadata: bytes
    call_timeout_s: float = CALL_TIMEOUT_S
    mark: str = OURS

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds that the broker lets a transaction be open."""
        return transaction_timeout_ms(self.client) / 1000

    @contextlib.contextmanager
    def open(
        self,
        transactional_id: str,
        topics: Mapping[str, int] = MappingProxyType({}),
        letters: DeadLetters | None = None,
    ) -> Iterator[KafkaTransaction]:
        """A fresh producer for one transactional.id, dropped at the end whatever its state.

        Args:
            transactional_id: whose.
            topics: topics already looked up, with their number of partitions.
            letters: where rows go that can't be written; without it they are errors.
        """
        transaction = KafkaTransaction(self, transactional_id, topics, letters)
        try:
            yield transaction
        finally:
            transaction.drop()


class KafkaTransaction:
    """One producer, one transactional.id. Implements `spark_eos.protocol.ports.Transaction`."""

    def __init__(
        self,
        factory: ProducerFactory,
        transactional_id: str,
        topics: Mapping[str, int] = MappingProxyType({}),
        letters: DeadLetters | None = None,
    ) -> None:
        self._factory, self._letters = factory, letters
        self._failed: Deliveries = []
        self._lost: list[KafkaError] = []
        self._open = False
        self.queue_waits = 0
        settings = producer_settings(factory.client, transactional_id, factory.brokers)
        try:
            callbacks = {
                "on_delivery": partial(_note_failure, self._failed),
                "error_cb": partial(_note_loss, self._lost),
            }
            self._producer = Producer(settings | callbacks)
        except KafkaException as exception:
            raise transaction_failure(exception, "making a transactional producer") from exception
        self._topics = KnownTopics(topics, partial(_partitions, self._producer))
        self._sizes = Sizes(factory.client)

    def fence(self) -> None:
        """`init_transactions`: older producers of the id are fenced, what they left open is ended."""
        if self._factory.brokers > SMALL_CLUSTER:
            # Connects to a broker first; else finding the coordinator waits for a back-off of 500 ms.
            self._call(self._warm_up, "reaching the brokers")
        self._call(self._producer.init_transactions, "fencing older producers (init_transactions)")
        self._serve(self._producer.poll, 0)
        self._lost.clear()

    @property
    def disconnected(self) -> bool:
        """Whether the client has told of a broker that it lost since the fence."""
        self._serve(self._producer.poll, 0)
        return bool(self._lost)

    def _warm_up(self, timeout_s: float) -> None:
        self._producer.list_topics(self._factory.ledger_topic, timeout_s)

    def begin(self) -> None:
        self._call(lambda _: self._producer.begin_transaction(), "beginning a transaction")
        self._open = True

    def write(self, rows: Rows) -> int:
        """Queue rows for sending; returns how many went to the dead letters.

        Raises:
            RecordError: a record that can't be written, by its topic, key and source position.
            TopicMissing: a row's topic does not exist.
        """
        dead, refusal, queued = 0, self._topics.refusal, self._queued
        for record in cast(WritableRows, rows).records():
            error = refusal(record) or queued(record)
            if error is not None:
                self._bury(record, error)
                dead += 1
        self._serve(self._producer.poll, 0)
        self._raise_failed()
        return dead

    def _queued(self, record: Record) -> SparkEosError | None:
        """Queue a record for sending; None, or why nobody will ever take it."""
        name, key, value, partition, headers, timestamp, _ = record
        topic = cast(str, name)
        if self._letters and self._sizes.refused_by_topic(record):
            return self._sizes.too_large(topic, key, record.size)
        where = -1 if partition is None else partition
        wait_s, longest_s = FULL_QUEUE_WAITS_S
        was_empty = False
        while True:
            try:
                self._producer.produce(topic, value, key, where, timestamp=timestamp, headers=headers)
                return None
            except BufferError:
                if was_empty:
                    return self._sizes.too_large(topic, key, record.size)
                # The queue is full: the brokers are slower than Spark. Wait for them, not in memory. It ends, because
                # the client fails what it could not deliver within message.timeout.ms.
                self.queue_waits += 1
                self._serve(self._producer.poll, wait_s)
                self._raise_failed()
                wait_s, was_empty = min(2 * wait_s, longest_s), not len(self._producer)
            except KafkaException as exception:
                # A client that has given up tells why in other words: that it was fenced, or by deliveries that failed.
                self._await_reason(error_of(exception))
                self._raise_failed()
                found = self._record_failure(error_of(exception), topic, key, record.size)
                if isinstance(found, RecordTooLarge):
                    return found
                raise found from exception

    def _await_reason(self, error: KafkaError) -> None:
        """Deliveries fail a moment after the transaction that they were part of."""
        until = time.monotonic() + (REASON_S if is_state(error) else 0)
        self._serve(self._producer.poll, 0)
        while not self._failed and (left_s := until - time.monotonic()) > 0:
            self._serve(self._producer.poll, left_s)

    def _bury(self, record: Record, error: SparkEosError) -> None:
        """Queue a record for the dead letter topic, or as much of it as fits there; raise if there is none."""
        letters = self._letters.letters(record, error) if self._letters else ()
        if all(self._queued(letter) is not None for letter in letters):
            raise error

    def flush(self) -> None:
        """Wait for all deliveries. Bounded by message.timeout.ms, which is at most transaction.timeout.ms."""
        while self._serve(self._producer.flush, 1.0):
            self._raise_failed()
        self._raise_failed()

    def commit_offsets(self, rows: Iterable[Row], offsets: Offsets) -> None:
        """Ledger rows and source offsets into the transaction; none of topics of another cluster.

        After a flush it takes 2 to 6 ms, without one up to 100 ms (retry back-off; measured).
        """
        topic = self._factory.ledger_topic
        ledger = [TopicPartition(topic, row.partition, row.next_batch, row.metadata()) for row in rows]
        # Of the ledger topic, which a subscribePattern may match, partition 0 is the query's row.
        here = sorted((key, at) for key, at in offsets.items() if key[0] != topic and self._topics.has(*key))
        source = [TopicPartition(*key, offset, self._factory.mark) for key, offset in here]
        metadata = self._factory.group_metadata

        def send(timeout_s: float) -> None:
            self._producer.send_offsets_to_transaction(ledger + source, metadata, timeout_s)

        self._call(send, "adding offsets to the transaction")

    def commit(self) -> None:
        """Commit; an error that asks for it aborts first, so that nothing is left open."""
        try:
            self._call(self._producer.commit_transaction, "committing the transaction", committing=True)
        except SparkEosError as error:
            cause = error.__cause__
            asked = isinstance(cause, KafkaException) and classify(error_of(cause), committing=True) is Verb.ABORT
            if asked:
                self.abort()
            raise
        finally:
            # Without an answer only the broker knows how it ended: an abort now would be a guess.
            self._open = False

    def abort(self) -> None:
        """Abort as well as may be. What this can't abort, the next fence or the transaction's timeout will."""
        if not self._open:
            return
        self._open = False
        try:
            self._call(self._producer.abort_transaction, "aborting the transaction")
        except SparkEosError as error:
            log.warning("the transaction could not be aborted, the next attempt's fence will do it: %s", error)

    def drop(self) -> None:
        """Forget the producer. Its destructor waits for nothing, and never aborts or commits."""
        del self._producer, self._topics

    # --- failures ----------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[float], Any], doing: str, *, committing: bool = False) -> None:
        limit_s = min(self._factory.call_timeout_s, self._factory.transaction_timeout_s)
        try:
            _retrying(committing, limit_s)(bounded, call, limit_s, doing)
        except KafkaException as exception:
            # Its traceback leads to the retries' state, which holds the error and the client: a reference cycle.
            cause = exception.with_traceback(None)
            raise transaction_failure(cause, doing, committing=committing) from cause

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """`poll` or `flush`. Either raises an error after which the client is of no use, such as a fence; and if it
        tells of a delivery in the same call, Python makes a SystemError of it."""
        try:
            return call(timeout_s)
        except (KafkaException, SystemError) as exception:
            cause = exception if isinstance(exception, KafkaException) else exception.__cause__
            if not isinstance(cause, KafkaException):
                raise
            # The client's module never lets go of such a SystemError; its traceback would keep the client for ever.
            exception.with_traceback(None)
            raise transaction_failure(cause, "writing records") from cause.with_traceback(None)

    def _raise_failed(self) -> None:
        if not self._failed:
            return
        # A broker refuses a whole batch of records for one that is too large: that one is the largest.
        error, message = max(self._failed, key=lambda failed: is_too_large(failed[0]) and _size(failed[1]))
        topic, size = message.topic() or "?", _size(message)
        if is_too_large(error) and self._sizes.fits_alone(message):
            raise self._sizes.batch_too_large(topic)
        raise self._record_failure(error, topic, message.key(), size)

    def _record_failure(self, error: KafkaError, topic: str, key: bytes | None, size: int) -> SparkEosError:
        if is_too_large(error):
            return self._sizes.too_large(topic, key, size)
        if is_late(error):
            return self._late(topic)
        return transaction_failure(KafkaException(error), f"writing a record to {topic} (key {shown(key)})")

    def _late(self, topic: str) -> BrokerUnreachable:
        client = self._factory.client
        given = client.get("message.timeout.ms") or client.get("delivery.timeout.ms")
        limit = given or client.get("transaction.timeout.ms", "60000")
        return BrokerUnreachable(
            f"records for {topic} were not delivered within {limit} ms (kafka.message.timeout.ms; by default, and at "
            "most, kafka.transaction.timeout.ms)",
            do="Look whether the brokers are up and keep up. If they are only slow, raise kafka.transaction.timeout.ms "
            "(and kafka.message.timeout.ms where it is set), or make batches smaller (maxOffsetsPerTrigger).",
        )


def _partitions(producer: Producer, topic: str) -> int | None:
    """Asked of the producer, which needs the answer anyway. It creates no topic: see `producer_settings`."""
    try:
        found = producer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
    except KafkaException as exception:
        raise transaction_failure(exception, f"looking up topic {topic}") from exception
    if found.error is None:
        return len(found.partitions)
    if is_missing_topic(found.error):
        return None
    raise transaction_failure(KafkaException(found.error), f"looking up topic {topic}")


def _note_failure(failed: Deliveries, error: KafkaError | None, message: Message) -> None:
    """Delivery callback. Holds no transaction: a producer in a reference cycle would be destroyed by the garbage
    collector, in whatever thread it runs, and if that is one of the client's own, the process dies."""
    if error is not None:
        failed.append((error, message))


def _note_loss(lost: list[KafkaError], error: KafkaError) -> None:
    """Error callback; see `_note_failure`. An error that ends the client is raised by the call that tells of it."""
    if error.fatal():
        raise KafkaException(error)
    lost.append(error)


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _retrying(committing: bool, limit_s: float) -> Retrying:
    def again(error: BaseException) -> bool:
        # A commit is resumed by calling it again only while the client itself says so.
        if not isinstance(error, KafkaException):
            return False
        found = error_of(error)
        if committing:
            return found.retriable() and classify(found, committing=True) is Verb.UNCONFIRMED
        return classify(found, committing=False) is Verb.RETRY

    return Retrying(retry=retry_if_exception(again), wait=wait_fixed(0.1), stop=stop_after_delay(limit_s), reraise=True)
