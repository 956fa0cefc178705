"""The warehouse job, SIGKILLed between a batch's data files and the commit of Delta's log."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from demo_runs import JobProcess
from job_process import exit_code, job
from warehouse_files import committed_files, fill, ids_in

JOB = Path(__file__).parents[2] / "jobs" / "refunds_to_warehouse.py"
PARTITIONS, ROWS = 4, 200
LIFE_S = 120


def until_data_files(process: JobProcess, table: Path) -> None:
    deadline = time.monotonic() + LIFE_S
    while not list(table.glob("*.parquet")):
        assert process.exit_code is None, "the job ended before it had written"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_batch_killed_before_its_commit_is_in_the_table_once(kafka, topic, tmp_path) -> None:
    refunds, table = topic(PARTITIONS, name="refunds"), tmp_path / "table"
    expected = fill(kafka.bootstrap_servers, refunds, PARTITIONS, ROWS)
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic", refunds, "--table", str(table)]
    options += ["--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    # One task after the other: the first data file is there long before the last.
    command = [sys.executable, str(JOB), *options, "--master", "local[1]"]
    with job(command, tmp_path) as process:
        until_data_files(process, table)
        process.kill(whole_tree=True)
    left = set(table.glob("*.parquet"))
    assert left, "data files"
    assert list(committed_files(table)) == [], "and no commit"
    with job(command, tmp_path) as process:
        assert exit_code(process, tmp_path, LIFE_S) == 0, (tmp_path / "job.log").read_text(encoding="utf-8")[-3_000:]
    assert not left & set(committed_files(table)), "what the killed batch had written is not part of the table"
    assert ids_in(table) == expected
