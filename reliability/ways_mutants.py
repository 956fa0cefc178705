"""Do the ways of use notice mistakes? Connectors with one mistake each, on a real broker, in real Spark.

    python reliability/ways_mutants.py                       # each mutant in its own combination
    python reliability/ways_mutants.py --only passed-over

A mutant is noticed by an anomaly, or by refusals other than those of the connector as it is, which goes through all
combinations, and must come out clean. Exits with 1 if a mutant gets through, or if the connector as it is does not.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from mutant_edits import Mutant
from rich.console import Console
from rich.table import Table
from ways import World
from ways_course import ANOMALY, Result
from ways_mutant_edits import HEALTHY, HEALTHY_REFUSALS, MUTANTS, TRIALS


def tried(mutant: Mutant) -> dict[str, Result]:
    """A mutant's results in its combinations, by their names."""
    with tempfile.TemporaryDirectory(prefix="ways-mutant-") as folder:
        mutant.write(Path(folder))
        with World.open(package=Path(folder)) as world:
            return {trial: world.tried(TRIALS[trial]) for trial in mutant.trials}


def differs(trial: str, result: Result) -> bool:
    """Whether a result is not as of the connector as it is."""
    return result.verdict == ANOMALY or result.refusals != HEALTHY_REFUSALS[trial]


def chosen(only: str | None) -> list[Mutant]:
    """The mutants of these names, with commas between; all for None. Then the connector as it is."""
    every = {mutant.name: mutant for mutant in MUTANTS}
    unknown = sorted(set(only.split(",") if only else ()) - every.keys())
    if unknown:
        raise typer.BadParameter(f"no mutant {', '.join(unknown)}; there are {', '.join(every)}")
    mutants = [every[name] for name in (only.split(",") if only else every)]
    trials = dict.fromkeys(trial for mutant in mutants for trial in mutant.trials) if only else HEALTHY.trials
    return [*mutants, replace(HEALTHY, trials=tuple(trials))]


def main(*, only: Annotated[str | None, typer.Option(help="Mutants, with commas between.")] = None) -> None:
    """Exit code 1 if a mutant gets through."""
    console, table = Console(), Table("mutant", "its mistake", "combination", "what was noticed")
    right, mutants = [], chosen(only)
    for mutant in mutants:
        for trial, result in tried(mutant).items():
            told = result.told or f"{result.verdict} after {', '.join(result.refusals) or 'no refusal'}"
            right.append(differs(trial, result) != (mutant.name == HEALTHY.name))
            table.add_row(mutant.name, mutant.what, TRIALS[trial].name, told)
            console.print(f"{mutant.name}, {trial}: {told}", style="dim")
    console.print(table)
    count = len(mutants) - 1
    verdict = (
        "all noticed, and the connector is clean" if all(right) else "a mutant got through, or the connector did not"
    )
    print(f"ways-mutants: {count} mutants, {verdict}")
    raise typer.Exit(0 if all(right) else 1)


if __name__ == "__main__":
    typer.run(main)
