"""The broker that leads the transaction log dies between PrepareCommit and the markers; a new one finishes the commit.

How that moment is held still: the broker that leads the output partition is stopped (SIGSTOP) just before the commit,
so its marker can't be written. The coordinator, on another broker, notes PrepareCommit and acknowledges the commit.
Then it is killed (SIGKILL), and the output's broker goes on (SIGCONT).
The transaction log has two replicas, neither on the stopped broker, and the one that is left is enough to write to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cells_brokers import coordinating
from confluent_kafka.admin import AdminClient, NewTopic
from pipeline import World
from scenario import Scenario, Story, wait_until
from scenario_log import markers, numbers, states_of
from tests_support import Query, rows_of

from spark_eos.protocol.names import lane_transactional_id
from spark_eos.protocol.transaction import Outcome
from spark_eos.testing import log_of, wait_for_markers
from spark_eos.testing.broker import DUMP_TOOL, run_tool

STATE_TOPIC = "__transaction_state"
CONFIG = {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1"}
REFUNDS = ["RFD-9001", "RFD-9002"]
QUIET = {"log_level": "0"}
"""Brokers come and go here: the clients shall not print it."""
ANSWER_S = 30
NEVER_S = 60


@dataclass(frozen=True)
class Roles:
    """Which broker does what, by number.

    Args:
        partition: of the transaction log, that has the lane's transactional.id.
        coordinator: leads it.
        successor: has the other replica.
        output: leads the output's partition.
    """

    partition: int
    coordinator: int
    successor: int
    output: int


def tell(story: Story, world: World) -> None:
    query = Query(world.kafka.bootstrap_servers, "refunds", "refunds-emitted", client=QUIET)
    run = query.run()
    roles = _roles(world, lane_transactional_id("refunds", 0))
    _create_output(world, roles.output)
    world.kafka.create_topic("settlements")
    run.open(0, 1)
    story.say(
        f"Broker {roles.coordinator} coordinates the lane's transaction; broker {roles.output} leads refunds-emitted."
    )
    story.say(
        f"Just before the lane commits, broker {roles.output} is stopped (SIGSTOP), so that it can't write the marker."
    )
    output = world.broker(roles.output)

    def before_step(step: str) -> None:
        if step == "commit":
            output.suspend()
        if step == "report":
            world.kafka.kill(roles.coordinator)

    try:
        report = query.lane(run, 0, [rows_of(REFUNDS, ("settlements", 0, 0))], before_step=before_step)
        story.promise("the commit was acknowledged", report.outcome is Outcome.COMMITTED)
        story.say(
            f"Broker {roles.coordinator} is killed (SIGKILL). The transaction log, as broker {roles.successor} has it:"
        )
        before = _states(world, roles)
        story.show(before)
        story.promise("it ends with PrepareCommit", "PrepareCommit" in before[-1])
        log = log_of(world.kafka, "refunds-emitted")
        story.promise(
            f"the rows are in the log, without a marker: {len(log)} rows", (len(log), markers(log)) == (2, [])
        )
    finally:
        output.resume()
    print()
    story.say(f"Broker {roles.output} goes on (SIGCONT); broker {roles.successor} takes over the transaction log:")
    wait_until(lambda: "CompleteCommit" in _states(world, roles)[-1], NEVER_S)
    after = _states(world, roles)
    story.show(after[len(before) :])
    epochs = numbers(after, "partitionLeaderEpoch")
    story.promise("it notes CompleteCommit, in a later epoch of the log's leader", epochs[-1] > epochs[len(before) - 1])
    wait_for_markers(world.kafka.bootstrap_servers, "refunds-emitted", timeout_s=NEVER_S)
    log = log_of(world.kafka, "refunds-emitted")
    story.show(log)
    # The old coordinator's request may still lie in the stopped broker's socket: then there is a marker of it too.
    theirs = [line for line in log if "endTxnMarker: COMMIT" in line and "coordinatorEpoch: 0" not in line]
    story.promise("and writes its marker, COMMIT; there is no ABORT", bool(theirs) and "ABORT" not in markers(log))
    story.promise(f"read_committed readers get the rows: {', '.join(query.values())}", query.values() == REFUNDS)
    (again,) = query.batch(query.run(), 0, [[rows_of(REFUNDS, ("settlements", 0, 0))]])
    story.promise(
        f"a new run of the query finds the lane written: {again.outcome.value}", again.outcome is Outcome.SKIPPED
    )
    story.promise(f"so they are there once: {', '.join(query.values())}", query.values() == REFUNDS)


SCENARIO = Scenario("Coordinator fail-over between PrepareCommit and the markers", tell, brokers=3, config=CONFIG)


def _roles(world: World, transactional_id: str) -> Roles:
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers} | QUIET)
    partition = coordinating(world, STATE_TOPIC, transactional_id)
    found = admin.list_topics(timeout=ANSWER_S).topics[STATE_TOPIC].partitions[partition]
    (successor,) = set(found.replicas) - {found.leader}
    (output,) = {0, 1, 2} - set(found.replicas)
    return Roles(partition, found.leader, successor, output)


def _create_output(world: World, broker: int) -> None:
    """One partition, on this broker alone."""
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers} | QUIET)
    config = {"min.insync.replicas": "1"}
    topic = NewTopic("refunds-emitted", 1, replica_assignment=[[broker]], config=config)
    admin.create_topics([topic])["refunds-emitted"].result(ANSWER_S)
    world.kafka.create_topic("refunds-emitted", exist_ok=True)  # waits until it answers


def _states(world: World, roles: Roles) -> list[str]:
    """The states of the lane's transaction in the successor's replica of the log, with the log's leader epoch."""
    properties = Path(world.broker(roles.successor).cmdline()[-1])
    folder = properties.with_name("data") / f"{STATE_TOPIC}-{roles.partition}"
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    dump = run_tool(DUMP_TOOL, ["--transaction-log-decoder", "--files", files])
    return states_of(dump, lane_transactional_id("refunds", 0))
