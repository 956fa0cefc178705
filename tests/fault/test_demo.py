"""The demonstration itself, small: two kills for each job, and the table says what it should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from check_refunds import Figures
from demo import AT_LEAST_ONCE, EXACTLY_ONCE, Result, verdict
from demo_runs import Checkpoint, Outcome, events_per_batch, kill_plan

DEMO = Path(__file__).parents[2] / "jobs" / "demo.py"


@pytest.mark.large
def test_the_demonstration(tmp_path) -> None:
    command = [sys.executable, str(DEMO), "--events", "3000", "--kills", "2"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = dict(_cells(done.stdout))
    must_be_zero = [label for _, label, zero in Figures.rows() if zero]
    assert {label: table[label][0] for label in must_be_zero} == dict.fromkeys(must_be_zero, "0")
    assert int(table["refunds duplicated"][1].rstrip(" ✗").replace(",", "")) > 0
    assert table["refunds lost"][1] == "0"
    assert table["SIGKILLs in the middle of a batch"] == ["2", "2"]
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert len(done.stdout.splitlines()) < 75
    assert "warehouse: kill 1 of 1" in done.stdout
    assert "notifications: kill 1 of 1" in done.stdout
    assert "Everything that is due is there, once." in done.stdout
    assert list(tmp_path.iterdir()) == [], "everything is cleaned up"


def _cells(text: str):
    for line in text.splitlines():
        if line.startswith("│"):
            label, *values = (cell.strip() for cell in line.strip("│").split("│"))
            yield label, values


def test_interrupted_in_the_middle_it_leaves_nothing_behind(tmp_path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(DEMO), "--events", "1000", "--kills", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
    )
    try:
        family = _wait_for_job(process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert alive_after(10, family) == []
    assert list(tmp_path.iterdir()) == []


def _wait_for_job(process: subprocess.Popen) -> list[psutil.Process]:
    """The demonstration's processes, once a job of it has its JVM: Kafka's is one, the job's the other."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        family = psutil.Process(process.pid).children(recursive=True)
        if sum("SparkSubmit" in " ".join(_cmdline(other)) for other in family):
            return family
        time.sleep(0.2)
    raise AssertionError("no job was started")


def alive_after(seconds: float, family: list[psutil.Process]) -> list[list[str]]:
    """Command lines of those that still run; zombies that nobody reaps are dead."""
    deadline = time.monotonic() + seconds
    while (alive := [other for other in family if _cmdline(other)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [_cmdline(other) for other in alive]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_job_ends_with_the_demonstration_even_if_that_is_sigkilled(tmp_path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(DEMO.parent)!r})\n"
        "from pathlib import Path; from demo_runs import JobProcess; import sys, time\n"
        f"job = JobProcess([sys.executable, '-c', 'import time; time.sleep(60)'], Path({str(tmp_path)!r}), "
        f"Path({str(tmp_path / 'log')!r}))\n"
        "print(job.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        job = psutil.Process(int(owner.stdout.readline()))
        deadline = time.monotonic() + 10
        while not (family := [job, *job.children(recursive=True)])[1:]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        owner.kill()
        owner.communicate()
    assert alive_after(10, family) == []


def test_the_plan_is_seeded_and_leaves_enough_batches() -> None:
    assert kill_plan(3, 5) == kill_plan(3, 5) != kill_plan(4, 5)
    for seed in range(50):
        plan = kill_plan(seed, 5)
        batches = 1_000 // events_per_batch(1_000, 5)
        assert sum(kill.after_batches for kill in plan) < batches - 1


def test_the_open_batch_of_a_checkpoint(tmp_path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.open_batch is None
    for name, batch in (("offsets", 0), ("commits", 0), ("offsets", 1)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / str(batch)).touch()
        (tmp_path / name / f".{batch}.crc").touch()
    assert checkpoint.open_batch == 1
    (tmp_path / "commits" / "1").touch()
    assert checkpoint.open_batch is None


@pytest.mark.parametrize(
    ("sure", "usual", "kills", "good", "text"),
    [
        ({}, {"refunds_duplicated": 3}, 2, True, "emitted 3 refunds too many"),
        ({}, {}, 2, False, "shows no duplicate"),
        ({"refunds_lost": 1}, {"refunds_duplicated": 3}, 2, False, "WRONG: refunds lost: 1"),
        ({}, {"refunds_duplicated": 3}, 1, False, "more --events"),
    ],
)
def test_the_verdict(sure, usual, kills, good, text) -> None:
    outcome = Outcome(kills=["batch 1"] * kills)
    results = {EXACTLY_ONCE: Result(Figures(**sure), outcome), AT_LEAST_ONCE: Result(Figures(**usual), outcome)}
    found, line = verdict(results, kills=2)
    assert found is good
    assert re.search(text, line)
