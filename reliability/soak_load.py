"""A steady load on the input topic, in the shape that the checker knows."""

from __future__ import annotations

import itertools
import threading
import time

from confluent_kafka import KafkaException, Producer

KEYS = 1_000
TICK_S = 0.1
FLUSH_S = 60


class Load:
    """Sends `k<i>` → `k<i>:<sequence>`, round and round the keys, until it is left. A context manager.

    Args:
        bootstrap: the broker.
        topic: of the records; a key's partition is its number modulo `partitions`.
        partitions: of the topic.
        rate: records per second.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._records = ((key, sequence) for sequence in itertools.count() for key in range(KEYS))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.sent = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Raises KafkaException when not all of it was taken by the broker."""
        self._ended.set()
        self._thread.join()
        if self._producer.flush(FLUSH_S):
            raise KafkaException(f"{len(self._producer)} records of the load were not delivered")

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(TICK_S):
            for key, sequence in itertools.islice(self._records, self._due(began)):
                value = f"k{key}:{sequence}"
                self._producer.produce(self._topic, value, f"k{key}", key % self._partitions)
                self.sent += 1
            self._producer.poll(0)

    def _due(self, began: float) -> int:
        return max(0, int((time.monotonic() - began) * self._rate) - self.sent)
