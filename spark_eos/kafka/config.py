"""Settings of the Kafka client: the user's, under what each kind of client needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

librdkafka_log = logging.getLogger("spark_eos.librdkafka")
"""What librdkafka itself says: silent unless the application sets up logging. What matters comes as an error."""
librdkafka_log.addHandler(logging.NullHandler())

SMALL_CLUSTER = 12
"""Brokers up to which a client connects to all of them at once. See `quick_connection`."""

TRANSACTION_TIMEOUT_MS = 60_000
"""The client's own default of transaction.timeout.ms."""

LOST_AFTER_MS = 10_000
"""See `lost_after_ms`."""

Settings = dict[str, Any]


def base_settings(client: Mapping[str, str]) -> Settings:
    """What every client gets.

    Args:
        client: the user's settings, without the prefix `kafka.`.
    """
    return {"client.id": "spark-eos", "log.connection.close": "false", **client, "logger": librdkafka_log}


PRODUCER_ONLY = {
    "transaction.timeout.ms",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "linger.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.send.max.retries",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.linger.ms",
}


def admin_settings(client: Mapping[str, str]) -> Settings:
    """For a client that writes nothing; settings that only producers know are left out, they warn."""
    return {name: value for name, value in base_settings(client).items() if name not in PRODUCER_ONLY}


def ledger_settings(client: Mapping[str, str], brokers: int, group: str, stable: bool) -> Settings:
    """For the consumer that reads committed offsets, and nothing else.

    Args:
        client: the user's settings, without the prefix.
        brokers: how many brokers the cluster has.
        group: whose offsets.
        stable: wait for open transactions to end (read_committed), or read what was there before them.
    """
    return {
        **quick_connection(brokers),
        **admin_settings(client),
        "group.id": group,
        "isolation.level": "read_committed" if stable else "read_uncommitted",
        "enable.auto.commit": "false",
    }


def quick_connection(brokers: int) -> Settings:
    """What makes a fresh client quick to reach its coordinator.

    librdkafka connects to a broker only once it needs it, and finding a coordinator then waits for a connection
    back-off: 57 or 507 ms, at random (measured, one broker). Connecting to all brokers at once makes it 3 to 6 ms,
    which is right for a small cluster; on a large one a client must not open hundreds of connections, and a short
    back-off keeps it at 15 to 25 ms.
    """
    return {"enable.sparse.connections": "false"} if brokers <= SMALL_CLUSTER else {"reconnect.backoff.ms": "20"}


def transaction_timeout_ms(client: Mapping[str, str]) -> int:
    """How long the broker lets a transaction be open, in milliseconds."""
    return int(client.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))


def lost_after_ms(client: Mapping[str, str]) -> int:
    """After how many milliseconds a producer takes an answer for lost, and sends the request again.

    librdkafka's own default is as long as the transaction may be open, so that one lost answer costs the attempt: with
    60 s, a Produce or a TxnOffsetCommit 61 s, an InitProducerId or an EndTxn 30 s. With 10 s each of them took 10 to
    12 s, and the same attempt committed (measured). A third of a shorter transaction: there is time to try again.
    """
    return min(LOST_AFTER_MS, transaction_timeout_ms(client) // 3)


def producer_settings(client: Mapping[str, str], transactional_id: str, brokers: int) -> Settings:
    """For a fresh transactional producer.

    Args:
        client: the user's settings, without the prefix.
        transactional_id: whose transactions.
        brokers: how many brokers the cluster has.
    """
    return {
        # As the Java client places keys; librdkafka's own default differs.
        "partitioner": "murmur2_random",
        **quick_connection(brokers),
        "socket.timeout.ms": str(lost_after_ms(client)),
        **base_settings(client),
        "transactional.id": transactional_id,
        "enable.idempotence": "true",
        # A batch of records that a broker refused for the moment (NOT_LEADER) counts as written for librdkafka once the
        # next one in flight is, and a broker that does not know the producer yet takes that one: the first is lost, and
        # the transaction commits (confluent-kafka-go issue 921). With one request at a time there is no next one.
        "max.in.flight.requests.per.connection": "1",
        # Asking for metadata would create a topic on brokers with auto.create.topics.enable, their default.
        "allow.auto.create.topics": "false",
        # Only failed deliveries call back: a call per record would cost more than sending it.
        "delivery.report.only.error": True,
    }
