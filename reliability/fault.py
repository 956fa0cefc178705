"""The fault matrix, on real brokers and real Spark processes: make fault RUNS=25.

Each cell is one kind of fault, done so many times; every run is checked by spark_eos.checker, and must recover within
the transaction's timeout and 15 s. Exits with 1 on an anomaly, and with 2 if a planned fault did not happen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import cells_broker
import cells_brokers
import cells_driver
import cells_network
import cells_worker
import typer
from fault_cells import Cell, Verdict, judge
from pipeline import World
from rich.console import Console
from rich.table import Table

CELLS: list[Cell] = [
    *cells_worker.CELLS,
    *cells_driver.CELLS,
    *cells_broker.CELLS,
    *cells_network.CELLS,
    *cells_brokers.CELLS,
]
"""All there are, in the order they run in. A file of cells adds its list here."""
KILLS = 25
"""Runs of a kill point in the full matrix. Other cells have more or less, in proportion."""


def chosen(only: str | None) -> list[Cell]:
    """The cells of these names, with commas between; all for None."""
    names = [cell.name for cell in CELLS]
    wanted = only.split(",") if only else names
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise typer.BadParameter(f"no cell {', '.join(unknown)}; there are {', '.join(names)}")
    return [cell for cell in CELLS if cell.name in wanted]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=__doc__)
def main(
    *,
    runs: Annotated[int, typer.Option(help="Runs of a kill point; other cells in proportion.")] = KILLS,
    only: Annotated[str | None, typer.Option(help="Cells, with commas between.")] = None,
    seed: Annotated[int, typer.Option(help="Of the plan of faults.")] = 1,
    results: Annotated[Path | None, typer.Option(help="File that gets a JSON line for each cell.")] = None,
    list_cells: Annotated[bool, typer.Option("--list", help="Tell the cells, and do nothing.")] = False,
) -> None:
    """Do the faults, and tell what the checker found."""
    console = Console()
    if list_cells:
        console.print(listed(chosen(only)))
        return
    verdicts = []
    for brokers, cells in groupby(chosen(only), key=lambda cell: cell.brokers):
        with World.open(brokers) as world:
            for cell in cells:
                verdict, seconds = run_cell(world, cell, max(1, cell.runs * runs // KILLS), seed)
                verdicts.append((cell, verdict))
                tell(console, line(cell, verdict, seed, seconds), results)
                if verdict.anomalies or verdict.missed:
                    console.print(
                        f"  {verdict.examples or verdict.missed}; logs and marks are in {world.keep(cell.name)}"
                    )
    console.print(table(verdicts))
    sys.exit(conclude(console, [verdict for _, verdict in verdicts]))


def run_cell(world: World, cell: Cell, runs: int, seed: int) -> tuple[Verdict, float]:
    """All runs of a cell; also the seconds that they took."""
    began = time.monotonic()
    return judge(cell.run(world, runs, seed)), time.monotonic() - began


def tell(console: Console, result: dict[str, Any], results: Path | None) -> None:
    """A cell's result, on the way and in the results file."""
    anomalies, seconds = result["anomalies"] or "no anomalies", result["seconds"]
    console.print(
        f"{result['cell']}: {result['hit']} of {result['runs']} faults, {anomalies}, {seconds} s", style="dim"
    )
    if results:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def line(cell: Cell, verdict: Verdict, seed: int, seconds: float) -> dict[str, Any]:
    """A cell's result, as the results file has it."""
    return {
        "cell": cell.name,
        "what": cell.what,
        "runs": verdict.runs,
        "hit": verdict.hit,
        "missed": list(verdict.missed),
        "anomalies": dict(verdict.anomalies),
        "examples": dict(verdict.examples),
        "slowest_s": round(verdict.slowest_s, 2),
        "seconds": round(seconds, 1),
        "seed": seed,
        "commit": _commit(),
    }


def _commit() -> str:
    folder = Path(__file__).parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def listed(cells: list[Cell]) -> Table:
    found = Table("cell", "fault", "runs")
    for cell in cells:
        found.add_row(cell.name, cell.what, str(cell.runs))
    return found


def table(verdicts: list[tuple[Cell, Verdict]]) -> Table:
    """Fault by fault."""
    found = Table("fault", "runs", "hit", "anomalies", "slowest recovery")
    for cell, verdict in verdicts:
        anomalies = ", ".join(f"{count} {label}" for label, count in verdict.anomalies.items()) or "0"
        found.add_row(cell.what, str(verdict.runs), str(verdict.hit), anomalies, f"{verdict.slowest_s:.1f} s")
    return found


def conclude(console: Console, verdicts: list[Verdict]) -> int:
    """The last line; the exit code."""
    missed = [what for verdict in verdicts for what in verdict.missed]
    if missed:
        console.print(f"these faults did not happen, so nothing is proved by their runs: {'; '.join(missed)}")
    anomalies = sum(sum(verdict.anomalies.values()) for verdict in verdicts)
    console.print(f"fault: {sum(verdict.runs for verdict in verdicts)} runs, {anomalies} anomalies")
    return 1 if anomalies else 2 if missed else 0


if __name__ == "__main__":
    app()
