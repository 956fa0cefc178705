"""A proof that can fail: connectors with one mistake each, and what notices them.

    python reliability/mutants.py                      # the simulation: which property is broken, after how many seeds
    python reliability/mutants.py --real               # on a broker: what the checker found in the mutant's own trial
    python reliability/mutants.py --only random-id

The connector as it is goes through the same seeds, or through all trials, and must come out clean.
Exits with 1 if a mutant gets through, or if the connector as it is does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from mutant_edits import HEALTHY, MUTANTS, Mutant
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
SEEDS = 400
"""Of the simulation, at most, for each mutant; and for the connector as it is."""


def hunted(mutant: Mutant, seeds: int = SEEDS) -> tuple[int, str]:
    """What the simulation finds in a mutant, as of `mutant_hunt.hunt`."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        mutant.write(Path(folder))
        number, anomaly = _said("mutant_hunt.py", folder, str(seeds)).rstrip("\n").split("\t")
    return int(number), anomaly


def tried(mutant: Mutant) -> dict[str, dict[str, int]]:
    """What the checker finds after a mutant's trials on a real broker: trial to anomalies and their counts."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        mutant.write(Path(folder))
        return dict(map(json.loads, _said("mutant_trial.py", folder, ",".join(mutant.trials)).splitlines()))


def _said(script: str, folder: str, *arguments: str) -> str:
    """What a script prints that runs with the package in a folder."""
    paths = [folder, str(HERE), str(HERE.parent / "tests"), str(HERE.parent / "jobs")]
    # Random ids are drawn from the same dice each time, so that a seed is the same run each time.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MUTANT_DICE": "1"}
    command = [sys.executable, str(HERE / script), folder, *arguments]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def chosen(only: str | None) -> list[Mutant]:
    """The mutants of these names, with commas between; all for None. Then the connector as it is."""
    wanted = only.split(",") if only else [mutant.name for mutant in MUTANTS]
    unknown = sorted(set(wanted) - {mutant.name for mutant in MUTANTS})
    if unknown:
        known = ", ".join(mutant.name for mutant in MUTANTS)
        raise typer.BadParameter(f"no mutant {', '.join(unknown)}; there are {known}")
    return [*(mutant for mutant in MUTANTS if mutant.name in wanted), HEALTHY]


def simulated(mutants: list[Mutant], seeds: int, console: Console) -> bool:
    """Show what the simulation finds; whether it is as it must be."""
    table = Table("mutant", "its mistake", "what the simulation found", "after seeds")
    right = []
    for mutant in mutants:
        number, anomaly = hunted(mutant, seeds)
        right.append(bool(anomaly) != (mutant is HEALTHY))
        table.add_row(mutant.name, mutant.what, anomaly or "nothing", str(number))
        console.print(f"{mutant.name}: {anomaly or 'nothing'}", style="dim")
    console.print(table)
    return all(right)


def on_a_broker(mutants: list[Mutant], console: Console) -> bool:
    """Show what the checker finds after trials on a real broker; whether it is as it must be."""
    table = Table("mutant", "its mistake", "trial", "what the checker found")
    right = []
    for mutant in mutants:
        for trial, anomalies in tried(mutant).items():
            found = ", ".join(f"{count} {label}" for label, count in anomalies.items()) or "nothing"
            right.append(bool(anomalies) != (mutant is HEALTHY))
            table.add_row(mutant.name, mutant.what, trial, found)
            console.print(f"{mutant.name}, {trial}: {found}", style="dim")
    console.print(table)
    return all(right)


def main(
    *,
    real: Annotated[bool, typer.Option(help="Trials on a real broker instead of the simulation.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Of the simulation, at most, for each mutant.")] = SEEDS,
    only: Annotated[str | None, typer.Option(help="Mutants, with commas between.")] = None,
) -> None:
    """Exit code 1 if a mutant gets through."""
    mutants, console = chosen(only), Console()
    right = on_a_broker(mutants, console) if real else simulated(mutants, seeds, console)
    verdict = "all caught, and the connector is clean" if right else "a mutant got through, or the connector did not"
    print(f"mutants: {len(mutants) - 1} mutants, {verdict}")
    raise typer.Exit(0 if right else 1)


if __name__ == "__main__":
    typer.run(main)
