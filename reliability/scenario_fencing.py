"""Two producers do the same work at the same time: with one fixed transactional.id, and with a random one each."""

from __future__ import annotations

import logging
import uuid

from confluent_kafka import KafkaException, Producer
from pipeline import World
from scenario import Scenario, Story
from scenario_log import markers, numbers
from tests_support import committed_values

from spark_eos.testing import log_of

REFUNDS = [f"RFD-{number}" for number in (9001, 9002)]
CALL_S = 30
SILENT = logging.getLogger("scenario")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def tell(story: Story, world: World) -> None:
    _fixed(story, world)
    print()
    _random(story, world)


SCENARIO = Scenario("Fencing: a producer that was thought dead comes back", tell)


def _open(world: World, transactional_id: str, topic: str) -> Producer:
    """A producer whose transaction is open, with the refunds in the log."""
    settings = {"bootstrap.servers": world.kafka.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer(settings, logger=SILENT)
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    for refund in REFUNDS:
        producer.produce(topic, refund, partition=0)
    producer.flush(CALL_S)
    return producer


def _commit(producer: Producer) -> str:
    """Empty, or the name of the error."""
    try:
        producer.commit_transaction(CALL_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def _fixed(story: Story, world: World) -> None:
    world.kafka.create_topic("fixed")
    story.say("With one transactional.id, refunds-lane-0: the first producer writes two refunds, and hangs.")
    story.say("A second one is started in its place: init_transactions, the same refunds, commit. The first wakes up.")
    first = _open(world, "refunds-lane-0", "fixed")
    second = _open(world, "refunds-lane-0", "fixed")
    commits = _commit(second), _commit(first)
    values = _values(world, "fixed")
    log = log_of(world.kafka, "fixed")
    story.show(log)
    epochs = numbers(log, "producerEpoch")
    story.promise("the second's init_transactions bumped the epoch", epochs[-1] > epochs[0])
    story.promise(
        "the first's open transaction was aborted: the log has its ABORT", markers(log) == ["ABORT", "COMMIT"]
    )
    story.promise(f"the first's commit failed: {commits[1]}", commits == ("", "_FENCED"))
    story.promise(f"a read_committed reader gets each refund once: {', '.join(values)}", values == REFUNDS)


def _random(story: Story, world: World) -> None:
    world.kafka.create_topic("random")
    story.say("The same with a random transactional.id for each process:")
    first, second = (_open(world, str(uuid.uuid4()), "random") for _ in range(2))
    commits = _commit(second), _commit(first)
    values = _values(world, "random")
    log = log_of(world.kafka, "random")
    story.show(log)
    story.promise(
        "nobody is fenced: the log has no ABORT, both commit", (markers(log), commits) == (["COMMIT"] * 2, ("", ""))
    )
    story.promise(f"so each refund is there twice: {', '.join(values)}", values == sorted(2 * REFUNDS))


def _values(world: World, topic: str) -> list[str]:
    return sorted(value.decode() for value in committed_values(world.kafka.bootstrap_servers, topic))
