"""The axes of the ways of use, and how a seed draws a combination of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from ways_faults import BEFORE, BETWEEN, POINTS, STEPS
from ways_life import CONNECT, FOREACH, FORMAT, WAYS, WRITE
from ways_pipelines import KAFKA, RATE, TABLE
from ways_stateful import PIPELINES

NOTHING, CORES, SHUFFLE, AQE, PARTITIONS, CODE, OLDER, GROUP, QUERY = CHANGES = (
    "nothing",
    "cores",
    "shuffle-partitions",
    "aqe",
    "source-partitions",
    "code",
    "older-checkpoint",
    "group-id",
    "query-id",
)
"""What is different when the query is started again."""
ROWS = (6, 9, 12)
WAY_WEIGHTS = {FOREACH: 9, FORMAT: 9, WRITE: 2, CONNECT + FOREACH: 1, CONNECT + FORMAT: 1}
"""How often a way is drawn."""


@dataclass(frozen=True)
class Combination:
    """One way of use, and what happens to it.

    Args:
        seed: that it was drawn from; -1 if it was chosen by hand.
        pipeline, way, change: of PIPELINES, WAYS, CHANGES.
        hit: where the batch is hit, of POINTS.
        step: before which lanes fail, where they do.
        rows: of a chunk.
        first: whether it is the query's first batch of all that is hit.
        early: whether the next chunk is fed before the restart, and not after it.
        aqe: whether adaptive execution is as it is by default, at first; else it is off in streams.
        positions: whether rows carry their source positions.
        other_sink: of two sinks, whether the second one is hit.
        second_way: where an error names two ways on, take the second.
    """

    pipeline: str
    way: str = FOREACH
    change: str = NOTHING
    hit: str = BETWEEN
    step: str = "write"
    rows: int = 6
    first: bool = False
    early: bool = False
    aqe: bool = True
    positions: bool = False
    other_sink: bool = False
    second_way: bool = False
    seed: int = -1

    @property
    def name(self) -> str:
        """What it is in one word: what `--only` looks into."""
        return f"{self.pipeline}/{self.way}/{self.change}/{self.hit}"

    @property
    def details(self) -> str:
        """The smaller choices."""
        flags = ("first", "early", "positions", "other_sink", "second_way")
        told = [flag.replace("_", "-") for flag in flags if getattr(self, flag)]
        told += [] if self.aqe else ["no-aqe"]
        told += [f"at-{self.step}"] if self.hit in (BEFORE, BETWEEN) else []
        return " ".join([f"{self.rows} rows", *told])

    @property
    def cut_anew(self) -> bool:
        """Whether an older copy of the checkpoint is started with smaller batches."""
        return self.change == OLDER and self.early and not PIPELINES[self.pipeline].by_batch

    @property
    def possible(self) -> bool:
        """Whether these choices go together."""
        pipeline = PIPELINES[self.pipeline]
        connect = self.way.startswith(CONNECT)
        wrong = (
            connect and (not pipeline.connect or self.change == CORES),
            pipeline.use != "one" and self.way != FOREACH,
            self.way == WRITE and (not pipeline.writes or self.early or self.positions),
            self.way == WRITE and self.change in (PARTITIONS, OLDER, QUERY),
            pipeline.stateful and self.change == AQE,
            self.change in (SHUFFLE, AQE) and not pipeline.shuffles,
            self.change == PARTITIONS and pipeline.reads != KAFKA,
            # Batches that nothing of is known are cut anew: what comes of them is not known either.
            self.change == OLDER and self.early and self.hit == BEFORE and pipeline.by_batch,
            self.early and pipeline.reads == RATE,
            self.positions and not pipeline.positions,
            self.other_sink and self.pipeline != "two-sinks",
            self.first and (self.change == OLDER or self.pipeline in ("late", "left-out")),
            # The function leaves out what was hit: there is nothing to be seen.
            self.pipeline == "swallow" and self.change == OLDER,
        )
        return not any(wrong)


def drawn(seed: int, *, tables: bool = False) -> Combination:
    """The combination of a seed; the same one each time."""
    rng = random.Random(seed)
    names = [name for name, pipeline in PIPELINES.items() if tables or pipeline.reads != TABLE]
    while True:
        found = replace(_any(rng, names), seed=seed)
        if found.possible:
            return found


def _any(rng: random.Random, pipelines: list[str]) -> Combination:
    pipeline = rng.choice(pipelines)
    (way,) = rng.choices(WAYS, [WAY_WEIGHTS[way] for way in WAYS])
    positions = rng.random() < 0.6 and PIPELINES[pipeline].positions
    flags: dict[str, Any] = {name: rng.random() < 0.5 for name in ("early", "aqe", "second_way", "other_sink")}
    (hit,) = rng.choices(POINTS, [1, 3, 1, 1])
    return Combination(
        pipeline=pipeline,
        way=way if PIPELINES[pipeline].use == "one" else FOREACH,
        change=rng.choice(CHANGES),
        hit=hit,
        step=rng.choices([*STEPS], [*STEPS.values()])[0],
        rows=rng.choice(ROWS),
        positions=positions,
        first=rng.random() < 0.15,
        **flags | {"other_sink": flags["other_sink"] and pipeline == "two-sinks"},
    )
