"""A broker that is SIGKILLed and started again, or SIGSTOPped for a while, under load."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fault_cells import Cell, RunResult, with_findings
from pipeline import Pipeline, Running, World

LOOK_EVERY_S = 0.02
AHEAD = 6
"""Batches of input that wait, at least, when a fault comes."""
PAUSES = 10
LONGEST_S = 30.0

Outage = Callable[[World], float]
"""Does it, and returns the moment from which recovery is counted, seconds since 1970."""


def kill(world: World) -> float:
    """SIGKILL and restart; counted from the kill."""
    at = time.time()
    world.kafka.kill(0)
    world.kafka.restart(0)
    return at


def pause(seconds: float, world: World) -> float:
    """SIGSTOP and SIGCONT; counted from the latter."""
    broker = world.broker()
    broker.suspend()
    try:
        time.sleep(seconds)
    finally:
        broker.resume()
    return time.time()


def pauses(runs: int) -> list[Outage]:
    """Pauses of 1 to 30 s; the first ten are all different."""
    return [partial(pause, 1 + (LONGEST_S - 1) * (i % PAUSES) / (PAUSES - 1)) for i in range(runs)]


def outages(world: World, pipeline: Pipeline, planned: Sequence[Outage], seed: int) -> list[RunResult]:
    """One outage after the other, each at a random moment of a batch, and the next when that batch is done."""
    rng = random.Random(seed)
    pipeline.feed(AHEAD)
    with pipeline.watched() as watch, pipeline.running(pipeline.plan(continuous=True)) as running:
        running.wait(lambda: pipeline.checkpoint.last_done > 0)
        hits = [outage(world, pipeline, running, each, rng.uniform(0, 0.8)) for each in planned]
        running.drain()
        found = pipeline.check(watch)
    return with_findings([hit.result(pipeline) for hit in hits], found)


@dataclass(frozen=True)
class Hit:
    """The batch that was open when an outage began, and from when on its recovery counts."""

    batch: int
    at: float
    what: str

    def result(self, pipeline: Pipeline) -> RunResult:
        done = pipeline.committed_at(self.batch)
        recovery_s = None if done is None else max(0.0, done - self.at)
        return RunResult(f"batch {self.batch}: {self.what}", True, recovery_s, pipeline.limit_s)


def outage(world: World, pipeline: Pipeline, running: Running, do: Outage, after_s: float) -> Hit:
    """One of them.

    Args:
        world, pipeline, running: where.
        do: the outage.
        after_s: how long after the beginning of a batch; of the next one, if that is done by then.
    """
    pipeline.feed(AHEAD)
    running.wait(lambda: pipeline.checkpoint.open_batch is not None)
    time.sleep(after_s)
    running.wait(lambda: pipeline.checkpoint.open_batch is not None)
    batch, before = pipeline.checkpoint.last_planned, running.restarts
    at = do(world)
    running.wait(lambda: pipeline.committed_at(batch) is not None, pipeline.limit_s)
    return Hit(batch, at, f"{after_s:.2f} s after a batch began, {running.restarts - before} restarts of the job")


def kills(world: World, runs: int, seed: int) -> list[RunResult]:
    """A cell of kills."""
    return outages(world, world.pipeline("broker-kill"), [kill] * runs, seed)


def stops(world: World, runs: int, seed: int) -> list[RunResult]:
    """A cell of pauses."""
    return outages(world, world.pipeline("broker-pause"), pauses(runs), seed)


CELLS = [
    Cell("broker-kill", "broker SIGKILLed and started again, under load", 50, kills),
    Cell("broker-pause", "broker SIGSTOPped for 1 to 30 s, under load; recovery from SIGCONT", PAUSES, stops),
]
