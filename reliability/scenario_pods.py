"""Four pods do one shard's work during a deployment: with ids of their own, and with that of the query and lane."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from pipeline import World
from scenario import Scenario, Story, wait_until
from scenario_log import markers
from scenario_pod import QUERY, Pod
from tests_support import committed_values

from spark_eos.testing import leash, log_of

POD = Path(__file__).with_name("scenario_pod.py")
PODS = 4
SETTLEMENTS = [f"settlement-{number}" for number in range(25)]
POD_S = 90


def tell(story: Story, world: World) -> None:
    world.kafka.create_topic("settlements")
    _feed(world)
    story.say(
        f"{len(SETTLEMENTS)} settlements of shard 0. During a deployment {PODS} pods do its work, each started while"
    )
    story.say("the one before it has its transaction open; then they commit.")
    for way, made_of in (("uuid", "a random uuid"), ("hostname", "the pod's name")):
        values, found = _deploy(story, world, way, f"transactional.id made of {made_of}")
        extra = sum(count - 1 for count in values.values())
        story.promise(f"no ABORT in the log: {found}", found == ["COMMIT"] * PODS)
        story.promise(f"duplicates: {extra} refunds too many", extra == (PODS - 1) * len(SETTLEMENTS))
    values, found = _deploy(story, world, QUERY, "transactional.id made of query and lane, by the connector")
    story.promise(f"each pod aborted the one before it: {found}", found == ["ABORT"] * (PODS - 1) + ["COMMIT"])
    exact = values == Counter(SETTLEMENTS)
    story.promise(f"{sum(values.values())} refunds, none lost, none twice", exact)
    (again,) = _run(world, QUERY, [PODS - 1])
    story.promise(f"a pod that is started again finds the work done: {again}", again.startswith("skipped"))


SCENARIO = Scenario("Four pods: ids from anything but the shard", tell)


def _feed(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    for settlement in SETTLEMENTS:
        producer.produce("settlements", settlement, partition=0)
    producer.flush(30)


def _deploy(story: Story, world: World, way: str, title: str) -> tuple[Counter[str], list[str]]:
    """All pods, to their end; the refunds that a read_committed reader gets, and the markers of the log."""
    world.kafka.create_topic(f"refunds-{way}")
    print()
    story.say(f"{title}:")
    ends = _run(world, way, range(PODS))
    for number, end in enumerate(ends):
        story.say(f"pod {number}: {end.split(' What to do')[0]}")
    values = committed_values(world.kafka.bootstrap_servers, f"refunds-{way}")
    log = log_of(world.kafka, f"refunds-{way}")
    story.show(line for line in log if "endTxnMarker" in line)
    return Counter(value.decode() for value in values), markers(log)


def _run(world: World, way: str, numbers: Iterable[int]) -> list[str]:
    """Start pods, each once the one before it has its transaction open, and wait for them; how each ended."""
    pods = []
    with ExitStack() as stack:
        for number in numbers:
            pod = Pod(
                number, PODS, way, world.kafka.bootstrap_servers, "settlements", f"refunds-{way}", str(world.folder)
            )
            pods.append(stack.enter_context(_process(pod)))
            wait_until(lambda: pod.is_open or pods[-1].poll() is not None, POD_S)  # noqa: B023 (called at once)
        return [pod.communicate(timeout=POD_S)[0].strip() for pod in pods]


@contextmanager
def _process(pod: Pod) -> Iterator[subprocess.Popen[str]]:
    leashed = [sys.executable, leash.__file__, str(os.getpid()), "", sys.executable, str(POD), pod.to_json()]
    # It imports what this process could import, however that was told where.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(leashed, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()
