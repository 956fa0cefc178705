"""Staged rows in a lane on a real broker: no transaction while they are computed, none where they can't be kept."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests_support import committed_values

from spark_eos.errors import StagingError
from spark_eos.protocol.transaction import Step
from spark_eos.spark.rows import ArrowRows
from spark_eos.spark.staging import staged


@pytest.mark.parametrize("limit", [0, 10**9], ids=["file", "memory"])
def test_a_lane_fences_and_opens_its_transaction_when_all_its_rows_are_computed(query, limit):
    steps = []

    def computing():
        for value in (b"a", b"b", b"c"):
            assert steps == [Step.PEEK]
            yield pa.RecordBatch.from_pydict({"value": [value]})

    run = query.run()
    run.open(0, 1)
    rows = (ArrowRows(batch, query.topic) for batch in staged(computing(), limit))
    query.lane(run, 0, rows, before_step=steps.append)
    assert steps == list(Step)
    assert sorted(query.values()) == ["a", "b", "c"]


def test_a_lane_that_cannot_be_staged_says_which_and_writes_nothing(query, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    run = query.run()
    run.open(0, 1)
    batches = iter([pa.RecordBatch.from_pydict({"value": [b"a"]})])
    with pytest.raises(StagingError, match=f"query {query.query}, batch 0, lane 0"):
        query.lane(run, 0, (ArrowRows(batch, query.topic) for batch in staged(batches, 0)))
    assert committed_values(query.bootstrap, query.topic, "read_uncommitted") == []
