"""Stands in for spark_eos.checker until that is there."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from spark_eos.testing import wait_for_markers


@dataclass
class Findings:
    anomalies: dict[str, int]


class Watch:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None: ...


def _read(bootstrap: str, topic: str, wait_s: float) -> dict[int, list[str]]:
    wait_for_markers(bootstrap, topic, timeout_s=wait_s)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: dict[int, list[str]] = defaultdict(list)
    ended, deadline = 0, time.monotonic() + wait_s
    while ended < len(partitions) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended += 1
        else:
            found[message.partition()].append(message.value().decode())
    consumer.close()
    return found


def check(bootstrap: str, *, inputs: Any, outputs: Any, group: str, watch: Any = None, wait_s: float = 90) -> Findings:
    del watch
    wanted = Counter(v for values in _read(bootstrap, inputs[0], wait_s).values() for v in values)
    anomalies: Counter[str] = Counter()
    counted = []
    for topic in outputs:
        found = _read(bootstrap, topic, wait_s)
        values = Counter(v for each in found.values() for v in each)
        counted.append(values)
        anomalies["lost"] += sum((wanted - values).values())
        anomalies["duplicated"] += sum((values - wanted).values())
        for each in found.values():
            last: dict[str, int] = {}
            for value in each:
                key, number = value.split(":")
                anomalies["out of order"] += int(number) != last.get(key, -1) + 1
                last[key] = int(number)
    anomalies["torn"] = sum((counted[0] - counted[1]).values()) + sum((counted[1] - counted[0]).values())
    del group
    return Findings({label: count for label, count in anomalies.items() if count})
