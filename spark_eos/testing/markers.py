"""Waiting until what was committed can be read."""

from __future__ import annotations

import time

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark_eos.errors import SparkEosError

ANSWER_TIMEOUT_S = 30
LOOK_EVERY_S = 0.005


def wait_for_markers(bootstrap_servers: str, topic: str, *, timeout_s: float = 30) -> None:
    """Wait until nothing in a topic holds read_committed readers back.

    A broker acknowledges a commit before it has written the transaction's markers into the partitions: a test that
    reads at once may miss records, or see the topic end too early.

    Args:
        bootstrap_servers: `host:port`, with commas between.
        topic: of which all partitions are looked at.
        timeout_s: how long to wait, in seconds.

    Raises:
        SparkEosError: a transaction is still open by then.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    # All topics are listed, since asking for one by name may create it.
    partitions = admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics[topic].partitions
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def ends(isolation: IsolationLevel) -> list[int]:
        futures = admin.list_offsets(asked, isolation_level=isolation)
        return [futures[key].result(ANSWER_TIMEOUT_S).offset for key in asked]

    deadline = time.monotonic() + timeout_s
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        if time.monotonic() > deadline:
            raise SparkEosError(
                f"topic {topic}: a transaction is still open after {timeout_s:g} s",
                do="Commit or abort it; the broker aborts it after its producer's transaction.timeout.ms.",
            )
        time.sleep(LOOK_EVERY_S)
