"""SIGKILL of a Spark task's worker between every two steps of `run_lane`, on a real broker: the output stays exact."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark import cloudpickle
from spark_pipe import Pipe

from spark_eos.protocol.transaction import Step

KILLS = 3
GAPS = [step for step in Step if step is not Step.PEEK]
"""A kill before a step is one after the step before it. Before REPORT the lane is committed and the driver not told."""
PLAN = {1 + turn: GAPS[turn % len(GAPS)].value for turn in range(KILLS * len(GAPS))}
"""Batch to the step it is killed at. Batch 0 of a new query has no rows (see `spark_eos.spark.source`)."""
ROWS = 10

# Workers can't import the tests: send the class itself.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class KillOnce:
    """Kills the worker that comes to the planned step of a batch, the first time, in one of its two lanes."""

    plan: dict[int, str]
    marks: str

    def __call__(self, step, task) -> None:
        if self.plan.get(task.batch) == step and task.lane == task.batch // 3 % task.lanes:
            mark = Path(self.marks, f"{task.batch}-{step}")
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_between_any_two_steps_costs_no_row_and_doubles_none(pipe: Pipe, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    expected = []
    for partition in range(2):
        values = [f"{partition}-{i}" for i in range(ROWS * len(PLAN))]
        pipe.feed(values, partition)
        expected += values
    rows = pipe.rows(maxOffsetsPerTrigger=str(2 * ROWS))
    pipe.run(rows, pipe.sink(before_step=KillOnce(PLAN, str(marks))))
    killed = sorted(mark.name for mark in marks.iterdir())
    assert killed == sorted(f"{batch}-{step}" for batch, step in PLAN.items())
    assert sorted(pipe.values()) == sorted(expected)
