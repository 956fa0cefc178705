"""What users' functions do with a micro-batch: one sink, two, none, or one whose errors they swallow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from ways_faults import FaultySink
from ways_life import Life

from spark_eos import KafkaSink

Function = Callable[[DataFrame, int], None]


def sink_of(life: Life, suffix: str = "") -> Function:
    """A sink whose query id ends so; with the fault if it is its own."""
    if life.fault and life.fault.sink == suffix:
        return FaultySink(life.sink(suffix), life.fault)
    return KafkaSink(life.sink(suffix))


def _part(df: DataFrame, name: str) -> DataFrame:
    return df.withColumn("value", F.concat("value", F.lit(f"-{name}")))


def _one(life: Life) -> Function:
    return sink_of(life)


def _both(first: Function, other: Function) -> Function:
    def write(df: DataFrame, batch: int) -> None:
        first(_part(df, "a"), batch)
        other(_part(df, "b"), batch)

    return write


def _two_sinks(life: Life) -> Function:
    return _both(sink_of(life), sink_of(life, "-b"))


def _two_sinks_one_id(life: Life) -> Function:
    return _both(sink_of(life), sink_of(life, "-b" if life.own_ids else ""))


def _sink_twice(life: Life) -> Function:
    one = sink_of(life)
    return _both(one, sink_of(life, "-b") if life.own_ids else one)


def _same_twice(life: Life) -> Function:
    sink = sink_of(life)

    def write(df: DataFrame, batch: int) -> None:
        sink(df, batch)
        sink(df, batch)

    return write


def _if_called(life: Life) -> Function:
    """It leaves batches out on purpose."""
    sink = sink_of(life)

    def write(df: DataFrame, batch: int) -> None:
        if life.called:
            sink(df, batch)

    return write


def _swallowing(life: Life) -> Function:
    sink = sink_of(life)
    if life.lets_through:
        return sink

    def write(df: DataFrame, batch: int) -> None:
        with suppress(Exception):
            sink(df, batch)

    return write


USES: dict[str, Callable[[Life], Function]] = {
    "one": _one,
    "two-sinks": _two_sinks,
    "two-sinks-one-id": _two_sinks_one_id,
    "sink-twice": _sink_twice,
    "same-twice": _same_twice,
    "late": _if_called,
    "left-out": _if_called,
    "swallow": _swallowing,
}
"""What makes the function for `foreachBatch`, by the pipeline's `use`."""
