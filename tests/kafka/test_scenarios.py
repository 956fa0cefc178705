"""The scenarios of docs/SCENARIOS.md, each told as `make scenarios` tells it: all promises are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline import World
from scenario import Scenario
from scenarios import SCENARIOS, run

ROOT = Path(__file__).parents[2]
PROMISES = {3: 6, 4: 7, 8: 6, 9: 6, 11: 8}


QUICK = (3,)


@pytest.mark.parametrize("number", [n if n in QUICK else pytest.param(n, marks=pytest.mark.large) for n in SCENARIOS])
def test_a_scenario_keeps_its_promises(number, capsys):
    broken = run(number, SCENARIOS[number])
    told = capsys.readouterr().out
    assert broken == [], told
    assert told.count("✓") == PROMISES[number], told


def test_a_promise_that_is_not_kept_is_told(capsys):
    def tell(story, world: World) -> None:
        story.promise("the broker runs", world.broker().is_running())
        story.promise("it has no address", not world.kafka.bootstrap_servers)

    assert run(99, Scenario("A promise too many", tell)) == ["99: it has no address"]
    told = capsys.readouterr().out
    assert "✓ the broker runs" in told
    assert "✗ it has no address" in told


def test_only_numbers_that_there_are_can_be_asked_for():
    program = [sys.executable, str(ROOT / "reliability" / "scenarios.py"), "--only", "3,5"]
    path = os.pathsep.join([str(ROOT / "jobs"), str(ROOT / "tests")])
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, timeout=60, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 2
    assert "no scenario 5; there are 3, 4, 8, 9, 11" in done.stderr
