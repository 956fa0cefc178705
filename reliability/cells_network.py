"""Faults of the network: a request of a lane, or of the driver, is lost, late, doubled or cut off; one a batch.

So are kills of a worker that has asked for its commit and has no answer yet: only the network sees that moment.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cells_worker import every_batch
from fault_cells import Cell, RunResult, with_findings
from fault_points import HOLD, LaneFault
from pipeline import CLUSTER, Pipeline, Running, World
from proxy import Api, Armed, Effect, Proxy, proxied_kafka

DRIVER = "driver"
REQUEST_WITHIN_S = 30.0
"""A batch has made its requests by then, on a machine however busy."""

SHORT_DELAY_S, LONG_DELAY_S = (5.0, 9.0), (10.0, 30.0)
LONG_SHARE = 0.2
"""Of five delays one is long: 9.6 s in the mean."""

KINDS = {
    "drop": ((Effect.DROP_ANSWER,), "the answer lost"),
    "delay": ((Effect.DELAY,), "held back for 5 to 30 s, 9.6 s in the mean"),
    "duplicate": ((Effect.DUPLICATE,), "sent twice"),
    "reset": ((Effect.RESET, Effect.RESET_BEFORE), "the connection reset right after it, or before"),
}
"""Kind to its effects and its description."""

NAMES = {
    Api.PRODUCE: "Produce",
    Api.INIT_PRODUCER_ID: "InitProducerId",
    Api.TXN_OFFSET_COMMIT: "TxnOffsetCommit",
    Api.END_TXN: "EndTxn",
}
"""The requests that are hit, by Kafka's names."""

TIMEOUT_S = 30.0
"""transaction.timeout.ms: an answer counts as lost after 10 s, as by default. So of the delays that are longer, the
request has been sent again and the batch committed when the first one lands, in a later batch."""
UNANSWERED_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class NetworkFault:
    """What happens to one request.

    Args:
        api, effect, seconds: as of `Proxy.arm`.
        who: whose request: a lane's number, or DRIVER.
        kill: whether the lane's worker is SIGKILLed as soon as it happens.
    """

    api: Api
    effect: Effect
    seconds: float
    who: str
    kill: bool = False

    def __str__(self) -> str:
        late = f" {self.seconds:.1f} s" if self.effect is Effect.DELAY else ""
        whose = f"{'lane ' * (self.who != DRIVER)}{self.who}{', SIGKILLed' * self.kill}"
        return f"{self.effect.name}{late} of {NAMES[self.api]} of {whose}"


def planned(api: Api, kind: str, runs: int, rng: random.Random) -> list[NetworkFault]:
    """So many faults of one kind; the lanes and, where it makes such requests in a batch, the driver are hit."""
    effects = KINDS[kind][0]
    who = ["0", "1", DRIVER] if api in (Api.TXN_OFFSET_COMMIT, Api.END_TXN) else ["0", "1"]
    return [NetworkFault(api, effects[i % len(effects)], delay(rng), rng.choice(who)) for i in range(runs)]


def planned_kills(runs: int, rng: random.Random) -> list[NetworkFault]:
    """Of a worker whose EndTxn is still on its way, or was done, in turn."""
    effects = (Effect.DELAY, Effect.DROP_ANSWER)
    return [
        NetworkFault(Api.END_TXN, effects[i % 2], rng.uniform(0.2, 2), rng.choice("01"), kill=True) for i in range(runs)
    ]


def delay(rng: random.Random) -> float:
    """Seconds from 5 to 30, mostly short."""
    return rng.uniform(*(LONG_DELAY_S if rng.random() < LONG_SHARE else SHORT_DELAY_S))


def network_faults(folder: Path, name: str, faults: Sequence[NetworkFault], timeout_s: float) -> list[RunResult]:
    """One life of the job, on a broker of its own behind a proxy, through all of these faults.

    Args:
        folder: for what runs.
        name: of the pipeline.
        faults: one for each batch.
        timeout_s: transaction.timeout.ms of the sink, in seconds.
    """
    with proxied_kafka(CLUSTER) as (kafka, proxy):
        pipeline = World(kafka, folder).pipeline(name, timeout_s=timeout_s)
        pipeline.feed(1)
        noted = every_batch([LaneFault(lane, "commit", HOLD) for lane in range(pipeline.partitions)])
        plan = pipeline.plan(continuous=True, lane_faults=noted)
        with pipeline.watched() as watch, pipeline.running(plan) as running:
            running.drain()  # what a run does once at its beginning is over
            made = [(fault, *one_fault(pipeline, running, proxy, fault)) for fault in faults]
            running.wait(lambda: all(armed.over for _, armed, _ in made))
            pipeline.feed(1)  # what landed late would show in what comes after it
            running.drain()
            found = pipeline.check(watch)
        return with_findings([result(pipeline, *each) for each in made], found)


def one_fault(pipeline: Pipeline, running: Running, proxy: Proxy, fault: NetworkFault) -> tuple[Armed, int]:
    """One batch in which a fault is made; the fault, and the batch."""
    whose = f"{pipeline.name}-{fault.who}".encode()
    armed = proxy.arm(fault.api, fault.effect, seconds=fault.seconds, containing=whose)
    pipeline.feed(1)
    hit = running.wait(lambda: bool(armed.hits), REQUEST_WITHIN_S)
    batch = pipeline.checkpoint.last_planned
    if hit and fault.kill:
        os.kill(pipeline.marks.read(f"{batch}-{fault.who}")["pid"], signal.SIGKILL)
    running.wait(pipeline.all_done, pipeline.limit_s + fault.seconds + REQUEST_WITHIN_S)
    proxy.disarm()
    return armed, batch


def result(pipeline: Pipeline, fault: NetworkFault, armed: Armed, batch: int) -> RunResult:
    """Recovery is counted from the end of the fault."""
    done = pipeline.committed_at(batch)
    ended = armed.hits[0].ended if armed.over else None
    recovery_s = None if done is None or ended is None else max(0.0, done - ended)
    return RunResult(f"batch {batch}: {fault}", armed.over, recovery_s, pipeline.limit_s)


def cell(api: Api, kind: str, world: World, runs: int, seed: int) -> list[RunResult]:
    """Faults of one kind on one request."""
    faults = planned(api, kind, runs, random.Random(seed))
    return network_faults(world.folder, f"net-{kind}-{api.value}", faults, TIMEOUT_S)


def unanswered(world: World, runs: int, seed: int) -> list[RunResult]:
    """Kills of workers that wait for the answer to EndTxn."""
    faults = planned_kills(runs, random.Random(seed))
    return network_faults(world.folder, "kill-unanswered", faults, UNANSWERED_TIMEOUT_S)


CELLS = [
    Cell(
        "kill-unanswered", "worker SIGKILLed when EndTxn is sent, on its way or done, and not answered", 25, unanswered
    ),
    *(
        Cell(f"net-{kind}-{NAMES[api]}", f"{NAMES[api]}: {what}", 10, partial(cell, api, kind))
        for kind, (_, what) in KINDS.items()
        for api in NAMES
    ),
]
