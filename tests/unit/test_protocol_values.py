"""Names, ledger rows and positions: what must never change between versions, and what must never collide."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_eos.errors import LedgerUnreadable, SparkEosError
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow, decode_lane, decode_query
from spark_eos.protocol.names import driver_transactional_id, lane_partition, lane_transactional_id
from spark_eos.protocol.positions import Fingerprint, SourceRange, Tally, is_aligned, offsets_after, offsets_in_log
from spark_eos.protocol.reports import check_reports
from spark_eos.protocol.transaction import LaneReport, Outcome

QUERY = QueryRow(
    8, "c" * 36, "r" * 36, "2026-01-01T00:00:00.000+00:00", 4, content="0" * 16, aligned=False, adoptions=1
)
LANE = LaneRow(3, 8, "c" * 36, "r" * 36, 2, 4, Fingerprint(10, "abc"))


def test_transactional_ids_of_a_query_begin_with_its_id_and_never_meet_another_querys():
    queries = ["refunds", "refunds-1", "refunds-driver", "refunds-1-1"]
    ids = [driver_transactional_id(q) for q in queries] + [
        lane_transactional_id(q, lane) for q in queries for lane in (0, 1, 11)
    ]
    assert len(set(ids)) == len(ids)
    assert lane_transactional_id("refunds", 3) == "refunds-3"


def test_ledger_rows_survive_the_ledger():
    assert decode_query(8, QUERY.metadata()) == QUERY
    assert decode_lane(3, 8, LANE.metadata()) == LANE
    assert (QUERY.partition, LANE.partition, lane_partition(0)) == (0, 4, 1)


def test_ledger_rows_stay_far_below_kafkas_limit_for_metadata():
    assert max(len(QUERY.metadata()), len(LANE.metadata())) < 4096 / 8


@pytest.mark.parametrize(
    "metadata", ["", "not json", "[]", "{}", json.dumps({"v": 2}), json.dumps({"v": 4}), json.dumps({"v": 1, "x": 0})]
)
def test_rows_that_are_not_ours_or_newer_are_refused_by_name(metadata):
    for decode in (lambda: decode_query(1, metadata), lambda: decode_lane(0, 1, metadata)):
        with pytest.raises(LedgerUnreadable, match="partition"):
            decode()


def test_lanes_to_fence_are_those_with_a_row_and_those_the_last_run_started():
    assert LedgerView().lanes_to_fence == 0
    assert LedgerView(query=QUERY).lanes_to_fence == 4
    assert LedgerView(query=QUERY, lanes={9: LANE}).lanes_to_fence == 10


def digest(*rows: int) -> bytes:
    return b"".join(row.to_bytes(8, "little") for row in rows)


def test_the_tally_joins_ranges_and_its_fingerprint_does_not_depend_on_how_rows_were_batched():
    one, two = Tally(), Tally()
    one.add(3, [SourceRange("t", 0, 5, 7, 3)], digest(1, 2, 3))
    two.add(1, [SourceRange("t", 0, 7, 7, 1)], digest(1))
    two.add(2, [SourceRange("t", 0, 5, 6, 2)], digest(2, 3))
    assert one.ranges == two.ranges == (SourceRange("t", 0, 5, 7, 3),)
    assert one.fingerprint == two.fingerprint
    two.add(1, [SourceRange("t", 1, 0, 0, 1)], digest(4))
    assert one.fingerprint != two.fingerprint


def test_a_fingerprint_tells_other_rows_and_other_orders_and_only_other_rows_are_not_the_same():
    def of(*rows: int) -> Fingerprint:
        tally = Tally()
        tally.add(len(rows), [SourceRange("t", 0, 0, 3, len(rows))], digest(*rows))
        return tally.fingerprint

    assert of(1, 2, 3, 4) != of(1, 2, 4, 3)
    assert of(1, 2, 3, 4).same_rows(of(1, 2, 4, 3))
    assert not of(1, 2, 3, 4).same_rows(of(1, 1, 2, 2))
    assert not of(1, 2, 3, 4).same_rows(of(1, 2, 2, 4))
    before = Fingerprint(4, of(1, 2, 3, 4).sources)  # of a ledger row of version 2
    assert before.same_rows(of(1, 1, 2, 2))
    assert not before.same_rows(of(1, 2, 3))


def test_rows_of_version_2_are_still_read():
    """As version 0.1 wrote them."""
    query = '{"v":2,"checkpoint":"c","run":"r","since":"s","lanes":4,"content":null,"aligned":true,"adoptions":1'
    query += ',"at_rest":true}'
    found = decode_query(8, query)
    assert (found.query, found.floor, found.has_floor, found.went_back) == (None, None, True, False)
    assert not replace(found, adoptions=0).has_floor
    lane = '{"v":2,"checkpoint":"c","run":"r","attempt":0,"lanes":2,"rows":3,"digest":"d","content":"x","adoptions":0}'
    assert decode_lane(0, 8, lane).fingerprint == Fingerprint(3, "d", None, None)


def test_offsets_to_commit_are_one_past_the_last_and_never_below_the_floor():
    ranges = [SourceRange("t", 0, 5, 7, 3), SourceRange("t", 0, 1, 9, 2), SourceRange("t", 1, 0, 3, 4)]
    assert offsets_after(ranges, {("t", 1): 50}) == {("t", 0): 10, ("t", 1): 50}


def test_lanes_are_aligned_while_no_source_partition_is_in_two_of_them():
    here, there = SourceRange("t", 0, 0, 1, 2), SourceRange("t", 1, 0, 1, 2)
    assert is_aligned([[here], [there], []])
    assert not is_aligned([[here], [there, here]])


@pytest.mark.parametrize(
    ("entry", "offsets"),
    [
        ({"t": {"0": 3, "1": 4}}, {("t", 0): 3, ("t", 1): 4}),
        ({"offset": 10, "timestamp": 1000}, {}),
        ({"t": {"0": True}}, {}),
        ({"t": {"zero": 1}}, {}),
        (17, {}),
        ({}, {}),
    ],
)
def test_kafka_offsets_are_told_from_other_sources_in_the_offset_log(entry, offsets):
    assert offsets_in_log(entry) == offsets


def test_reports_survive_the_way_to_the_driver():
    report = LaneReport(7, 3, Outcome.COMMITTED, Fingerprint(2, "d"), 1, (SourceRange("t", 0, 1, 2, 2),))
    assert LaneReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("lanes", [[0], [0, 0], [0, 1, 2], [0, 2], []])
def test_a_batch_is_whole_only_when_each_lane_has_reported_once(lanes):
    reports = [LaneReport(7, lane, Outcome.EMPTY, Fingerprint(0, "")) for lane in lanes]
    with pytest.raises(SparkEosError, match="2 lanes were started"):
        check_reports(7, 2, reports)
    check_reports(7, 2, [LaneReport(7, lane, Outcome.EMPTY, Fingerprint(0, "")) for lane in (1, 0)])
    with pytest.raises(SparkEosError, match="6/1"):
        check_reports(7, 2, [LaneReport(7, 0, Outcome.EMPTY, Fingerprint(0, "")), _other_batch()])


def _other_batch() -> LaneReport:
    return LaneReport(6, 1, Outcome.EMPTY, Fingerprint(0, ""))
