"""What the docs have from the code is what the code has."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_eos.cli import app
from spark_eos.options import ALL_SINK_OPTIONS
from spark_eos.reference import sink_table, source_table
from spark_eos.source_options import SOURCE_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "mark"),
    [("SOURCE.md", "options"), ("SINK.md", "options"), ("reliability.md", "faults"), ("reliability.md", "ways")],
)
def test_the_table_that_is_made_is_up_to_date(page, mark) -> None:
    text = (DOCS / page).read_text()
    assert f"<!-- {mark} -->" in text
    assert runpy.run_path(str(DOCS / "make.py"))["up_to_date"](page) == text, "run `make docs`"


def test_each_option_of_the_sink_is_in_the_table_and_the_command_prints_it() -> None:
    printed = CliRunner().invoke(app, ["options", "sink"]).output
    assert printed == sink_table()
    for option in ALL_SINK_OPTIONS:
        assert f"| `{option.name}` | " in printed


def test_each_row_of_the_recovery_table_names_a_test_that_there_is() -> None:
    text = (DOCS / "SINK.md").read_text()
    named = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", text)
    assert len(named) >= 20
    for file, test in named:
        assert f"def {test}(" in (DOCS.parent / "tests" / file).read_text(), f"{file}::{test}"


def test_each_option_is_in_the_table_and_the_command_prints_it() -> None:
    printed = CliRunner().invoke(app, ["options"]).output
    assert printed == source_table()
    for option in SOURCE_OPTIONS:
        assert f"| `{option.name}` | {option.queries} |" in printed
    assert all(row.count(" | ") == 4 for row in printed.splitlines())
