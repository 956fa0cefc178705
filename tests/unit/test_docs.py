"""What the docs have from the code is what the code has."""

from __future__ import annotations

import runpy
from pathlib import Path

from typer.testing import CliRunner

from spark_eos.cli import app
from spark_eos.reference import source_table
from spark_eos.source_options import SOURCE_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_options_is_up_to_date() -> None:
    page = (DOCS / "SOURCE.md").read_text()
    assert runpy.run_path(str(DOCS / "make.py"))["with_table"](page) == page, "run `make docs`"


def test_each_option_is_in_the_table_and_the_command_prints_it() -> None:
    printed = CliRunner().invoke(app, ["options"]).output
    assert printed == source_table()
    for option in SOURCE_OPTIONS:
        assert f"| `{option.name}` | {option.queries} |" in printed
    assert all(row.count(" | ") == 4 for row in printed.splitlines())
