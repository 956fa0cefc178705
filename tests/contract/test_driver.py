"""Take-over, open and seal on brokers: each row of the batch table, and two runs at once."""

from __future__ import annotations

import pytest
from contract_batches import Crash, both_lanes, crash_at, half_written, refused_before_anyone_is_disturbed
from tests_support import rows_of

from spark_eos.errors import (
    BatchAbandoned,
    CheckpointBehind,
    Fenced,
    LedgerLost,
    OtherCheckpoint,
    ReplayDiffers,
    SplitChanged,
    TransactionTimeoutTooLong,
)
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.lease import TRIES
from spark_eos.protocol.names import driver_transactional_id
from spark_eos.protocol.transaction import Outcome, Step


@pytest.fixture
def source(topic):
    return topic(2, name="in")


def test_batches_are_opened_written_and_sealed(query, source):
    run = query.run()
    query.batch(run, 0, both_lanes(source))
    query.batch(run, 1, [[rows_of("e", (source, 0, 2))], []])
    row = query.ledger.query()
    assert (row.next_batch, row.lanes, row.aligned, row.run) == (2, 2, True, run.run.run)
    assert query.ledger.offsets([(source, 0), (source, 1)]) == {(source, 0): 3, (source, 1): 2}
    assert sorted(query.values()) == list("abcde")


def test_the_next_run_finishes_a_half_written_batch_and_holds_no_reader_back(query, source):
    half_written(query, source)
    reports = query.batch(query.run(), 0, both_lanes(source))
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    assert sorted(query.values()) == list("abcd")


def test_take_over_ends_what_lanes_left_open_that_the_new_run_does_not_use(query, source):
    run = query.run()
    run.open(0, 3)
    with pytest.raises(Crash):
        query.lane(run, 0, [rows_of("ab", (source, 0, 0))], 2, 3, before_step=crash_at(Step.COMMIT))
    # Lane 2 never committed a row, so only the query's row tells that it was started.
    query.batch(query.run(), 0, both_lanes(source))
    assert sorted(query.values()) == list("abcd")


def test_more_lanes_in_a_later_batch_are_noted_before_they_start(query, source):
    run = query.run()
    query.batch(run, 0, [[rows_of("a", (source, 0, 0))]])
    run.open(1, 4)
    assert query.ledger.query().lanes == 4
    with pytest.raises(Crash):
        query.lane(run, 1, [rows_of("b", (source, 0, 1))], 3, 4, before_step=crash_at(Step.COMMIT))
    query.batch(query.run(), 1, [[rows_of("b", (source, 0, 1))]])
    assert sorted(query.values()) == ["a", "b"]


def test_a_sealed_batch_is_skipped_as_a_whole(query, source):
    query.batch(query.run(), 0, both_lanes(source))
    assert query.run().open(0, 2, BatchLog("content")).skip
    assert query.batch(query.run(), 0, both_lanes(source)) is None
    assert sorted(query.values()) == list("abcd")


def test_a_rival_driver_fences_and_the_loser_says_who_took_over(query, source):
    old, new = query.run("old"), query.run("new")
    old.open(0, 2)
    query.lane(old, 0, both_lanes(source)[0], 0, 2)
    reports = query.batch(new, 0, both_lanes(source))
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    with pytest.raises(Fenced, match="run new took over this query at 2026"):
        old.seal(0, 2, reports)
    with pytest.raises(Fenced):
        old.open(1, 2)
    assert query.ledger.query().run == "new"
    assert sorted(query.values()) == list("abcd")
    query.batch(new, 1, [[rows_of("e", (source, 0, 2))]])
    assert sorted(query.values()) == list("abcde")


@pytest.mark.parametrize("times", [1, 2 * TRIES])  # each try takes the lease twice
def test_a_run_that_takes_its_lease_while_another_signs_goes_on_with_its_batch_at_most(query, source, times):
    # It opens a batch that the old one has yet to come to.
    old, new, steps = query.run("old"), query.run("new", may_pass=True), []
    query.batch(old, 0, both_lanes(source))
    acquire = new._lease.acquire

    def acquired() -> None:
        acquire()
        if len(steps) < times:
            steps.append(len(steps) + 1)
            query.batch(old, steps[-1], [[rows_of([str(steps[-1])], (source, 0, 10 + steps[-1]))]])

    new._lease.acquire = acquired
    if times > 1:
        with pytest.raises(Fenced):
            new.open(times + 1, 1)
        query.batch(old, times + 1, [[rows_of("e", (source, 0, 20))]])
        return
    assert not new.open(2, 1).skip
    row = query.ledger.query()
    assert (row.run, row.next_batch) == ("new", 2)
    with pytest.raises(Fenced, match="run new took over"):
        old.open(2, 1)


def test_a_later_batch_without_a_ledger_is_refused_unless_allowed(query, source):
    refused_before_anyone_is_disturbed(query, LedgerLost, 5, says=r"batch 5.*on\.missing\.ledger=start")
    query.batch(query.run(may_start=True), 5, both_lanes(source))
    assert query.ledger.query().next_batch == 6
    assert sorted(query.values()) == list("abcd")


def test_an_old_copy_of_the_checkpoint_is_refused(query, source):
    run = query.run()
    for batch in range(3):
        query.batch(run, batch, [[rows_of([batch], (source, 0, batch))]])
    refused_before_anyone_is_disturbed(query, CheckpointBehind, 1, says="already has batch 2")
    query.batch(run, 3, [[rows_of([3], (source, 0, 3))]])
    assert sorted(query.values()) == list("0123")


def test_a_half_written_batch_with_another_number_of_lanes_is_refused(query, source):
    half_written(query, source)
    # The dead lane's transaction is open; the look must not wait for it.
    with pytest.raises(SplitChanged, match="2 lanes, and it comes back with 3"):
        query.run("other-split").open(0, 3)
    query.batch(query.run(), 0, both_lanes(source))
    assert sorted(query.values()) == list("abcd")


def test_a_half_written_batch_that_the_query_passed_over_is_refused(query, source):
    run = half_written(query, source)
    query.lane(run, 0, both_lanes(source)[1], 1, 2)
    refused_before_anyone_is_disturbed(query, BatchAbandoned, 1, says="batch 0 was committed in part")


def test_another_checkpoint_is_refused_unless_adopted(query, source):
    query.batch(query.run(), 0, both_lanes(source))
    refused_before_anyone_is_disturbed(query, OtherCheckpoint, 0, checkpoint="new", says="belongs to checkpoint")


def test_an_adopted_checkpoint_drops_what_was_processed_and_goes_on(query, source):
    old = query.run()
    query.batch(old, 0, both_lanes(source))
    half_written(query, source, old, batch=1)
    again = [[rows_of("abXY", (source, 0, 0))], [rows_of("cdZ", (source, 1, 0))]]
    sources = [(source, 0), (source, 1)]
    adopted = query.run("adopter", "new", may_adopt=True)
    reports = query.batch(adopted, 0, again, sources)
    assert [report.dropped for report in reports] == [2, 2]
    assert query.ledger.offsets(sources) == {(source, 0): 4, (source, 1): 3}
    # A restart of the adopted checkpoint, and the old one coming back.
    query.batch(query.run("next", "new"), 1, [[rows_of("V", (source, 0, 4))]], sources)
    with pytest.raises(OtherCheckpoint):
        query.run("old-again").open(2, 2)
    assert sorted(v for v in query.values() if v in "XYZV") == list("VXYZ")


def test_adopting_where_committed_offsets_cannot_be_trusted_is_refused(query, source):
    run = query.run()
    spread = [[rows_of("ab", (source, 0, 0))], [rows_of("cd", (source, 0, 2))]]
    query.batch(run, 0, spread)
    assert query.ledger.query().aligned is False
    assert query.ledger.offsets([(source, 0)]) == {(source, 0): 4}
    run.open(1, 2)
    query.lane(run, 1, [rows_of("ef", (source, 0, 6))], 1, 2)
    refused_before_anyone_is_disturbed(
        query, OtherCheckpoint, 0, checkpoint="new", may_adopt=True, says="half-committed"
    )


def test_adopting_rows_from_somewhere_else_is_refused(query, source, topic):
    query.batch(query.run(), 0, both_lanes(source))
    with pytest.raises(OtherCheckpoint, match="reads no Kafka topic"):
        query.run("adopter", "new", may_adopt=True).open(0, 1)
    elsewhere = topic(name="elsewhere")
    run = query.run("adopter-2", "new", may_adopt=True)
    with pytest.raises(OtherCheckpoint, match=f"comes from {elsewhere}"):
        query.batch(run, 0, [[rows_of("x", (elsewhere, 0, 0))]], [(source, 0)])


def test_offsets_of_rows_without_positions_are_committed_at_the_seal(query, source):
    run = query.run()
    run.open(0, 1)
    report = query.lane(run, 0, [rows_of("ab")])
    assert query.ledger.offsets([(source, 0)]) == {(source, 0): 0}
    run.seal(0, 1, [report], BatchLog(ends={(source, 0): 17}))
    assert query.ledger.offsets([(source, 0)]) == {(source, 0): 17}


def test_a_seal_whose_driver_died_before_it_is_made_good(query, source):
    run = query.run()
    run.open(0, 2)
    for lane, rows in enumerate(both_lanes(source)):
        query.lane(run, 0, rows, lane, 2)
    reports = query.batch(query.run(), 0, both_lanes(source))
    assert {report.outcome for report in reports} == {Outcome.SKIPPED}
    assert query.ledger.query().next_batch == 1


def test_an_older_copy_that_cuts_a_sealed_batch_anew_is_refused_or_adopted(query, source):
    """A checkpoint restored from before batch 1: its batch 1 ends elsewhere, and skipping it would lose the rest."""
    sources = [(source, 0), (source, 1)]
    run = query.run()
    query.batch(run, 0, [[], []], content="0")
    query.batch(run, 1, both_lanes(source), content="1")
    longer = [[rows_of("abX", (source, 0, 0))], [rows_of("cd", (source, 1, 0))]]
    refused_before_anyone_is_disturbed(query, CheckpointBehind, 1, content="1 anew", says="older copy")
    reports = query.batch(query.run(may_adopt=True), 1, longer, sources, content="1 anew")
    assert [report.dropped for report in reports] == [2, 2]
    assert sorted(query.values()) == list("Xabcd")
    assert query.ledger.offsets(sources) == {(source, 0): 3, (source, 1): 2}
    # The newer copy comes back, whose batch 1 was another: what it reads again is dropped, too, or it is refused.
    newer = {"content": "2", "previous": "1"}
    with pytest.raises(CheckpointBehind, match="batch 1 with other source offsets"):
        query.batch(query.run(), 2, [[rows_of("XY", (source, 0, 2))], []], sources, **newer)
    back = query.batch(query.run(may_adopt=True), 2, [[rows_of("XY", (source, 0, 2))], []], sources, **newer)
    assert back[0].dropped == 1
    assert sorted(query.values()) == list("XYabcd")


def test_an_older_copy_far_behind_is_adopted(query, source):
    run = query.run()
    for batch in range(12):
        query.batch(run, batch, [[rows_of([batch], (source, 0, batch))]], content=str(batch))
    again = [[rows_of(["never"] * 10 + ["12"], (source, 0, 2))]]
    reports = query.batch(query.run(may_adopt=True), 2, again, [(source, 0)], content="2 anew")
    assert reports[0].dropped == 10
    assert sorted(map(int, query.values())) == list(range(13))


def test_two_copies_of_a_checkpoint_at_once_write_each_row_once(query, source):
    """Each plans its own batch 1: once a lane of one is committed, the other can't write its own."""
    first, second = query.run("first"), query.run("second")
    query.batch(first, 0, [[], []], content="0")
    first.open(1, 2, BatchLog("short"))
    query.lane(first, 1, both_lanes(source)[0], 0, 2, content="short")
    query.ledger.view(stable=True)  # until the markers are written
    with pytest.raises(CheckpointBehind, match="other source offsets"):
        second.open(1, 2, BatchLog("long"))
    # Nobody was disturbed: the first finishes, and the second copy is refused for good, unless it is adopted.
    reports = [query.lane(first, 1, rows, lane, 2, content="short") for lane, rows in enumerate(both_lanes(source))]
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    first.seal(1, 2, reports, BatchLog("short"))
    refused_before_anyone_is_disturbed(query, CheckpointBehind, 1, content="long", says="other source offsets")
    assert sorted(query.values()) == list("abcd")


def test_another_number_of_lanes_is_adopted_by_source_positions(query, source):
    run = query.run()
    query.batch(run, 0, both_lanes(source), content="0")
    run.open(1, 2, BatchLog("1"))
    query.lane(run, 1, [rows_of("ef", (source, 0, 2))], 0, 2, content="1")
    one = [[rows_of("ef", (source, 0, 2)), rows_of("gh", (source, 1, 2))]]
    with pytest.raises(SplitChanged, match=r"2 lanes.* with 1.*on\.other\.checkpoint=adopt"):
        query.batch(query.run(), 1, one, content="1")
    assert query.batch(query.run(may_adopt=True), 1, one, [(source, 0), (source, 1)], content="1")[0].dropped == 2
    assert sorted(query.values()) == list("abcdefgh")


def test_a_sealed_batch_of_unknown_content_is_compared_lane_by_lane(query, source):
    query.batch(query.run(), 0, both_lanes(source), content=None)
    assert query.batch(query.run(), 0, both_lanes(source), content=None) is None
    moved = [both_lanes(source)[1], both_lanes(source)[0]]
    for other in ([[rows_of("abc", (source, 0, 0))], []], [[], [], [rows_of("x", (source, 1, 2))]], [[], []], moved):
        with pytest.raises(ReplayDiffers):
            query.batch(query.run(), 0, other, content=None)
    assert sorted(query.values()) == list("abcd")


def test_unaligned_or_unplaced_rows_are_remembered(query, source):
    run = query.run()
    query.batch(run, 0, [[], []])
    assert query.ledger.query().aligned is None
    query.batch(run, 1, both_lanes(source))
    assert query.ledger.query().aligned is True
    query.batch(run, 2, [[rows_of("no position")]])
    assert query.ledger.query().aligned is False
    query.batch(run, 3, both_lanes(source))
    assert query.ledger.query().aligned is False


def test_adopting_rows_without_a_position_is_refused(query, source):
    query.batch(query.run(), 0, both_lanes(source))
    with pytest.raises(OtherCheckpoint, match="a row has no source position"):
        query.batch(query.run("adopter", "new", may_adopt=True), 0, [[rows_of("x")]], [(source, 0)])


def test_the_seal_commits_the_batchs_ends_and_never_moves_an_adopted_query_back(query, source):
    """Rows that the query filtered away count as processed; partitions without rows do not expire."""
    sources = [(source, 0), (source, 1)]
    query.batch(query.run(), 0, both_lanes(source), log_offsets={(source, 0): 7, (source, 1): 4})
    assert query.ledger.offsets(sources) == {(source, 0): 7, (source, 1): 4}
    adopter = query.run("adopter", "new", may_adopt=True)
    query.batch(adopter, 0, [[rows_of("a", (source, 0, 0))]], sources, log_offsets={(source, 0): 1, (source, 1): 9})
    assert query.ledger.offsets(sources) == {(source, 0): 7, (source, 1): 9}


def test_lanes_may_be_unknown_until_they_have_reported(query, source):
    run = query.run(single=True)
    run.open(0, None, BatchLog("0"))
    run.close()
    reports = [query.lane(run, 0, rows, i, None, content="0") for i, rows in enumerate(both_lanes(source))]
    sealer = query.run(run.run.run, single=True)
    sealer.resume(0)
    sealer.seal(0, 2, reports, BatchLog("0"))
    row = query.ledger.query()
    assert (row.next_batch, row.lanes, row.at_rest) == (1, 2, True)
    assert query.run().open(0, None, BatchLog("0")).skip


@pytest.mark.parametrize("lane", [5, 70])
def test_a_lane_that_a_killed_run_left_open_is_fenced_though_nobody_knew_of_it(query, source, brokers, lane):
    """Of a format. Lane 70 is beyond what is fenced without asking; its ledger row hangs."""
    query.batch(query.run(), 0, both_lanes(source), content="0")
    dead = query.run(single=True)
    dead.open(1, None, BatchLog("1"))
    query.ledger.ensure(lane + 1)
    left = Step.FLUSH if lane == 5 else Step.COMMIT
    with pytest.raises(Crash):
        query.lane(dead, 1, [rows_of("e", (source, 0, 2))], lane, None, before_step=crash_at(left), content="1")
    run = query.run(single=True)
    plan = run.open(1, None, BatchLog("1"))
    assert not any((plan.skip, plan.sealed, plan.committed))
    brokers.settle(query.topic)
    assert sorted(query.values()) == list("abcd")
    reports = [query.lane(run, 1, rows, i, None, content="1") for i, rows in enumerate([[rows_of("e")], []])]
    run.seal(1, 2, reports, BatchLog("1"))
    assert sorted(query.values()) == list("abcde")


def test_a_single_batch_can_not_be_sealed_once_another_run_has_signed(query, source):
    run = query.run(single=True)
    run.open(0, None)
    run.close()
    reports = [query.lane(run, 0, rows, i, None) for i, rows in enumerate(both_lanes(source))]
    query.run("newer").open(0, None)
    with pytest.raises(Fenced, match="run newer took over"):
        query.run(run.run.run, single=True).resume(0)
    assert query.ledger.query().next_batch == 0
    assert len(reports) == 2


def test_a_run_that_slept_until_the_brokers_forgot_its_row_goes_on(query, source, brokers):
    run = query.run()
    query.batch(run, 0, [[rows_of("a", (source, 0, 0))]], content="0")
    brokers.delete_group(query.query)
    assert query.ledger.query() is None
    query.batch(run, 1, [[rows_of("b", (source, 0, 1))]], content="1")
    assert query.ledger.query().next_batch == 2
    assert sorted(query.values()) == ["a", "b"]


@pytest.mark.parametrize("single", [False, True])
def test_a_run_that_wakes_up_after_it_was_taken_over_does_not_disturb_its_successor(query, source, single):
    old, new = query.run("old", single=single), query.run("new")
    old.open(0, 2)
    new.open(0, 2)
    with pytest.raises(Fenced, match="run new took over"):
        query.run("old", single=True).resume(0) if single else old.open(1, 2)
    query.batch(new, 0, both_lanes(source))
    assert sorted(query.values()) == list("abcd")


def test_two_queries_share_one_ledger_topic(query, brokers, source, topic):
    other = brokers.query(query.query + "-1", topic(name="out"))
    one, two = query.run(), other.run()
    one.open(0, 2)
    two.open(0, 1)
    for lane, rows in enumerate(both_lanes(source)):
        query.lane(one, 0, rows, lane, 2)
    other.lane(two, 0, [rows_of("x")], 0, 1)
    assert driver_transactional_id(query.query) != other.query + "-0"
    assert (sorted(query.values()), other.values()) == (list("abcd"), ["x"])


def test_a_transaction_timeout_above_the_brokers_maximum_is_refused(query):
    long = query.but(client={"transaction.timeout.ms": "1000000"})
    with pytest.raises(TransactionTimeoutTooLong, match="INVALID_TRANSACTION_TIMEOUT"):
        long.run().open(0, 1)
    assert query.ledger.query() is None
