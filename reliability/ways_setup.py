"""How a query is set up when it is started, and what each change makes of that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ways_axes import AQE, CODE, CORES, GROUP, OLDER, QUERY, SHUFFLE, Combination
from ways_life import CONNECT, WRITE
from ways_stateful import PIPELINES
from ways_workers import CONNECT_MASTER

MASTER, MORE_CORES = "local[2]", "local[4]"
AQE_CONF = "spark.sql.adaptive.streaming.stateless.enabled"
SHUFFLE_CONF = "spark.sql.shuffle.partitions"
QUICK = {SHUFFLE_CONF: "3"}
SMALL = {
    # So that a few rows are as many lanes as large data would be.
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.files.openCostInBytes": "1",
}
FEWER = {"8": "5", "3": "2"}
"""Partitions of a shuffle, and what they are changed to."""
TIMEOUT_MS = "8000"
"""Of transactions: what a task that was killed has left open does not hold readers back for long."""


@dataclass(frozen=True)
class Setup:
    """What stays the same from start to start, if nobody changes it."""

    master: str
    query_id: str
    checkpoint: Path
    conf: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    version: int = 1

    def but(self, **changes: Any) -> Setup:
        return replace(self, **changes)


def first_setup(combination: Combination, query_id: str, folder: Path) -> Setup:
    """Of the first start."""
    conf = QUICK | SMALL | PIPELINES[combination.pipeline].conf
    conf |= {} if combination.aqe else {AQE_CONF: "false"}
    options = {"kafka.transaction.timeout.ms": TIMEOUT_MS}
    shared = combination.change == QUERY or (combination.change == GROUP and combination.way == WRITE)
    options |= {"group.id": f"{query_id}-group"} if shared else {}
    master = CONNECT_MASTER if combination.way.startswith(CONNECT) else MASTER
    return Setup(master, query_id, folder / "checkpoint", conf, options)


def _other_shuffle(setup: Setup) -> Setup:
    return setup.but(conf=setup.conf | {SHUFFLE_CONF: FEWER[setup.conf[SHUFFLE_CONF]]})


def _other_aqe(setup: Setup) -> Setup:
    on = setup.conf.get(AQE_CONF) == "false"
    return setup.but(conf=setup.conf | {AQE_CONF: str(on).lower()})


def _backup(setup: Setup) -> Path:
    return setup.checkpoint.with_name("older")


def back_up(setup: Setup) -> None:
    """Copy the checkpoint as it is now."""
    if setup.checkpoint.exists():
        shutil.copytree(setup.checkpoint, _backup(setup))


CHANGED: dict[str, Callable[[Setup], Setup]] = {
    CORES: lambda setup: setup.but(master=MORE_CORES),
    SHUFFLE: _other_shuffle,
    AQE: _other_aqe,
    CODE: lambda setup: setup.but(version=2),
    OLDER: lambda setup: setup.but(checkpoint=_backup(setup)),
    GROUP: lambda setup: setup.but(options=setup.options | {"group.id": f"{setup.query_id}-other"}),
    QUERY: lambda setup: setup.but(query_id=f"{setup.query_id}-new"),
}
"""What the changes make of a setup; the others leave it as it is."""
AGAIN = {CORES, SHUFFLE, AQE, CODE}
"""Changes that can be made once the batch is through that stood in their way."""
