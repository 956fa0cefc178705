"""The reconciliation finds each difference, and nothing where there is none; and what merchants are told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from delta.tables import DeltaTable
from demo_pipeline import Downstream
from generate_settlements import generate
from jobs_pipeline import JobsPipeline
from reconcile_leg import KINDS, Leg, compare
from reconcile_report import as_json, print_table
from rich.console import Console
from tests_support import committed_values

SIDES = "id string, content string, paise bigint, pending boolean"
A, B, C = ("a", "A", 100), ("a", "B", 200), ("a", "C", 400)
"""Rows of one id with different contents."""
OTHER = ("b", "B", 200)
MORE = ("a", "A", 101)
"""As A, and the amount is another."""
NO_ID, NO_CONTENT, NO_MONEY = (None, "A", 100), ("a", None, 100), ("a", "A", None)

Row = tuple[str | None, str | None, int | None]


def leg_of(spark, due: list[Row], found: list[Row], pending: Sequence[Row] = ()) -> Leg:
    """
    Args:
        pending: rows that are due, too, and may not be there yet.
    """
    all_due = [(*row, False) for row in due] + [(*row, True) for row in pending]
    sides = (spark.createDataFrame(rows, SIDES) for rows in (all_due, [(*row, None) for row in found]))
    return compare("leg", *sides)


CASES: list[tuple[str, list[Row], list[Row], dict[str, int]]] = [
    ("nothing", [], [], {}),
    ("in another order", [A, OTHER], [OTHER, A], {}),
    ("lost", [A, OTHER], [A], {"lost": 1}),
    ("three times", [A], [A, A, A], {"doubled": 2}),
    ("another content", [A], [B], {"wrong": 1}),
    ("another amount", [A], [MORE], {"wrong": 1}),
    ("no amounts at all", [NO_MONEY], [NO_MONEY], {}),
    ("twice what nothing calls for", [], [A, A], {"unknown": 2}),
    ("lost, and what nothing calls for", [A, OTHER], [A, ("c", "C", 400)], {"lost": 1, "unknown": 1}),
    ("due twice", [A, A], [A, A], {}),
    ("due twice, found once", [A, A], [A], {"lost": 1}),
    ("due twice, one has another content", [A, A], [A, B], {"wrong": 1}),
    ("due twice, found once with another content", [A, A], [B], {"lost": 1, "wrong": 1}),
    ("two contents, in another order", [A, B], [B, A], {}),
    ("two contents, one lost", [A, B], [A], {"lost": 1}),
    ("two contents, the one twice for the other", [A, B], [A, A], {"lost": 1, "doubled": 1}),
    ("two contents, one doubled", [A, B], [A, A, B], {"doubled": 1}),
    ("two contents, one changed", [A, B], [A, C], {"wrong": 1}),
    ("two contents, one changed, one doubled", [A, B], [A, A, C], {"doubled": 1, "wrong": 1}),
    ("a further content", [A], [A, C], {"doubled": 1, "wrong": 1}),
    ("no id", [NO_ID], [NO_ID], {}),
    ("no id, lost", [A, NO_ID], [A], {"lost": 1}),
    ("no id, and nothing calls for it", [A], [A, NO_ID], {"unknown": 1}),
    ("no content", [NO_CONTENT], [NO_CONTENT], {}),
    ("no content, lost", [NO_CONTENT, NO_CONTENT], [NO_CONTENT], {"lost": 1}),
    ("no content where one is due", [A], [NO_CONTENT], {"wrong": 1}),
    ("a content where none is due", [NO_CONTENT], [A], {"wrong": 1}),
]


@pytest.mark.parametrize(("due", "found", "differences"), [each[1:] for each in CASES], ids=[each[0] for each in CASES])
def test_rows_are_compared_by_id_content_and_amount(spark, due, found, differences):
    leg = leg_of(spark, due, found)
    assert leg.differences == dict.fromkeys(KINDS, 0) | differences
    assert (leg.due, leg.found) == (len(due), len(found))
    assert [leg.paise_due or 0, leg.paise_found or 0] == [sum(row[2] or 0 for row in side) for side in (due, found)]
    counts = leg.differences
    assert leg.due + counts["doubled"] + counts["unknown"] == leg.found + counts["lost"]
    assert leg.examples.keys() == differences.keys()
    assert leg.is_fine(allow_pending=False) is leg.is_fine(allow_pending=True) is (not differences)


PENDING_CASES: list[tuple[str, list[Row], list[Row], list[Row], dict[str, int], int]] = [
    ("not there yet", [], [A], [], {"pending": 1}, 100),
    ("there already", [], [A], [A], {}, 0),
    ("one of two is there", [], [A, A], [A], {"pending": 1}, 100),
    ("beside one that is there", [A], [B], [A], {"pending": 1}, 200),
    ("beside the same one that is there", [A], [A], [A], {"pending": 1}, 100),
    ("beside one that is lost", [A], [B], [], {"pending": 1, "lost": 1}, 200),
    ("beside the same one that is lost", [A], [A], [], {"pending": 1, "lost": 1}, 100),
    ("there already, beside one that is lost", [A], [B], [B], {"lost": 1}, 0),
    ("beside one that is doubled", [A], [B], [A, A], {"pending": 1, "doubled": 1}, 200),
    ("beside one that has another content", [A], [B], [C], {"pending": 1, "wrong": 1}, 200),
    ("there with another content", [], [A], [B], {"wrong": 1}, 100),
    ("no id", [A], [NO_ID], [A], {"pending": 1}, 100),
]


@pytest.mark.parametrize(
    ("due", "pending", "found", "differences", "paise"),
    [each[1:] for each in PENDING_CASES],
    ids=[each[0] for each in PENDING_CASES],
)
def test_what_may_still_come_is_pending_and_hides_nothing_else(spark, due, pending, found, differences, paise):
    leg = leg_of(spark, due, found, pending)
    assert leg.differences == dict.fromkeys(KINDS, 0) | differences
    assert (leg.paise_pending or 0) == paise
    assert leg.is_fine(allow_pending=True) is (differences.keys() <= {"pending"})
    assert leg.is_fine(allow_pending=False) is (not differences)


def test_a_leg_whose_sums_differ_is_not_fine():
    leg = Leg("leg", 3, 3, 300, 200, None, dict.fromkeys(KINDS, 0))
    assert not leg.is_fine(allow_pending=True)
    leg = Leg("leg", 3, 2, 300, 200, 100, dict.fromkeys(KINDS, 0) | {"pending": 1})
    assert (leg.is_fine(allow_pending=True), leg.is_fine(allow_pending=False)) == (True, False)
    assert not replace(leg, paise_found=201).is_fine(allow_pending=True)


def test_the_table_names_rows_without_an_id_and_the_money_that_is_pending(spark, capsys):
    leg = leg_of(spark, [], [NO_ID, A], pending=[OTHER])
    assert leg.examples == {"unknown": ["(no id)", "a"], "pending": ["b"]}
    print_table(Console(width=200), 0, [leg], False)
    told = capsys.readouterr().out
    assert "such as (no id), a" in told
    assert "leg: 200 paise due (200 of them pending), 200 found" in told


@pytest.fixture(scope="module")
def pipeline(spark, kafka, tmp_path_factory):
    """A pipeline that has done its work."""

    def topic(partitions: int, name: str) -> str:
        kafka.create_topic(f"reconciled-{name}", partitions)
        return f"reconciled-{name}"

    pipeline = JobsPipeline(spark, kafka.bootstrap_servers, topic, tmp_path_factory.mktemp("pipeline"), "reconciled")
    pipeline.settle(generate(seed=5, events=1_000, merchants=3))
    pipeline.refund()
    pipeline.store()
    pipeline.notify()
    return pipeline


def differences(pipeline: JobsPipeline) -> dict[str, dict[str, int]]:
    found = {name: {k: n for k, n in leg.differences.items() if n} for name, leg in pipeline.reconcile().items()}
    return {name: kinds for name, kinds in found.items() if kinds}


@pytest.mark.large
@pytest.mark.delta
def test_a_pipeline_at_rest_has_no_differences(pipeline):
    legs = pipeline.reconcile()
    names = ["refunds", "audit rows", "dead letters", "warehouse", "notifications"]
    assert {name: leg.differences for name, leg in legs.items()} == {name: dict.fromkeys(KINDS, 0) for name in names}
    assert legs["notifications"].due == legs["notifications"].found > 3
    assert legs["refunds"].due == legs["warehouse"].found > 450
    assert legs["refunds"].paise_due == legs["warehouse"].paise_found > 0
    assert legs["audit rows"].paise_due is None
    report = json.loads(as_json(2_000, list(legs.values()), True))
    assert report["legs"][0]["differences"]["lost"] == 0


@pytest.mark.large
@pytest.mark.delta
def test_a_merchant_is_told_of_a_window_once_and_right(pipeline):
    told = [json.loads(value) for value in committed_values(pipeline.brokers, pipeline.topics["notifications"])]
    assert max(Counter((each["merchant"], each["window_start"]) for each in told).values()) == 1
    sums: Counter[Any] = Counter()
    for row in pipeline.rows().collect():
        start = row.at.replace(second=0, microsecond=0)
        sums[row.merchant, f"{start:%Y-%m-%dT%H:%M:%SZ}"] += row.amount_paise
    for each in told:
        assert sums[each["merchant"], each["window_start"]] == each["amount_paise"], each


@pytest.mark.large
@pytest.mark.delta
def test_each_difference_is_found_where_it_is(pipeline):
    assert differences(pipeline) == {}
    first = pipeline.rows().orderBy("kafka_partition", "kafka_offset").first()
    table = DeltaTable.forPath(pipeline.spark, str(pipeline.table))
    table.delete(f"refund_id = '{first.refund_id}'")
    assert differences(pipeline)["warehouse"] == {"lost": 1}
    table.update("merchant = 'MER-1001'", {"amount_paise": "amount_paise + 1"})
    assert differences(pipeline)["warehouse"]["wrong"] > 100
    pipeline.write("audit", {"refund_id": "RFD-none"})
    pipeline.write("dead_letter", b"not a settlement")
    found = differences(pipeline)
    assert found["audit rows"] == found["dead letters"] == {"unknown": 1}
    pipeline.settle(generate(seed=6, events=100, merchants=3))
    found = differences(pipeline)
    assert found["refunds"]["pending"] == found["audit rows"]["pending"] > 20
    assert "lost" not in found["refunds"]


@pytest.mark.large
@pytest.mark.delta
def test_a_refund_in_the_place_of_another_of_its_id_ends_the_job_with_1(spark, kafka, topic, query_id, tmp_path):
    pipeline = JobsPipeline(spark, kafka.bootstrap_servers, topic, tmp_path, query_id)
    settlement = {"settlement_id": "STL-1", "merchant": "MER-1", "sequence": 1, "amount_paise": 300, "reason": "none"}
    settlement |= {"at": "2026-01-01T09:30:00Z"}
    for paise in (100, 200):
        pipeline.write("source", settlement | {"refund_paise": paise}, b"MER-1")
    pipeline.refund()
    (first,) = [
        value for value in committed_values(kafka.bootstrap_servers, pipeline.topics["refunds"]) if b"100" in value
    ]
    pipeline.topics["refunds"] = topic(2, name="refunds")
    for _ in range(2):
        pipeline.write("refunds", first, b"MER-1")
    rest = Downstream(kafka.bootstrap_servers, tmp_path, pipeline.topics, f"{query_id}-refunds", lambda _: None)
    pipeline.store(table=str(rest.table))
    fine, report = rest.reconcile()  # of exit code 1; any other than 0 and 1 raises
    assert not fine, report
    assert "refunds: 300 paise due, 200 found" in report
    assert "refunds: lost (due, and not there), such as RFD-" in report
    assert "refunds: doubled (there more often than due), such as RFD-" in report
