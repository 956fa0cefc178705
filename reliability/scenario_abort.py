"""A task dies after it has sent its rows and its offsets: none of it counts, and the batch is processed again."""

from __future__ import annotations

from contextlib import suppress

from pipeline import World
from scenario import Scenario, Story
from scenario_log import markers
from tests_support import Query, rows_of

from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import lane_transactional_id
from spark_eos.protocol.transaction import LaneReport
from spark_eos.testing import log_of

SETTLEMENTS, REFUNDS = "settlements", "refunds"
VALUES = [["RFD-9001", "RFD-9002"], ["RFD-9003", "RFD-9004"]]
"""Of each batch."""


class TaskDied(Exception):
    """What happens to the task, in this scenario."""


def tell(story: Story, world: World) -> None:
    for topic in (SETTLEMENTS, REFUNDS):
        world.kafka.create_topic(topic)
    query = Query(world.kafka.bootstrap_servers, "refunds", REFUNDS)
    run = query.run()
    _write(query, run, 0)
    story.say(
        "Batch 0 is written: settlements 0 and 1. Batch 1, settlements 2 and 3, has sent its rows and offsets, when its"
    )
    story.say("task dies, just before the commit. The next attempt begins as all do: with init_transactions.")
    run.open(1, 1)
    with suppress(TaskDied):
        _lane(query, run, 1, die_at="commit")
    with query.factory.open(lane_transactional_id("refunds", 0)) as transaction:
        transaction.fence()
    log = log_of(world.kafka, REFUNDS)
    story.show(log)
    story.promise(f"its rows are in the log, and aborted: {markers(log)}", markers(log) == ["COMMIT", "ABORT"])
    story.promise(f"the committed offset is where batch 0 left it: {_offset(query)}", _offset(query) == 2)
    story.promise(
        f"a read_committed reader sees batch 0 only: {', '.join(query.values())}", query.values() == VALUES[0]
    )
    print()
    story.say("The batch is processed again:")
    _write(query, run, 1)
    log = log_of(world.kafka, REFUNDS)
    story.show(log[5:])
    story.promise(f"the committed offset has advanced: {_offset(query)}", _offset(query) == 4)
    story.promise(f"each refund is seen once: {', '.join(query.values())}", query.values() == VALUES[0] + VALUES[1])
    tries = len(query.uncommitted())
    story.promise(f"and the first try never: a read_uncommitted reader gets {tries} rows", tries == 6)


SCENARIO = Scenario("Offsets on abort: not advanced, and the first try is invisible", tell)


def _write(query: Query, run: QueryRun, batch: int) -> None:
    run.open(batch, 1)
    run.seal(batch, 1, [_lane(query, run, batch)])


def _lane(query: Query, run: QueryRun, batch: int, die_at: str = "") -> LaneReport:
    def before_step(step: str) -> None:
        if step == die_at:
            raise TaskDied

    return query.lane(run, batch, [rows_of(VALUES[batch], (SETTLEMENTS, 0, 2 * batch))], before_step=before_step)


def _offset(query: Query) -> int:
    return query.ledger.offsets([(SETTLEMENTS, 0)])[SETTLEMENTS, 0]
