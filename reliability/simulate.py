"""`make simulate`: the protocol on simulated brokers, every run of some searches, and any number of seeded ones.

    python reliability/simulate.py --seeds 10000
    python reliability/simulate.py --replay 4711      # what happened in one seeded run, step by step

What must hold is numbered in `simulated_query.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from simulated_query import Checkpoint
from simulation import END_TXN, Bounds, Searched, Verdict, search, seeded, two_attempts, two_drivers

from spark_eos.testing.simulated.network import FAIL_OVER

SHARE = 250
"""Seeds that a process takes at once."""


@dataclass(frozen=True)
class Space:
    """What is searched.

    Args:
        title: what it is.
        drivers: two drivers, or two attempts of one lane.
        bounds: how much may go wrong.
    """

    title: str
    drivers: bool
    bounds: Bounds

    def searched(self) -> Searched:
        """Every run."""
        checkpoint = partial(Checkpoint.of, 1, 1, 1)
        return search(two_drivers if self.drivers else two_attempts, self.bounds, checkpoint)


QUICK = (
    Space("two attempts", False, Bounds(0, 0)),
    Space("two attempts, a crash", False, Bounds(1, 0)),
    Space("two drivers", True, Bounds(0, 0, switches=1, lag=0)),
)
"""Searched by the tests."""

LATE = frozenset({"delayed", "duplicated"})
UNKNOWN = frozenset({"lost", "answer lost"})

SPACES = (
    *QUICK,
    Space("two attempts, an EndTxn late or twice", False, Bounds(0, 1, END_TXN, LATE)),
    Space("two attempts, a crash and an EndTxn late or twice", False, Bounds(1, 1, END_TXN, LATE, switches=2)),
    Space("two attempts, an EndTxn whose fate is unknown", False, Bounds(0, 1, END_TXN, UNKNOWN, tries=1)),
    Space("two attempts, a coordinator that fails over", False, Bounds(0, 1, END_TXN, frozenset({FAIL_OVER}))),
    Space("two drivers, a crash", True, Bounds(1, 0, switches=1, lag=0)),
    Space("two drivers, interrupted twice", True, Bounds(0, 0, switches=2, lag=0)),
    Space("two drivers, markers behind", True, Bounds(0, 0, switches=1, lag=1)),
    Space("two drivers, an EndTxn late or twice", True, Bounds(0, 1, END_TXN, LATE, switches=0, lag=0)),
)


def of_seeds(seeds: Iterable[int]) -> list[tuple[int, Verdict]]:
    """The seeds of some whose runs are not as they must be."""
    verdicts = ((seed, seeded(seed)) for seed in seeds)
    return [(seed, verdict) for seed, verdict in verdicts if verdict.anomaly]


def _of_space(space: Space) -> tuple[Space, Searched, float]:
    began = monotonic()
    return space, space.searched(), monotonic() - began


def _quiet() -> None:
    # Aborts that a fenced client could not do are told as warnings, thousands of them here.
    logging.getLogger("spark_eos").setLevel(logging.ERROR)


def simulate(
    *,
    seeds: Annotated[int, typer.Option(min=0, help="How many seeded runs.")] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    searches: Annotated[bool, typer.Option(help="Whether to search what can be searched to the end.")] = True,
    replay: Annotated[int | None, typer.Option(help="One seed: print what happens, and how it ends.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many at once.")] = os.cpu_count() or 1,
) -> None:
    """Simulate crashes, networks and brokers, and check what must hold. Exit code 1 if anything does not."""
    if replay is not None:
        raise typer.Exit(_replayed(replay))
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool, Progress(console=Console(stderr=True)) as progress:
        spaces = [pool.submit(_of_space, space) for space in (SPACES if searches else ())]
        shares = [range(at, min(at + SHARE, first + seeds)) for at in range(first, first + seeds, SHARE)]
        runs = [pool.submit(of_seeds, share) for share in shares]
        task = progress.add_task("simulated", total=len(spaces) + len(runs))
        for done in as_completed([*spaces, *runs]):
            done.result()
            progress.advance(task)
    anomalies = _told(spaces, runs)
    found = sum(future.result()[1].runs for future in spaces)
    print(f"simulate: {seeds:,} seeds, {len(spaces)} searches ({found:,} runs), {anomalies} anomalies")
    raise typer.Exit(1 if anomalies else 0)


def _told(spaces: list[Future[tuple[Space, Searched, float]]], runs: list[Future[list[tuple[int, Verdict]]]]) -> int:
    """Print what was found; how many anomalies it is."""
    table = Table(title="searched to the end")
    for column in ("what", "interruptions", "runs", "states", "seconds", "anomaly"):
        table.add_column(column, justify="left" if column in ("what", "anomaly") else "right")
    anomalies = 0
    for space, found, seconds in (future.result() for future in spaces):
        bounds, anomaly = space.bounds, found.anomaly.anomaly if found.anomaly else "none"
        interruptions = "any" if bounds.switches is None else f"{bounds.switches} at most"
        counts = (interruptions, f"{found.runs:,}", f"{found.states:,}", f"{seconds:.0f}")
        table.add_row(space.title, *counts, anomaly)
        if found.anomaly:
            anomalies += 1
            print(f"{space.title}: {anomaly}", *found.anomaly.trace, sep="\n  ")
    if spaces:
        Console().print(table)
    for seed, verdict in (bad for future in runs for bad in future.result()):
        anomalies += 1
        print(f"seed {seed}: {verdict.anomaly}\n  replay it: python reliability/simulate.py --replay {seed}")
    return anomalies


def _replayed(seed: int) -> int:
    verdict = seeded(seed)
    print(*verdict.trace, f"seed {seed}: {verdict.anomaly or 'as it must be'}", sep="\n")
    return 1 if verdict.anomaly else 0


if __name__ == "__main__":
    typer.run(simulate)
