"""Faults of a lane's worker: SIGKILL at every point, SIGSTOP past the transaction's timeout, two attempts at once."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fault_cells import Cell, RunResult, results_of
from fault_points import BEGUN, COMMITTING, HALF, UNANSWERED, LaneFault
from pipeline import Pipeline, World

POINTS = {
    "kill-before-init": ("fence", "worker SIGKILLed before init_transactions"),
    "kill-after-init": ("check", "worker SIGKILLed after init_transactions"),
    "kill-after-begin": (BEGUN, "worker SIGKILLed after begin_transaction"),
    "kill-mid-produce": (HALF, "worker SIGKILLed when a part of the lane's rows is in the log"),
    "kill-after-flush": ("offsets", "worker SIGKILLed after the flush"),
    "kill-after-offsets": ("commit", "worker SIGKILLed after the offsets, before commit_transaction"),
    "kill-in-commit": (COMMITTING, "worker SIGKILLed 0 to 5 ms into commit_transaction"),
    "kill-unanswered": (UNANSWERED, "worker SIGKILLed when EndTxn is sent and a stopped broker has not read it"),
    "kill-before-report": ("report", "worker SIGKILLed after the commit was acknowledged, before Spark knows"),
}
"""Cell to point and description."""

FIRST_BATCH = 1
"""Batch 0 of a new query has no rows (see `spark_eos.spark.source`)."""

LaneFaults = dict[int, list[LaneFault]]


def one_a_batch(points: Sequence[str], seed: int, lanes: int) -> LaneFaults:
    """A kill at each of these points, in one lane of a batch of its own."""
    rng = random.Random(seed)
    return {FIRST_BATCH + i: [LaneFault(rng.randrange(lanes), point)] for i, point in enumerate(points)}


def run_faults(world: World, pipeline: Pipeline, faults: LaneFaults, **settings: Any) -> list[RunResult]:
    """One life of the job through all of these faults; settings as of `JobPlan`."""
    pipeline.feed(max(faults))
    with pipeline.watched() as watch:
        plan = pipeline.plan(lane_faults=faults, broker_pid=world.broker().pid, **settings)
        pipeline.run(plan)
        found = pipeline.anomalies(watch)
    points = {f"{batch}-{fault.lane}": (batch, fault) for batch, each in faults.items() for fault in each}
    return results_of(pipeline, {name: batch for name, (batch, _) in points.items()}, found, partial(_text, points))


def _text(points: Mapping[str, tuple[int, LaneFault]], name: str) -> str:
    batch, fault = points[name]
    return f"batch {batch}, lane {fault.lane}: {fault.action} at {fault.point}"


def kills(point: str, way: str, world: World, runs: int, seed: int) -> list[RunResult]:
    """A cell of kills at one point."""
    pipeline = world.pipeline(f"kill-{point}")
    return run_faults(world, pipeline, one_a_batch([point] * runs, seed, pipeline.partitions), way=way)


CELLS = [Cell(name, what, 25, partial(kills, point, "foreachBatch")) for name, (point, what) in POINTS.items()]
