"""Faults of a lane's worker: SIGKILL at every point, SIGSTOP past the transaction's timeout, two attempts at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from fault_cells import Cell, RunResult, marked, with_findings
from fault_points import BEGUN, COMMITTING, CUT, EXECUTOR, HALF, KILL, STEPS, STOP, LaneFault
from pipeline import Pipeline, World

POINTS = {
    "kill-before-init": ("fence", "worker SIGKILLed before init_transactions"),
    "kill-after-init": ("check", "worker SIGKILLed after init_transactions"),
    "kill-after-begin": (BEGUN, "worker SIGKILLed after begin_transaction"),
    "kill-mid-produce": (HALF, "worker SIGKILLed when a part of the lane's rows is in the log"),
    "kill-after-flush": ("offsets", "worker SIGKILLed after the flush"),
    "kill-after-offsets": ("commit", "worker SIGKILLed after the offsets, before commit_transaction"),
    "kill-in-commit": (COMMITTING, "worker SIGKILLed 0 to 5 ms into commit_transaction"),
    "kill-before-report": ("report", "worker SIGKILLed after the commit was acknowledged, before Spark knows"),
}
"""Cell to point and description."""

FIRST_BATCH = 1
"""Batch 0 of a new query has no rows (see `spark_eos.spark.source`)."""
BATCHES = 500
"""More than any cell has."""

LaneFaults = dict[int, list[LaneFault]]
EVIDENCE = {KILL: (), EXECUTOR: (), STOP: (".resumed",), CUT: (".second-peek", ".resumed")}
"""Marks that there must be beside the fault's own."""
ANYWHERE = (*STEPS, BEGUN, HALF)
STOP_TIMEOUT_S = 3
ALL_COMPUTED = {"stage.rows": "disk"}
"""An attempt that is cut off from Spark has its rows, and can go on from any step."""
NO_DAEMON = {"spark.python.use.daemon": "false"}
"""A worker whose task has failed is ended with SIGTERM then, which it can ignore."""
CLUSTER = {"spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1"}


def one_a_batch(faults: Sequence[LaneFault]) -> LaneFaults:
    """Each of these faults in a batch of its own."""
    return {FIRST_BATCH + i: [fault] for i, fault in enumerate(faults)}


def every_batch(faults: Sequence[LaneFault]) -> LaneFaults:
    """These faults in each batch that a job may come to."""
    return {batch: [*faults] for batch in range(BATCHES)}


def run_faults(pipeline: Pipeline, faults: LaneFaults, **settings: Any) -> list[RunResult]:
    """One life of the job through all of these faults; settings as of `JobPlan`."""
    pipeline.feed(max(faults))
    with pipeline.watched() as watch:
        plan = pipeline.plan(lane_faults=faults, **settings)
        pipeline.run(plan)
        found = pipeline.check(watch)
    planned = [(batch, fault) for batch, each in faults.items() for fault in each]
    results = [
        marked(pipeline, f"{batch}-{fault.lane}", batch, text(fault), EVIDENCE[fault.action])
        for batch, fault in planned
    ]
    return with_findings(results, found)


def text(fault: LaneFault) -> str:
    return f"{fault.action} at {fault.point}, lane {fault.lane}"


def kill_faults(points: Sequence[str], seed: int, lanes: int = 2, action: str = KILL) -> list[LaneFault]:
    """A kill at each of these points, in one of the lanes."""
    rng = random.Random(seed)
    return [LaneFault(rng.randrange(lanes), point, action) for point in points]


def any_points(runs: int, seed: int) -> list[str]:
    """So many points, none twice before all came once."""
    rng, found = random.Random(seed), []
    while len(found) < runs:
        found += rng.sample(ANYWHERE, len(ANYWHERE))
    return found[:runs]


def stop_faults(runs: int, seed: int, timeout_s: float) -> list[LaneFault]:
    """Stops of 0.3 to 1.3 s longer than a transaction may be open, at random points, in the two lanes in turn."""
    rng, points = random.Random(seed), any_points(runs, seed)
    return [LaneFault(i % 2, point, STOP, timeout_s + rng.uniform(0.3, 1.3)) for i, point in enumerate(points)]


def cut_faults(runs: int, seed: int) -> list[LaneFault]:
    """The first attempt goes on from any step, when the second comes to any, or up to 0.2 s later."""
    rng = random.Random(seed)
    return [
        LaneFault(rng.randrange(2), rng.choice(STEPS), CUT, rng.choice((0, rng.uniform(0, 0.2))), rng.choice(STEPS))
        for _ in range(runs)
    ]


def kills(point: str, world: World, runs: int, seed: int) -> list[RunResult]:
    """A cell of kills at one point."""
    pipeline = world.pipeline(f"kill-{point}")
    return run_faults(pipeline, one_a_batch(kill_faults([point] * runs, seed)))


def format_kills(world: World, runs: int, seed: int) -> list[RunResult]:
    """Kills at any point of the other way to write."""
    points = kill_faults(any_points(runs, seed), seed)
    return run_faults(world.pipeline("format"), one_a_batch(points), way="format")


def stops(world: World, runs: int, seed: int) -> list[RunResult]:
    """Two in a batch, one in each lane."""
    pipeline = world.pipeline("stop", timeout_s=STOP_TIMEOUT_S)
    faults = stop_faults(runs, seed, STOP_TIMEOUT_S)
    return run_faults(pipeline, {FIRST_BATCH + i: faults[2 * i : 2 * i + 2] for i in range((runs + 1) // 2)})


def cuts(world: World, runs: int, seed: int) -> list[RunResult]:
    """Two attempts at once, in each batch."""
    pipeline = world.pipeline("cut")
    return run_faults(pipeline, one_a_batch(cut_faults(runs, seed)), sink=ALL_COMPUTED, conf=NO_DAEMON)


def executors(world: World, runs: int, seed: int) -> list[RunResult]:
    """An executor in each batch; the cluster starts another."""
    faults = one_a_batch(kill_faults(any_points(runs, seed), seed, action=EXECUTOR))
    return run_faults(world.pipeline("executor"), faults, master="local-cluster[2,1,512]", conf=CLUSTER)


CELLS = [
    *(Cell(name, what, 25, partial(kills, point)) for name, (point, what) in POINTS.items()),
    Cell("kill-format", "worker SIGKILLed at any point, rows written by the format", 25, format_kills),
    Cell("executor", "executor SIGKILLed with its workers, at any point of a lane", 25, executors),
    Cell("stop", "worker SIGSTOPped past the transaction's timeout, then SIGCONT, at any point", 50, stops),
    Cell("two-attempts", "two attempts of a task at once: the first one goes on when it was given up", 50, cuts),
]
