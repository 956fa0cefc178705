"""The warehouse job, SIGKILLed between a batch's data files and the commit of Delta's log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
from confluent_kafka import Producer
from demo_runs import JobProcess

JOB = Path(__file__).parents[2] / "jobs" / "refunds_to_warehouse.py"
PARTITIONS, ROWS = 4, 200
LIFE_S = 120


def fill(brokers: str, topic: str) -> set[str]:
    """Refunds in each partition; their ids."""
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(PARTITIONS * ROWS):
        refund = {"refund_id": f"RFD-{number}", "merchant": "MER-1", "amount_paise": number}
        producer.produce(topic, json.dumps(refund).encode(), b"MER-1", number % PARTITIONS)
    producer.flush()
    return {f"RFD-{number}" for number in range(PARTITIONS * ROWS)}


def committed_files(table: Path) -> Iterator[Path]:
    """The data files that Delta's log names."""
    for commit in (table / "_delta_log").glob("*.json"):
        actions = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
        yield from (table / action["add"]["path"] for action in actions if "add" in action)


def until_data_files(job: JobProcess, table: Path) -> None:
    deadline = time.monotonic() + LIFE_S
    while not list(table.glob("*.parquet")):
        assert job.exit_code is None, "the job ended before it had written"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def run_to_its_end(job: JobProcess, log: Path) -> None:
    deadline = time.monotonic() + LIFE_S
    while job.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert job.exit_code == 0, log.read_text(encoding="utf-8")[-3_000:]


def test_a_batch_killed_before_its_commit_is_in_the_table_once(kafka, topic, tmp_path) -> None:
    refunds, table, log = topic(PARTITIONS, name="refunds"), tmp_path / "table", tmp_path / "job.log"
    expected = fill(kafka.bootstrap_servers, refunds)
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic", refunds, "--table", str(table)]
    options += ["--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    # One task after the other: the first data file is there long before the last.
    command = [sys.executable, str(JOB), *options, "--master", "local[1]"]
    job = JobProcess(command, tmp_path, log)
    try:
        until_data_files(job, table)
        job.kill(whole_tree=True)
    finally:
        job.end()
    left = set(table.glob("*.parquet"))
    assert left, "data files"
    assert list(committed_files(table)) == [], "and no commit"
    job = JobProcess(command, tmp_path, log)
    try:
        run_to_its_end(job, log)
    finally:
        job.end()
    files = list(committed_files(table))
    assert not left & set(files), "what the killed batch had written is not part of the table"
    ids = [str(each) for file in files for each in pyarrow.parquet.read_table(file)["refund_id"]]
    assert len(ids) == len(expected)
    assert set(ids) == expected
