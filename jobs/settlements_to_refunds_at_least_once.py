"""The settlements → refunds job in the usual way, to compare with: at least once.

The same source, rules and settings as settlements_to_refunds.py. Only the writing differs: each task has a plain
idempotent producer, every delivery is waited for and looked at, and when anything fails Spark runs the batch again.
Nothing is lost. But what the failed try had written stays, visible to every reader, and is written a second time:
the producer's idempotence covers its own retries, not another producer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from job_options import job_app
from job_runner import BatchWriter, streaming
from pyspark.sql import DataFrame, Row
from settlements_job import RefundsSettings, SettlementsJob


def at_least_once(settings: RefundsSettings) -> BatchWriter:
    """Writes each partition of a batch with a producer of its own."""
    client = settings.client
    producer = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random", "linger.ms": 5}

    def write(df: DataFrame, _batch_id: int) -> None:
        df.select("key", "value", "topic", "headers").foreachPartition(lambda rows: send(rows, client | producer))

    return write


def send(rows: Iterable[Row], client: dict[str, Any]) -> None:
    """Write rows and wait until every one is acknowledged.

    Raises:
        KafkaException: the first that was not; Spark then runs the task, or the batch, again.
    """
    # Not at the top: this function travels to the tasks by value, and the client's classes do not.
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415

    producer = Producer(client)
    failed: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for row in rows:
        headers = [(header.key, bytes(header.value)) for header in row.headers or ()]
        _produce(producer, row, headers, delivered)
    producer.flush()
    if failed:
        raise KafkaException(failed[0])


def _produce(producer: Any, row: Row, headers: list[tuple[str, bytes]], delivered: Any) -> None:
    key, value = (None if part is None else bytes(part) for part in (row.key, row.value))
    while True:
        try:
            producer.produce(row.topic, value, key, headers=headers, on_delivery=delivered)
            producer.poll(0)
            return
        except BufferError:  # the client's queue is full: let it send
            producer.poll(0.1)


app = job_app(
    RefundsSettings,
    "Write a refund and its audit row for each settlement that calls for one, at least once.",
    streaming(lambda settings: SettlementsJob(settings, at_least_once)),
)

if __name__ == "__main__":
    app()
