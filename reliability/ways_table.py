"""The results of the ways of use as tables: on the screen, and in docs/reliability.md."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

RESULTS = Path(__file__).with_name("results") / "ways.jsonl"
"""A line for each combination, as `ways.py --save` writes it."""
VERDICTS = ("exact", "refused", "anomaly")


def commit() -> str:
    """The commit that is tried."""
    folder = Path(__file__).parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def line(result: dict[str, Any], of_commit: str) -> dict[str, Any]:
    """A result, as the results file has it."""
    return {**result.pop("combination"), **result, "commit": of_commit}


def counted(results: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, Counter[str]]]:
    """Pipeline to way to verdicts, from (pipeline, way, verdict)."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for pipeline, way, verdict in results:
        found.setdefault(pipeline, {}).setdefault(way, Counter())[verdict] += 1
    return found


def _cell(counts: Counter[str] | None) -> str:
    return " / ".join(str(counts[verdict]) for verdict in VERDICTS) if counts else ""


def _rows(counts: dict[str, dict[str, Counter[str]]]) -> tuple[list[str], list[list[str]]]:
    ways = sorted({way for found in counts.values() for way in found})
    rows = [[pipeline, *(_cell(found.get(way)) for way in ways)] for pipeline, found in counts.items()]
    return ways, rows


def shown(results: Sequence[Any]) -> Table:
    """Pipeline by way: exact / refused and exact by the way on / anomalies."""
    told = [(each.combination.pipeline, each.combination.way, each.verdict) for each in results]
    ways, rows = _rows(counted(sorted(told)))
    table = Table("pipeline", *ways, caption="exact / refused / anomalies")
    for row in rows:
        table.add_row(*row)
    return table


def ways_table(path: Path = RESULTS) -> str:
    """Markdown of all that was saved."""
    if not path.exists():
        return ""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    ways, rows = _rows(counted(sorted((each["pipeline"], each["way"], each["verdict"]) for each in lines)))
    head = ["pipeline", *ways]
    marked = [head, ["---"] * len(head), *([f"`{row[0]}`", *row[1:]] for row in rows)]
    body = "".join(f"| {' | '.join(row)} |\n" for row in marked)
    count = Counter(each["verdict"] for each in lines)
    commits = ", ".join(dict.fromkeys(each["commit"] for each in lines))
    summary = (
        f"In all: {len(lines):,} combinations, {count['exact']:,} exact, {count['refused']:,} refused and exact by the "
        f"way on, {count['anomaly']:,} anomalies; commit {commits}."
    )
    return f"{body}\n{summary}\n"
