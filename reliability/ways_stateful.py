"""Pipelines with state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from ways_pipelines import KEYS, STATELESS, USES, Chunks, Frames, Pipeline, out

SECONDS = 10
"""Between the event times of two numbers."""
WINDOW_S = 2 * SECONDS
DELAY_S = 5
LATE = 4
"""Of the second topic, each number that this divides comes with the next chunk."""


def _timed(df: DataFrame) -> DataFrame:
    return df.withColumn("at", F.timestamp_seconds(F.col("number") * SECONDS))


def _windows(frames: Frames) -> DataFrame:
    timed = _timed(frames.numbers()).withWatermark("at", f"{DELAY_S} seconds")
    counts = timed.groupBy(F.window("at", f"{WINDOW_S} seconds")).count()
    return out(counts.select(F.col("window.start").cast("long").alias("start"), "count"), "start || ':' || count")


def _windows_outputs(chunks: Chunks) -> list[list[str]]:
    """A window is told once the largest event time is so much beyond its end."""
    found, told = [], 0
    for chunk in chunks:
        watermark = max(chunk) * SECONDS - DELAY_S
        ended = max(watermark // WINDOW_S, told)
        found.append([f"{window * WINDOW_S}:{WINDOW_S // SECONDS}" for window in range(told, ended)])
        told = ended
    return found


def _counts(frames: Frames) -> DataFrame:
    by_key = frames.numbers().groupBy(F.expr(f"substring('{KEYS}', number % 5 + 1, 1)").alias("key"))
    return out(by_key.count(), "key || ':' || count")


def _counts_outputs(chunks: Chunks) -> list[list[str]]:
    found: list[list[str]] = []
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update(KEYS[number % 5] for number in chunk)
        found.append([f"{key}:{count}" for key, count in counts.items()])
    return found


def _distinct(frames: Frames) -> DataFrame:
    """Two numbers each are doubles; some of them come in different batches."""
    return out(
        frames.numbers().selectExpr("(number + 1) div 2 as half").dropDuplicates(["half"]), "cast(half as string)"
    )


def _distinct_outputs(chunks: Chunks) -> list[list[str]]:
    seen: set[int] = set()
    found = []
    for chunk in chunks:
        new = {(number + 1) // 2 for number in chunk} - seen
        seen |= new
        found.append([str(half) for half in sorted(new)])
    return found


def _pairs(frames: Frames) -> DataFrame:
    left = frames.numbers().select("number")
    right = frames.second().select(F.col("number").alias("other"))
    return out(left.join(right, F.expr("number = other")), "number || '=' || other")


def late(number: int) -> bool:
    """Whether the second topic has a number with the next chunk only."""
    return number % LATE == 0


def _pairs_outputs(chunks: Chunks) -> list[list[str]]:
    waiting: list[int] = []
    found = []
    for chunk in chunks:
        found.append([f"{number}={number}" for number in [*waiting, *(n for n in chunk if not late(n))]])
        waiting = [number for number in chunk if late(number)]
    return found


def _summed(key: tuple[str], pieces: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    (before,) = state.get if state.exists else (0,)
    total = before + sum(int(piece["number"].sum()) for piece in pieces)
    state.update((total,))
    yield pd.DataFrame({"out": [f"{key[0]}:{total}"]})


def _sums(frames: Frames) -> DataFrame:
    keyed = frames.numbers().select("number", F.expr(f"substring('{KEYS}', number % 5 + 1, 1)").alias("key"))
    return keyed.groupBy("key").applyInPandasWithState(_summed, "out string", "total long", "append", "NoTimeout")


def _sums_outputs(chunks: Chunks) -> list[list[str]]:
    totals: Counter[str] = Counter()
    found = []
    for chunk in chunks:
        for number in chunk:
            totals[KEYS[number % 5]] += number
        found.append([f"{key}:{totals[key]}" for key in sorted({KEYS[number % 5] for number in chunk})])
    return found


STATEFUL: dict[str, Pipeline] = {
    "window-append": Pipeline(_windows, _windows_outputs, stateful=True, shuffles=True),
    "window-complete": Pipeline(
        _counts, _counts_outputs, mode="complete", stateful=True, shuffles=True, by_batch=True, connect=True
    ),
    "drop-duplicates": Pipeline(_distinct, _distinct_outputs, stateful=True, shuffles=True),
    "join-streams": Pipeline(_pairs, _pairs_outputs, stateful=True, shuffles=True),
    "state-in-pandas": Pipeline(_sums, _sums_outputs, stateful=True, shuffles=True, by_batch=True),
}

PIPELINES: dict[str, Pipeline] = STATELESS | STATEFUL | USES
"""All there are, by name."""
