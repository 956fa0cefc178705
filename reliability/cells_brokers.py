"""Three brokers, of which one is killed that matters to the batch under way, or all are restarted in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cells_broker import Outage, outages
from cells_worker import every_batch
from confluent_kafka.admin import AdminClient
from fault_cells import Cell, RunResult, with_findings
from fault_points import HOLD, LaneFault
from pipeline import Pipeline, Running, World

BROKERS = 3
COMMIT_WITHIN_S = 30.0
TIMEOUT_S = 30.0
"""transaction.timeout.ms: a transaction, of a lane or the driver, outlasts a fail-over. It takes 4 s on a quiet
machine, and took more than 10 s on one at a load of 20: then the driver's commit is fenced by its timeout, and the
query ends."""

Leader = Callable[[World], int]
"""Which broker matters now."""


def java_hash(text: str) -> int:
    """`String.hashCode` of Java."""
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def leader_of(world: World, topic: str, partition: int) -> int:
    """The broker that leads a partition."""
    metadata = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers}).list_topics(timeout=10)
    return metadata.topics[topic].partitions[partition].leader


def coordinating(world: World, topic: str, identity: str) -> int:
    """The partition of an internal topic that a transactional.id or a group belongs to: Kafka takes its hash for it."""
    metadata = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers}).list_topics(timeout=10)
    return abs(java_hash(identity)) % len(metadata.topics[topic].partitions)


def kill(leader: Leader, world: World) -> float:
    """SIGKILL of the broker that matters, and restart; counted from the kill."""
    broker = leader(world)
    at = time.time()
    world.kafka.kill(broker)
    world.kafka.restart(broker)
    return at


def rolling_restart(world: World) -> float:
    """All three in turn, in an orderly way; counted from the end."""
    for broker in range(BROKERS):
        world.kafka.stop_broker(broker)
        world.kafka.restart(broker)
    return time.time()


def group_coordinator(pipeline: Pipeline, world: World) -> int:
    """The broker that keeps the committed offsets of the pipeline's group."""
    topic = "__consumer_offsets"
    return leader_of(world, topic, coordinating(world, topic, pipeline.name))


def output_leader(pipeline: Pipeline, partition: int, world: World) -> int:
    """The broker that leads a partition of the first output."""
    return leader_of(world, pipeline.outputs[0], partition)


def group_kill(pipeline: Pipeline) -> Outage:
    """The group coordinator is killed."""
    return partial(kill, partial(group_coordinator, pipeline))


def output_kill(pipeline: Pipeline, partition: int) -> Outage:
    """The leader of a partition of the first output is killed."""
    return partial(kill, partial(output_leader, pipeline, partition))


def group_kills(world: World, runs: int, seed: int) -> list[RunResult]:
    """Cell: the group coordinator."""
    pipeline = world.pipeline("group-coordinator", timeout_s=TIMEOUT_S)
    return outages(world, pipeline, [group_kill(pipeline)] * runs, seed)


def output_kills(world: World, runs: int, seed: int) -> list[RunResult]:
    """Cell: the leader of one output partition or the other."""
    pipeline = world.pipeline("output-leader", timeout_s=TIMEOUT_S)
    return outages(world, pipeline, [output_kill(pipeline, i % pipeline.partitions) for i in range(runs)], seed)


def restarts(world: World, runs: int, seed: int) -> list[RunResult]:
    """Cell: rolling restarts."""
    planned: Sequence[Outage] = [rolling_restart] * runs
    return outages(world, world.pipeline("rolling-restart", timeout_s=TIMEOUT_S), planned, seed)


def commit_kills(world: World, runs: int, seed: int) -> list[RunResult]:
    """Cell: the transaction coordinator of a lane, right after it has taken the lane's EndTxn."""
    pipeline = world.pipeline("txn-coordinator", timeout_s=TIMEOUT_S)
    rng = random.Random(seed)
    lanes = [rng.randrange(pipeline.partitions) for _ in range(runs)]
    every = every_batch([LaneFault(lane, "commit", HOLD) for lane in range(pipeline.partitions)])
    pipeline.feed(1)
    with pipeline.watched() as watch, pipeline.running(pipeline.plan(continuous=True, lane_faults=every)) as running:
        running.drain()
        results = [commit_kill(world, pipeline, running, lane) for lane in lanes]
        running.drain()
        found = pipeline.check(watch)
    return with_findings(results, found)


def commit_kill(world: World, pipeline: Pipeline, running: Running, lane: int) -> RunResult:
    """One of them: the broker is killed when its log of transactions grows by the decision to commit.

    The lane waits before its commit until the harness has looked at that log.
    """
    topic = "__transaction_state"
    partition = coordinating(world, topic, f"{pipeline.name}-{lane}")
    coordinator = leader_of(world, topic, partition)
    log = data_folder(world, coordinator) / f"{topic}-{partition}"
    first = pipeline.checkpoint.last_planned + 1
    pipeline.marks.write(f"{HOLD}-{lane}")
    pipeline.feed(1)
    batches = [f"{batch}-{lane}" for batch in range(first, first + 5)]
    held = running.wait(lambda: any(map(pipeline.marks.read, batches)), COMMIT_WITHIN_S)
    before = size(log)
    pipeline.marks.remove(f"{HOLD}-{lane}")
    hit = grows(log, before, COMMIT_WITHIN_S) and held
    world.broker(coordinator).kill()
    at = time.time()
    batch = pipeline.checkpoint.last_planned
    world.kafka.kill(coordinator)  # so that the cluster knows
    world.kafka.restart(coordinator)
    running.wait(pipeline.all_done, pipeline.limit_s + COMMIT_WITHIN_S)
    done = pipeline.committed_at(batch)
    what = f"batch {batch}, lane {lane}: broker {coordinator}, right after EndTxn"
    return RunResult(what, hit, None if done is None else max(0.0, done - at), pipeline.limit_s)


def data_folder(world: World, broker: int) -> Path:
    """Where a broker keeps its partitions: beside its settings, which are its last argument."""
    return Path(world.broker(broker).cmdline()[-1]).parent / "data"


def size(folder: Path) -> int:
    """Bytes of the log in a folder."""
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def grows(folder: Path, before: int, limit_s: float) -> bool:
    """Wait until the log in a folder is larger than before; whether it came to be."""
    deadline = time.monotonic() + limit_s
    while size(folder) == before:
        if time.monotonic() > deadline:
            return False
    return True


CELLS = [
    Cell(name, what, 10, run, BROKERS)
    for name, what, run in (
        ("txn-coordinator", "three brokers: a lane's coordinator SIGKILLed right after its EndTxn", commit_kills),
        ("group-coordinator", "three brokers: the group's coordinator SIGKILLed, under load", group_kills),
        ("output-leader", "three brokers: the leader of an output partition SIGKILLed, under load", output_kills),
        ("rolling-restart", "three brokers: all restarted in turn, under load; recovery from the end", restarts),
    )
]
