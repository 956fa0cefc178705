"""`run_lane` on brokers: written once, whatever is tried twice, and nothing visible of what failed."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from tests_support import rows_of

from spark_eos.errors import (
    CheckpointBehind,
    Fenced,
    HeaderWithoutKey,
    LedgerLost,
    NullTopic,
    PartitionOutOfRange,
    ReplayDiffers,
    SplitChanged,
    TopicMissing,
    TransactionAborted,
)
from spark_eos.protocol.batch import BatchPlan
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.positions import SourceRange
from spark_eos.protocol.transaction import Outcome, Step


class Crash(BaseException):
    """What a killed process does, as near as one process can: nothing after it runs but the abort."""


def test_a_lane_commits_rows_ledger_row_and_source_offsets_as_one(query, topic):
    source = topic(2, name="in")
    run = query.run()
    run.open(0, 2)
    report = query.lane(run, 0, [rows_of("ab", (source, 1, 5)), rows_of("c", (source, 1, 7))], lane=1, lanes=2)
    assert report.outcome is Outcome.COMMITTED
    assert report.ranges == (SourceRange(source, 1, 5, 7, 3),)
    assert sorted(query.values()) == ["a", "b", "c"]
    view = query.ledger.view(stable=True)
    row = view.lanes[1]
    assert (row.next_batch, row.lanes, row.run, row.fingerprint.rows) == (1, 2, run.run.run, 3)
    assert query.ledger.offsets([(source, 1), (source, 0)]) == {(source, 1): 8, (source, 0): 0}


def test_an_empty_lane_writes_nothing_and_opens_no_producer(query):
    run = query.run()
    run.open(0, 1)
    steps = []
    assert query.lane(run, 0, [], before_step=steps.append).outcome is Outcome.EMPTY
    assert steps == [Step.PEEK]
    assert query.ledger.view(stable=True).lanes == {}


def test_the_steps_come_in_their_order(query):
    run = query.run()
    run.open(0, 1)
    steps = []
    query.lane(run, 0, [rows_of("a")], before_step=steps.append)
    assert steps == list(Step)


def test_a_second_attempt_skips_what_the_first_committed(query):
    run = query.run()
    run.open(0, 1)
    query.lane(run, 0, [rows_of("ab")])
    assert query.lane(run, 0, [rows_of("a"), rows_of("b")]).outcome is Outcome.SKIPPED
    assert sorted(query.values()) == ["a", "b"]


def test_a_replay_with_other_rows_is_told(query, topic):
    source = topic(name="in")
    run = query.run()
    run.open(0, 1)
    query.lane(run, 0, [rows_of("ab", (source, 0, 0))])
    for other in (rows_of("abc", (source, 0, 0)), rows_of("ab", (source, 0, 1))):
        with pytest.raises(ReplayDiffers, match="lane 0"):
            query.lane(run, 0, [other])
    assert sorted(query.values()) == ["a", "b"]


@pytest.mark.parametrize("step", [Step.FENCE, Step.CHECK, Step.WRITE, Step.OFFSETS, Step.COMMIT, Step.REPORT])
def test_an_attempt_that_dies_before_any_step_is_made_good_by_the_next(query, step):
    run = query.run()
    run.open(0, 1)

    def crash(reached: Step) -> None:
        if reached is step:
            raise Crash

    with pytest.raises(Crash):
        query.lane(run, 0, [rows_of("ab")], before_step=crash)
    expected = Outcome.SKIPPED if step is Step.REPORT else Outcome.COMMITTED
    assert query.lane(run, 0, [rows_of("ab")]).outcome is expected
    assert sorted(query.values()) == ["a", "b"]


def test_an_older_attempt_that_wakes_up_is_fenced_and_leaves_nothing(query):
    run = query.run()
    run.open(0, 1)

    def newer(reached: Step) -> None:
        if reached is Step.OFFSETS:
            assert query.lane(run, 0, [rows_of("ab")]).outcome is Outcome.COMMITTED

    with pytest.raises(Fenced, match="batch 0, lane 0"):
        query.lane(run, 0, [rows_of("ab")], before_step=newer)
    assert sorted(query.values()) == ["a", "b"]
    assert len(query.uncommitted()) == 4


def test_a_task_of_a_run_that_was_taken_over_refuses_and_fences_nobody(query):
    old, new = query.run("old"), query.run("new")
    old.open(0, 1)
    new.open(0, 1)

    def zombie(reached: Step) -> None:
        if reached is Step.OFFSETS:
            with pytest.raises(Fenced, match="run new took over"):
                query.lane(old, 0, [rows_of("ab")])

    assert query.lane(new, 0, [rows_of("ab")], before_step=zombie).outcome is Outcome.COMMITTED
    assert sorted(query.values()) == ["a", "b"]


REFUSED = [
    (rows_of("ab", topic=pa.array([None, None], pa.string())), NullTopic, "has no topic"),
    (rows_of("ab", topic=pa.array(["no-such-topic", "x"])), TopicMissing, "no-such-topic does not exist"),
    (rows_of("ab", partition=pa.array([0, 3], pa.int32())), PartitionOutOfRange, "names partition 3 .* has 3"),
    (rows_of("ab", partition=pa.array([0, -1], pa.int32())), PartitionOutOfRange, "names partition -1"),
    (
        rows_of("ab", headers=pa.array([None, [{"key": None, "value": b"x"}]])),
        HeaderWithoutKey,
        "header without a key",
    ),
]


@pytest.mark.parametrize(("rows", "kind", "says"), REFUSED)
def test_a_record_that_cannot_be_written_stops_the_lane_and_nothing_of_it_is_seen(query, rows, kind, says):
    run = query.run()
    run.open(0, 1)
    with pytest.raises(kind, match=says) as raised:
        query.lane(run, 0, [rows_of("ok"), rows])
    assert raised.value.do
    assert (raised.value.query, raised.value.batch, raised.value.lane) == (query.query, 0, 0)
    assert query.values() == []
    assert query.ledger.view(stable=True).lanes == {}
    assert query.lane(run, 0, [rows_of("ok")]).outcome is Outcome.COMMITTED


def test_no_topic_is_created_by_accident(query, brokers):
    run = query.run()
    run.open(0, 1)
    with pytest.raises(TopicMissing):
        query.lane(run, 0, [rows_of("a", topic=pa.array(["never-made"]))])
    assert brokers.partitions("never-made") is None


def test_all_columns_arrive(query, brokers):
    run = query.run()
    run.open(0, 1)
    when = pa.array([1_700_000_000_123_000, None], pa.timestamp("us", tz="UTC"))
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None])
    rows = rows_of(
        ["v", None],
        key=pa.array(["schlüssel", None]),
        partition=pa.array([2, 2], pa.int32()),
        headers=headers,
        timestamp=when,
    )
    query.lane(run, 0, [rows])
    first, second = brokers.records(query.topic)
    assert (first.partition, first.key, first.value) == (2, "schlüssel".encode(), b"v")
    assert (first.timestamp, first.headers) == (1_700_000_000_123, (("h", b"1"), ("h", None)))
    assert (second.partition, second.key, second.value, second.headers) == (2, None, None, ())
    assert second.timestamp > 1_700_000_000_123


def test_rows_below_the_floor_are_dropped_and_counted_and_offsets_never_move_back(query, topic):
    source = topic(2, name="in")
    run = query.run()
    run.open(0, 1)
    stream = [rows_of("abcd", (source, 0, 3)), rows_of("xy", (source, 1, 0))]
    floor = {(source, 0): 5, (source, 1): 9}
    report = query.lane(run, 0, stream, plan=BatchPlan(floor=floor, known=floor))
    assert (report.dropped, report.fingerprint.rows) == (4, 6)
    assert sorted(query.values()) == ["c", "d"]
    assert query.ledger.offsets([(source, 0), (source, 1)]) == {(source, 0): 7, (source, 1): 9}


def test_a_lane_refuses_what_the_ledger_contradicts(query):
    run = query.run()
    with pytest.raises(LedgerLost):
        query.but(query=query.query + "-x").lane(run, 0, [rows_of("a")])
    run.open(0, 1)
    query.lane(run, 0, [rows_of("a")])
    with pytest.raises(SplitChanged):
        query.lane(run, 0, [rows_of("a")], lanes=2)
    query.lane(run, 1, [rows_of("b")])
    with pytest.raises(CheckpointBehind):
        query.lane(run, 0, [rows_of("a")], lanes=1)
    assert sorted(query.values()) == ["a", "b"]


def test_a_transaction_longer_than_its_timeout_is_ended_by_the_broker_and_told(query, brokers, topic):
    short = query.but(topic=topic(), client={"transaction.timeout.ms": "3000"})
    run = short.run()
    run.open(0, 1)

    def wait(reached: Step) -> None:
        if reached is Step.COMMIT:
            brokers.until_timed_out(short.topic)

    with pytest.raises((Fenced, TransactionAborted)) as raised:
        short.lane(run, 0, [rows_of("ab")], before_step=wait)
    assert raised.value.do
    assert short.values() == []
    assert short.lane(run, 0, [rows_of("ab")]).outcome is Outcome.COMMITTED


def test_a_task_knows_its_transactional_id(query):
    assert LaneTask(query.run().run, 0, 3, 4, 0).transactional_id == f"{query.query}-3"


def test_every_attempt_has_an_epoch_of_its_own(query, brokers, topic):
    """So that a late EndTxn of an earlier transaction is rejected (KAFKA-17754)."""
    narrow = query.but(topic=topic())
    run = narrow.run()
    for batch in range(3):
        narrow.batch(run, batch, [[rows_of([batch])]])
    brokers.settle(narrow.topic)
    log = brokers.dump(narrow.topic)
    assert log.count("endTxnMarker: COMMIT") == 3
    assert len(set(re.findall(r"producerId: (\d+) producerEpoch: (\d+)", log))) == 3
