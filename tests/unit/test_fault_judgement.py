"""The fault matrix judges: a fault that did not happen is never a pass, and every anomaly is told."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from fault import conclude
from fault_cells import RunResult, judge, marked, with_findings
from pipeline import Pipeline
from rich.console import Console

from spark_eos.checker import Findings

GOOD = RunResult("batch 1", True, 2.0, 25.0)
LOST = Findings()
LOST.add("lost", "in[0]@7", 3)


@pytest.mark.parametrize(
    ("result", "anomalies", "code"),
    [
        (GOOD, {}, 0),
        (replace(GOOD, hit=False), {}, 2),
        (replace(GOOD, hit=False, recovery_s=None), {}, 2),
        (replace(GOOD, recovery_s=25.1), {"slow": 1}, 1),
        (replace(GOOD, recovery_s=None), {"stuck": 1}, 1),
        (with_findings([GOOD], LOST)[0], {"lost": 3}, 1),
    ],
)
def test_each_way_to_fail_is_told(result, anomalies, code, capsys):
    verdict = judge([GOOD, result, GOOD])
    assert verdict.anomalies == anomalies
    assert conclude(Console(), [judge([GOOD]), verdict]) == code
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"fault: 4 runs, {sum(anomalies.values())} anomalies"
    assert ("did not happen" in said) == (code == 2)


def test_what_was_found_in_a_shared_pipeline_counts_once_and_names_its_places():
    verdict = judge(with_findings([GOOD, GOOD], LOST))
    assert verdict.anomalies == {"lost": 3}
    assert verdict.examples == {"lost": ["in[0]@7"]}


@pytest.fixture
def pipeline(tmp_path) -> Pipeline:
    for name in ("marks", "checkpoint/commits"):
        (tmp_path / name).mkdir(parents=True)
    return Pipeline("127.0.0.1:1", "q", tmp_path)


def test_a_fault_counts_with_its_mark_and_its_evidence_only(pipeline):
    def result() -> RunResult:
        return marked(pipeline, "1-0", 1, "stop", (".resumed",))

    assert not result().hit
    pipeline.marks.write("1-0")
    assert not result().hit
    pipeline.marks.write("1-0.resumed")
    assert result().hit
    assert result().recovery_s is None


def test_recovery_is_from_the_fault_to_the_commit_of_its_batch(pipeline):
    pipeline.marks.write("1-0")
    commit = pipeline.checkpoint.folder / "commits" / "1"
    commit.touch()
    os.utime(commit, (0, pipeline.marks.read("1-0")["at"] + 3))
    assert marked(pipeline, "1-0", 1, "kill").recovery_s == pytest.approx(3, abs=0.01)
