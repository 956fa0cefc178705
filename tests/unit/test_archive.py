"""What `make archive` installs, from requirements.lock."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ARCHIVE = runpy.run_path(str(Path(__file__).parents[2] / "deploy" / "archive.py"))


@pytest.mark.parametrize("extras", [set(), {"jobs"}, {"jobs", "schema-registry", "metrics"}])
def test_all_that_is_needed_is_pinned_with_hashes_but_spark(extras) -> None:
    names = ARCHIVE["needed"](extras)
    assert {"confluent-kafka", "pyarrow", "pandas", "numpy", "tenacity"} <= names
    assert not names & {"pyspark", "py4j", "spark-eos"}
    pins = ARCHIVE["locked"](names)
    assert set(re.findall(r"^([a-z0-9-]+)==", pins, re.MULTILINE)) == names
    assert all("--hash=sha256:" in pin for pin in re.split(r"^(?=\w)", pins, flags=re.MULTILINE)[1:])


def test_extras_add_what_they_need() -> None:
    needed = ARCHIVE["needed"]
    assert "delta-spark" in needed({"jobs"}) - needed(set())
    assert {"fastavro", "protobuf"} <= needed({"schema-registry"}) - needed(set())
