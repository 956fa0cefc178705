"""The table of docs/reliability.md from the results file of `make fault`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results") / "fault.jsonl"
"""A line for each time that a cell was run, as `fault.py --results` writes it."""


def fault_table(path: Path = RESULTS) -> str:
    """Markdown: what was run, how often, and what was found. A cell that was run in parts is one row."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    cells: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault(line["cell"], []).append(line)
    runs, anomalies = sum(line["runs"] for line in lines), sum(sum(line["anomalies"].values()) for line in lines)
    rows = [_row(name, parts) for name, parts in cells.items()]
    head = "| cell | fault | runs | found | slowest recovery | commit |\n|---|---|---|---|---|---|\n"
    return f"{head}{''.join(rows)}\nIn all: {runs:,} runs, {anomalies} anomalies.\n"


def _row(name: str, parts: list[dict[str, Any]]) -> str:
    found: Counter[str] = Counter()
    for part in parts:
        found.update(part["anomalies"])
    told = ", ".join(f"{count} {label}" for label, count in sorted(found.items())) or "nothing"
    slowest = max(part["slowest_s"] for part in parts)
    commits = ", ".join(_unique(part["commit"] for part in parts))
    runs = sum(part["runs"] for part in parts)
    return f"| `{name}` | {parts[0]['what']} | {runs} | {told} | {slowest:.1f} s | {commits} |\n"


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
