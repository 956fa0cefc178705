"""Brokers forget transactional.ids that nobody has used for long: after 7 days by default, here after 15 seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException, Producer
from pipeline import World
from scenario import Scenario, Story, wait_until
from tests_support import Query, rows_of

from spark_eos.protocol.driver import QueryRun
from spark_eos.testing.broker import run_tool

FORGETFUL = {
    "transactional.id.expiration.ms": "15000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
CALL_S = 30
NEVER_S = 120
QUERIES = ("refunds", "payouts")


def tell(story: Story, world: World) -> None:
    story.say("transactional.id.expiration.ms is 15000. A plain producer and two queries write, and then sleep.")
    world.kafka.create_topic("plain")
    world.kafka.create_topic("in")
    plain = _plain(world)
    runs = {name: _written(world, name) for name in QUERIES}
    known = _ids(world)
    story.show(known)
    story.promise(
        f"the broker knows {len(known)} ids: the producer's, and of each query the driver's and the lane's",
        len(known) == 5,
    )
    wait_until(lambda: not _ids(world), NEVER_S)
    story.promise("the broker has forgotten every one of these ids", True)
    found = _send(plain)
    story.promise(f"the plain producer wakes up, and is fenced: {found}", found == "INVALID_PRODUCER_ID_MAPPING")
    print()
    story.say("The query refunds wakes up. Each of its batches has producers of its own:")
    query, run = runs["refunds"]
    _write(query, run, 1)
    story.promise(f"it goes on: {', '.join(query.values())}", query.values() == ["row 0", "row 1"])
    print()
    _slept_in_a_batch(story, world, *runs["payouts"])


SCENARIO = Scenario("Id expiry: a query that wakes up after its ids are forgotten", tell, config=FORGETFUL)


def _slept_in_a_batch(story: Story, world: World, query: Query, run: QueryRun) -> None:
    story.say("The query payouts is in the middle of a batch: its lane is committed, and the driver sleeps again.")
    run.open(1, 1)
    reports = [query.lane(run, 1, [rows_of(["row 1"], ("in", 0, 1))])]
    wait_until(lambda: not _ids(world), NEVER_S)
    with _warnings() as told:
        run.seal(1, 1, reports)
    story.show(told)
    story.promise(
        "its seal is refused, since the brokers have forgotten its id",
        len(told) == 1 and "INVALID_PRODUCER_ID_MAPPING" in told[0],
    )
    story.promise(
        f"and is done again by a fresh producer: {', '.join(query.values())}",
        query.ledger.query().next_batch == 2 and query.values() == ["row 0", "row 1"],
    )


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What a query's log says meanwhile."""
    told: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: told.append(record.getMessage())
    log = logging.getLogger("spark_eos.sink")
    log.addHandler(listener)
    try:
        yield told
    finally:
        log.removeHandler(listener)


def _plain(world: World) -> Producer:
    settings = {"bootstrap.servers": world.kafka.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"transactional.id": "plain"})
    producer.init_transactions(CALL_S)
    _send(producer)
    return producer


def _send(producer: Producer) -> str:
    """A transaction of one record; empty, or the name of the error."""
    try:
        producer.begin_transaction()
        producer.produce("plain", "row", partition=0)
        producer.flush(CALL_S)
        producer.commit_transaction(CALL_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def _written(world: World, name: str) -> tuple[Query, QueryRun]:
    """A query that has written batch 0, and its run, still alive."""
    world.kafka.create_topic(f"out-{name}")
    query = Query(world.kafka.bootstrap_servers, name, f"out-{name}")
    run = query.run()
    _write(query, run, 0)
    return query, run


def _write(query: Query, run: QueryRun, batch: int) -> None:
    query.batch(run, batch, [[rows_of([f"row {batch}"], ("in", 0, batch))]])


def _ids(world: World) -> list[str]:
    """What the broker knows of these producers, as kafka-transactions lists it."""
    command = ["--bootstrap-server", world.kafka.bootstrap_servers, "list"]
    listed = run_tool("org.apache.kafka.tools.TransactionsCommand", command).splitlines()
    return [line for line in listed[1:] if line.startswith(("plain", *QUERIES))]
