"""What a lane measures on a real broker, and a transaction that would be open for too long."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
import pytest
from tests_support import rows_of

from spark_eos.errors import TransactionTooLong
from spark_eos.protocol.batch import BatchPlan
from spark_eos.protocol.transaction import Outcome, Step


def test_a_lane_tells_what_it_wrote_and_each_step_it_took(query, topic):
    run = query.run()
    run.open(0, 1)
    key = pa.array(["schlüssel", None, "k"])
    source = topic(name="in")
    first = rows_of(["a", None, "ccc"], (source, 0, 4), key=key)
    plan = BatchPlan(floor={first.ranges()[0].key: 5})
    report = query.lane(run, 0, [first, rows_of(["dd"], (source, 0, 7))], plan=plan)
    stats = report.stats
    # The first row is dropped; a null takes no bytes.
    assert (stats.rows, stats.bytes, report.dropped) == (3, len("ccc") + len("k") + len("dd"), 1)
    assert list(stats.seconds) == [step.value for step in Step if step is not Step.REPORT]
    assert all(seconds > 0 for seconds in stats.seconds.values())
    again = query.lane(run, 0, [first, rows_of(["dd"], (source, 0, 7))]).stats
    assert (again.rows, again.bytes, list(again.seconds)) == (0, 0, ["peek", "fence", "check"])
    assert again.transaction_seconds is None


def test_waits_for_a_full_queue_are_counted(query):
    run = query.run()
    run.open(0, 2)
    narrow = query.but(client={"queue.buffering.max.messages": "10"})
    assert narrow.lane(run, 0, [rows_of(range(100))], lanes=2).stats.queue_waits >= 9
    assert query.lane(run, 0, [rows_of(range(100))], lane=1, lanes=2).stats.queue_waits == 0


def test_rows_that_take_too_long_are_warned_of_then_aborted_and_written_once_by_a_faster_attempt(query, caplog):
    short = query.but(client={"transaction.timeout.ms": "2000"})
    run = short.run()
    run.open(0, 1)
    warned = []

    def slow():
        nonlocal warned
        yield rows_of("a")
        deadline = time.monotonic() + 1.85
        while time.monotonic() < deadline:
            time.sleep(0.05)
            warned = [each.getMessage() for each in caplog.records if each.name == "spark_eos.sink"]
        yield rows_of("b")

    with caplog.at_level(logging.WARNING, "spark_eos.sink"), pytest.raises(TransactionTooLong) as raised:
        short.lane(run, 0, slow())
    (told,) = warned
    assert f"[query {query.query}, batch 0, lane 0] the transaction has been open for 1 s, half of" in told
    assert "while 1 rows were computed" in str(raised.value)
    assert short.uncommitted() == ["a"]
    assert short.values() == []
    assert query.lane(run, 0, [rows_of("ab")]).outcome is Outcome.COMMITTED
    assert sorted(short.values()) == ["a", "b"]
