"""Ways of use: pipelines, ways to write, changes at a restart and where a batch was hit, drawn from seeds.

    python reliability/ways.py --seeds 100               # the first hundred combinations
    python reliability/ways.py --seeds 5 --only format,between    # five of those whose names have both words
    python reliability/ways.py --replay 17               # one of them, step by step

Each combination ends exact, or is refused before a row is written by an error that names the way on, which then ends
exact; all else is an anomaly. Exits with 1 on an anomaly, and with 2 if a planned fault did not happen.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import typer
from rich.console import Console
from ways_axes import Combination, drawn
from ways_course import ANOMALY, EXACT, REFUSED, Missed, Result, tried
from ways_table import commit, line, shown
from ways_topics import Places
from ways_workers import Workers

from spark_eos.testing import EmbeddedKafka

CLUSTER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""What a task that was killed left open is ended at its timeout, and not up to 10 s later."""
RESULTS = Path(__file__).with_name("results") / "ways.jsonl"


class World:
    """A broker, and processes with Spark for each combination that runs at the same time.

    Args:
        kafka: the broker.
        folder: for everything.
        workers: as many as combinations run at once.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, workers: list[Workers]) -> None:
        self._kafka, self._folder = kafka, folder
        self._free: SimpleQueue[Workers] = SimpleQueue()
        for each in workers:
            self._free.put(each)

    @classmethod
    @contextmanager
    def open(cls, jobs: int = 1, package: Path | None = None, *, tables: bool = False) -> Iterator[World]:
        folder = Path(tempfile.mkdtemp(prefix="ways-"))
        pools = [folder / f"spark-{number}" for number in range(jobs)]
        for each in pools:
            each.mkdir()
        workers = [Workers(each, package, delta=tables) for each in pools]
        try:
            with EmbeddedKafka(config=CLUSTER) as kafka:
                try:
                    for each in workers:
                        each.open()
                    yield cls(kafka, folder, workers)
                finally:
                    for each in workers:
                        each.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def tried(self, combination: Combination, tell: Callable[[str], None] = lambda _: None) -> Result:
        """Run a combination where Spark is free; see `ways_course.tried`."""
        name = f"ways-{max(combination.seed, 0)}-{uuid.uuid4().hex[:6]}"
        workers = self._free.get()
        try:
            return tried(combination, workers, Places(self._kafka, self._folder / name, name), tell)
        finally:
            self._free.put(workers)


def chosen(seeds: int, first: int, only: str | None, tables: bool) -> list[Combination]:
    """So many combinations, from a seed on; only those whose names have all of these words."""
    words = only.split(",") if only else []
    found: list[Combination] = []
    seed = first
    while len(found) < seeds:
        combination = drawn(seed, tables=tables)
        if all(word in combination.name for word in words):
            found.append(combination)
        seed += 1
        if seed - first > 1000 * (seeds + 1):
            raise typer.BadParameter(f"no combination is named so: {only}")
    return found


def told(result: Result) -> str:
    """One line of a result."""
    each = result.combination
    ways = f" after {', '.join(result.refusals)}" if result.refusals else ""
    what = f"{result.verdict}{ways}{': ' + result.told if result.told else ''}"
    return f"{each.seed} {each.name} ({each.details}): {what}, {result.seconds} s"


def main(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many combinations.")] = 100,
    seed_from: Annotated[int, typer.Option(help="The first seed.")] = 0,
    only: Annotated[str | None, typer.Option(help="Words that a combination's name has, with commas between.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Combinations that run at once.")] = 1,
    tables: Annotated[bool, typer.Option(help="Also from Delta tables: Spark starts slower.")] = False,
    save: Annotated[bool, typer.Option(help="Add the results to results/ways.jsonl.")] = False,
    replay: Annotated[int | None, typer.Option(help="A seed to be told step by step.")] = None,
) -> None:
    """Run combinations, and tell what became of them."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    with World.open(jobs, tables=tables) as world:
        if replay is not None:
            result = world.tried(drawn(replay, tables=tables), lambda step: console.print(f"  {step}", style="dim"))
            console.print(told(result))
            raise typer.Exit(result.verdict == ANOMALY)
        combinations = chosen(seeds, seed_from, only, tables)
        results, missed = _all(world, combinations, jobs, console, save)
    console.print(shown(results))
    if seen := [str(each.combination.seed) for each in results if each.verdict == ANOMALY]:
        console.print(f"anomalies of seeds {', '.join(seen)}")
    sys.exit(concluded(results, missed, console))


def _all(
    world: World, combinations: list[Combination], jobs: int, console: Console, save: bool
) -> tuple[list[Result], list[str]]:
    """The results, and the faults that did not happen."""
    results: list[Result] = []
    missed: list[str] = []

    def one(combination: Combination) -> None:
        try:
            result = world.tried(combination)
        except Missed as error:
            missed.append(f"seed {combination.seed}, {error}")
            console.print(f"{combination.seed} {error}")
            return
        results.append(result)
        console.print(told(result))
        if save:
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line(asdict(result), commit())) + "\n")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, combinations))
    return results, missed


def concluded(results: list[Result], missed: list[str], console: Console) -> int:
    """The last line; the exit code."""
    if missed:
        console.print(f"these faults did not happen, so nothing is proved: {'; '.join(missed)}")
    count = {verdict: sum(each.verdict == verdict for each in results) for verdict in (EXACT, REFUSED, ANOMALY)}
    print(
        f"ways: {len(results)} combinations, {count[EXACT]} exact, {count[REFUSED]} refused, {count[ANOMALY]} anomalies"
    )
    return 1 if count[ANOMALY] else 2 if missed else 0


if __name__ == "__main__":
    typer.run(main)
