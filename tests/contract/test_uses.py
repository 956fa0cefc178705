"""Ways to use a query that are not one pipeline, run again as it was: each is exact, or refused before a row is
written."""

from __future__ import annotations

import pytest
from contract_batches import both_lanes, half_written, refused_before_anyone_is_disturbed
from tests_support import rows_of

from spark_eos.errors import BatchAbandoned, OtherCheckpoint, OtherQuery, ReplayDiffers, SecondWrite
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.decide import Policy
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import Run
from spark_eos.protocol.transaction import Outcome


@pytest.fixture
def source(topic):
    return topic(2, name="in")


def test_a_batch_is_never_passed_over(query, source):
    run = query.run()
    query.batch(run, 0, both_lanes(source), content="0")
    run.open(1, 2, BatchLog("1"))
    with pytest.raises(BatchAbandoned, match="batch 1 was never written, and batch 2 comes") as raised:
        run.open(2, 2, BatchLog("2"))
    assert "offsets/" in raised.value.do
    refused_before_anyone_is_disturbed(query, BatchAbandoned, 2, says="batch 1 was never written")
    refused_before_anyone_is_disturbed(query, BatchAbandoned, 2, may_adopt=True, says="never written")
    query.batch(query.run(may_pass=True), 2, [[rows_of("e", (source, 0, 2))]], content="2")
    assert sorted(query.values()) == list("abcde")


def test_a_second_write_in_a_batch_is_told_from_a_repeated_one(query, source):
    run = query.run()
    query.batch(run, 0, both_lanes(source))
    assert query.batch(run, 0, both_lanes(source)) is None
    for other in ([[rows_of("xy")], []], [[rows_of("ab", (source, 0, 0))], []], [[], []]):
        with pytest.raises(SecondWrite, match=r"already written this batch: its lane \d"):
            query.batch(run, 0, other)
    # By another object of the same run, too: a sink that is made anew.
    with pytest.raises(SecondWrite):
        query.batch(query.run(run.run.run), 0, [[rows_of("xy")], []])
    query.batch(query.run(run.run.run), 1, [[], [rows_of("e")]], content="1")
    assert sorted(query.values()) == list("abcde")


def test_a_group_is_one_querys(query, source):
    query.batch(query.run(), 0, both_lanes(source))
    run = query.run("other", may_adopt=True, may_start=True)
    other = Run(f"{query.query}-other", "checkpoint", "other")
    stranger = QueryRun(other, query.ledger, query.open, Policy(may_adopt=True, may_start=True), lambda: "now")
    with pytest.raises(OtherQuery, match=f"the ledger of {query.query}, and this is {query.query}-other"):
        stranger.open(1, 2)
    assert not run.open(1, 2).skip


def test_half_of_a_batch_must_come_again_before_the_other_half_is_written(query, source):
    """Whatever moved: a row from a committed lane to another would be doubled, one the other way lost."""
    half_written(query, source)
    ab, cd = both_lanes(source)
    for moved in ([[rows_of("a", (source, 0, 0))], [rows_of("bcd", (source, 1, 0))]], [[], [*ab, *cd]], [cd, ab]):
        with pytest.raises(ReplayDiffers, match="Nothing was written"):
            query.batch(query.run(), 0, moved, content=None)
        assert sorted(query.values()) == ["a", "b"]
    shuffled = [[rows_of("b", (source, 0, 1)), rows_of("a", (source, 0, 0))], cd]
    reports = query.batch(query.run(), 0, shuffled, content=None)
    assert [report.outcome for report in reports] == [Outcome.SKIPPED, Outcome.COMMITTED]
    assert sorted(query.values()) == list("abcd")


def test_what_is_committed_is_kept_where_it_is_asked_for(query, source):
    half_written(query, source)
    gone = [[rows_of("b", (source, 0, 1))], both_lanes(source)[1]]
    with pytest.raises(ReplayDiffers, match=r"on\.replay\.differs=keep"):
        query.batch(query.run(), 0, gone, content=None)
    query.batch(query.run(may_keep=True), 0, gone, content=None)
    assert sorted(query.values()) == list("abcd")


def test_committed_offsets_never_move_back_whatever_positions_rows_carry(query, source):
    """As those of an aggregation: the largest position of what it is made of."""
    place = (source, 0)
    run, seen = query.run(), []
    query.batch(run, 0, [[rows_of("a", (source, 0, 34))]], content="0", log_offsets={place: 35})
    for kept in (run, query.run()):
        batch = query.ledger.query().next_batch
        log = BatchLog(str(batch), starts={place: 35}, ends={place: 35})
        plan = kept.open(batch, 1, log)
        report = query.lane(kept, batch, [rows_of("b", (source, 0, 19))], plan=plan, content=str(batch))
        seen.append(query.ledger.offsets([place])[place])
        kept.seal(batch, 1, [report], log, plan)
        seen.append(query.ledger.offsets([place])[place])
    # Where no log tells where the batch starts, the lane asks.
    blind = query.run()
    blind.open(3, 1)
    query.lane(blind, 3, [rows_of("c", (source, 0, 3))])
    seen.append(query.ledger.offsets([place])[place])
    assert set(seen) == {35}
    assert query.ledger.query().went_back


def test_a_query_whose_positions_went_back_or_that_has_state_is_not_adopted(query, source):
    place = (source, 0)
    query.batch(query.run(), 0, [[rows_of("a", (source, 0, 4))]], content="0", log_offsets={place: 5})
    stateful = BatchLog("new", ends={place: 0}, stateful=True)
    with pytest.raises(OtherCheckpoint, match="keeps state"):
        query.run("adopter", "new", may_adopt=True).open(0, 1, stateful)
    log = {"content": "1", "log_offsets": {place: 9}, "starts": {place: 5}}
    query.batch(query.run(), 1, [[rows_of("b", (source, 0, 1))]], **log)
    refused_before_anyone_is_disturbed(query, OtherCheckpoint, 0, checkpoint="new", may_adopt=True, says="from before")


def test_rows_below_the_floor_are_written_again_once_the_sources_have_passed_it(query, source):
    place = (source, 0)
    query.batch(query.run(), 0, [[rows_of("abc", (source, 0, 0))]], content="0", log_offsets={place: 3})
    adopted = query.run("adopter", "new", may_adopt=True)
    first = query.batch(adopted, 0, [[rows_of("ab", (source, 0, 0))]], content="n0", log_offsets={place: 2})
    assert (first[0].dropped, query.ledger.query().has_floor) == (2, True)
    second = query.batch(adopted, 1, [[rows_of("cd", (source, 0, 2))]], content="n1", log_offsets={place: 4})
    assert (second[0].dropped, query.ledger.query().has_floor) == (1, False)
    for run, batch in ((adopted, 2), (query.run("later", "new"), 3)):
        log = {place: 5}
        report = query.batch(run, batch, [[rows_of("e", (source, 0, 1))]], content=f"n{batch}", log_offsets=log)
        assert report[0].dropped == 0


def test_a_partition_that_an_adopted_query_comes_to_later_has_a_floor_too(query, source):
    one, two = (source, 0), (source, 1)
    query.batch(query.run(), 0, both_lanes(source), log_offsets={one: 2, two: 2})
    adopted = query.run("adopter", "new", may_adopt=True)
    query.batch(adopted, 0, [[rows_of("a", (source, 0, 0))]], content="n0", log_offsets={one: 1})
    rows = [[rows_of("bx", (source, 0, 1))], [rows_of("cdy", (source, 1, 0))]]
    query.batch(adopted, 1, rows, content="n1", log_offsets={one: 3, two: 3})
    assert sorted(query.values()) == list("abcdxy")


def test_offsets_that_another_program_committed_are_not_adopted(query, source, brokers):
    place = (source, 0)
    query.batch(query.run(), 0, both_lanes(source), log_offsets={place: 2, (source, 1): 2})
    brokers.commit(query.query, {place: 9})
    log = BatchLog("new", ends={place: 0, (source, 1): 0})
    with pytest.raises(OtherCheckpoint, match=f"another program has committed the group's offset of {source}-0"):
        query.run("adopter", "new", may_adopt=True).open(0, 1, log)
