"""The reconciliation finds each difference, and nothing where there is none; and what merchants are told."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from delta.tables import DeltaTable
from generate_settlements import generate
from jobs_pipeline import JobsPipeline
from reconcile_leg import KINDS, compare
from reconcile_report import as_json
from tests_support import committed_values

SIDES = "id string, content string, paise bigint"


def leg_of(spark, due: list[tuple[str, str]], found: list[tuple[str, str]], pending: bool = False):
    rows = [spark.createDataFrame([(*row, 1) for row in side], SIDES) for side in (due, found)]
    return compare("leg", rows[0].selectExpr("*", f"{pending} as pending"), rows[1])


@pytest.mark.parametrize(
    ("due", "found", "differences"),
    [
        ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")], {}),
        ([("a", "1"), ("b", "2")], [("a", "1")], {"lost": 1}),
        ([("a", "1")], [("a", "1"), ("a", "1"), ("a", "1")], {"doubled": 2}),
        ([("a", "1")], [("a", "2")], {"wrong": 1}),
        ([], [("a", "1"), ("a", "1")], {"unknown": 2}),
        ([("a", "1"), ("a", "2")], [("a", "2"), ("a", "1")], {}),
        ([("a", "1"), ("a", "2")], [("a", "1")], {"lost": 1}),
        ([("a", "1")], [("a", "1"), ("a", "3")], {"doubled": 1, "wrong": 1}),
        ([("a", "1"), ("b", "2")], [("a", "1"), ("c", "4")], {"lost": 1, "unknown": 1}),
    ],
)
def test_rows_are_compared_by_id_and_content(spark, due, found, differences):
    leg = leg_of(spark, due, found)
    assert leg.differences == dict.fromkeys(KINDS, 0) | differences
    assert (leg.due, leg.found) == (len(due), len(found))
    assert leg.examples.keys() == differences.keys()
    assert leg.is_fine(allow_pending=False) is (not differences)


def test_what_may_still_come_is_pending(spark):
    leg = leg_of(spark, [("a", "1")], [], pending=True)
    assert leg.differences == dict.fromkeys(KINDS, 0) | {"pending": 1}
    assert (leg.is_fine(allow_pending=True), leg.is_fine(allow_pending=False)) == (True, False)


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
