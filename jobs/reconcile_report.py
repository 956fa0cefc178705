"""A reconciliation as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from reconcile_leg import KINDS, Leg
from rich.console import Console
from rich.table import Table


def print_table(console: Console, settlements: int, legs: Sequence[Leg], fine: bool) -> None:
    """The table, examples of what differs, and the verdict."""
    table = Table("", *(leg.name for leg in legs), title=f"{settlements:,} settlements")
    for column in table.columns[1:]:
        column.justify = "right"
    for label in ("due", "found"):
        table.add_row(label, *(_number(getattr(leg, label)) for leg in legs))
    for kind in KINDS:
        table.add_row(kind, *(_difference(leg.differences[kind]) for leg in legs))
    console.print(table)
    for leg in legs:
        if leg.paise_due is not None or leg.paise_found is not None:
            pending = f" ({leg.paise_pending:,} of them pending)" if leg.paise_pending else ""
            console.print(f"{leg.name}: {_number(leg.paise_due)} paise due{pending}, {_number(leg.paise_found)} found")
    for leg in legs:
        for kind, ids in leg.examples.items():
            console.print(f"{leg.name}: {kind} ({KINDS[kind]}), such as {', '.join(ids)}", markup=False)
    verdict = "Everything that is due is there, once." if fine else "There are differences."
    console.print(verdict, style="bold green" if fine else "bold red")


def as_json(settlements: int, legs: Sequence[Leg], fine: bool) -> str:
    """`{"fine": …, "settlements": …, "legs": [{"name": …, "due": …, "differences": {…}, …}]}`"""
    report = {"fine": fine, "settlements": settlements, "legs": [asdict(leg) for leg in legs]}
    return json.dumps(report, indent=2, ensure_ascii=False)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _difference(count: int) -> str:
    return f"[bold red]{count:,} ✗[/]" if count else "[green]0[/]"
