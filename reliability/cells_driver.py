"""SIGKILL of the driver and its JVM, and a restart on the same checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cells_worker import FIRST_BATCH
from fault_cells import Cell, RunResult, marked, with_findings
from fault_points import PLANNED, SEALED, WRITTEN
from pipeline import World

POINTS = {
    "driver-planned": (PLANNED, "driver SIGKILLed after the offset log, before the batch is opened"),
    "driver-written": (WRITTEN, "driver SIGKILLed when all lanes are committed and the batch is not sealed"),
    "driver-sealed": (SEALED, "driver SIGKILLed after the seal, before Spark's commit log"),
}
"""Cell to point and description."""


def kills(points: Sequence[str], world: World) -> list[RunResult]:
    """One life of the job for each point, and a last one: a life does again what the one before had left."""
    pipeline = world.pipeline("driver")
    plan = pipeline.plan(driver_faults=dict(enumerate(points, FIRST_BATCH)))
    pipeline.feed(len(points))
    with pipeline.watched() as watch:
        while pipeline.run(plan):
            pass
        found = pipeline.check(watch)
    results = [marked(pipeline, f"{batch}-driver", batch, point) for batch, point in plan.driver_faults.items()]
    return with_findings(results, found)


def cell(point: str, world: World, runs: int, seed: int) -> list[RunResult]:  # noqa: ARG001 (nothing is random here)
    """A cell of kills at one point."""
    return kills([point] * runs, world)


CELLS = [Cell(name, what, 25, partial(cell, point)) for name, (point, what) in POINTS.items()]
