"""The soak itself, for seconds: a kill of a worker and one of the driver, and all that it promises to leave behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.large

ROOT = Path(__file__).parents[2]
GROUPS = {"at", "driver JVM", "driver Python", "workers", "broker", "topics", "held back"}


@pytest.fixture
def soak(tmp_path):
    """Starts one; its folder is `out`, and everything else it makes in `tmp`."""
    started = []
    (tmp_path / "tmp").mkdir()

    def start(*options: str) -> subprocess.Popen[str]:
        environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT / "jobs")}
        command = [sys.executable, str(ROOT / "reliability" / "soak.py"), "--out", str(tmp_path / "out"), *options]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_short_soak_kills_a_worker_checks_every_row_and_leaves_its_data(soak, tmp_path):
    process = soak("--minutes", "0.25", "--kill-every", "12", "--rate", "100")
    told, _ = process.communicate(timeout=280)
    assert process.returncode == 0, told
    assert re.fullmatch(r"soak: \d+ min, 1 kills, [\d,]+ rows, 0 anomalies", told.splitlines()[-1])
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["kills"] == {"worker": 1}
    assert summary["rows"] >= 2 * 100 * 15
    samples = lines(out / "samples.jsonl")
    assert all(set(sample) >= GROUPS for sample in samples)
    assert samples[-1]["topics"]["lag"] == 0
    assert samples[-1]["topics"]["processed"] == summary["rows"] / 2
    assert all(samples[-1][role]["memory"] > 10 for role in ("driver JVM", "driver Python", "workers", "broker"))
    assert samples[-1]["transactional ids"]["known"] >= 4 + 1, "a lane for each partition, and the driver"
    assert [kill["what"] for kill in lines(out / "kills.jsonl")] == ["worker"]
    assert (out / "soak.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tmp").iterdir()) == [], "everything is cleaned up"


def test_sigterm_ends_it_in_order_with_what_there_is(soak, tmp_path):
    process = soak("--hours", "1", "--rate", "100")
    samples = tmp_path / "out" / "samples.jsonl"
    while process.poll() is None and not (samples.exists() and samples.read_text()):
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=280)
    assert process.returncode == 0, told
    assert re.search(r"soak: \d+ min, 0 kills, [\d,]+ rows, 0 anomalies\n$", told)
    assert (tmp_path / "out" / "soak.png").exists()
