"""benchmarks/RESULTS.md: each script has a section of its own there, between markers."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import confluent_kafka
import pyspark

from spark_eos.testing.jars import KAFKA_VERSION

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = "# Results\n\nWritten by the commands named in each section; a section stands between markers in comments.\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [headings, ["---"] + ["--:"] * (len(headings) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """What it was measured on."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.split('"')[1]
    return (
        f"{os.cpu_count()} cores, {gib:.0f} GiB, {platform.system()}; one Kafka broker {KAFKA_VERSION} on the same "
        f"machine; Spark {pyspark.__version__}, confluent-kafka {confluent_kafka.__version__} "
        f"(librdkafka {confluent_kafka.libversion()[0]}), Python {platform.python_version()}, Java {java}"
    )


def section(title: str, command: str, *parts: str) -> str:
    """The text of a section."""
    head = f"## {title}\n\n`{command}`, {date.today():%Y-%m-%d}. {machine()}."
    return "\n\n".join([head, *parts])


def write(name: str, text: str) -> None:
    """Put a section into RESULTS.md, in place of what it was before.

    Args:
        name: of the markers, `<!-- name -->` and `<!-- /name -->`.
        text: what goes between.
    """
    old = RESULTS.read_text() if RESULTS.exists() else HEAD
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = old.partition(begin)
    after = rest.partition(end)[2] if found else ""
    RESULTS.write_text(f"{before.rstrip()}\n\n{begin}\n{text}\n{end}\n{after}")
