"""The demonstration: settlements → refunds under SIGKILL, with the connector and in the usual way.

    make demo ARGS="--events 20000 --kills 3"

Starts a Kafka of its own, fills `settlements` from a seed, runs both jobs over it side by side under the same plan of
kills in the middle of batches, and checks what stands in the topics with a checker that knows neither job. Then the
rest of the pipeline, from the exactly-once refunds to the warehouse and the notifications, and a reconciliation of all.
Everything is on loopback and in one temporary folder, and is gone at the end.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from check_refunds import Figures, check, figures_table
from check_rules import expected
from demo_board import Board, side_by_side
from demo_pipeline import Downstream, command
from demo_runs import Checkpoint, Kill, KilledRun, Outcome, Report, RunFailed, events_per_batch, growth, kill_plan
from generate_settlements import Event, generate, send
from rich.console import Console

from spark_eos.checker.live import LiveReader
from spark_eos.checker.topic_log import Topics
from spark_eos.testing import EmbeddedKafka

SOURCE = "settlements"
NOTIFICATIONS = "merchant-notifications"
PARTITIONS = {SOURCE: 4, "refunds-emitted": 4, "refund-audit": 3, "settlements-dead-letter": 1}
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
SCRIPTS = {
    EXACTLY_ONCE: "settlements_to_refunds.py",
    AT_LEAST_ONCE: "settlements_to_refunds_at_least_once.py",
}

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Result:
    """A job's run and what it left in the topics."""

    figures: Figures
    outcome: Outcome


@dataclass(frozen=True)
class Demo:
    """One demonstration: where it works, and what it was asked for."""

    kafka: EmbeddedKafka
    folder: Path
    events: Sequence[Event]
    plan: Sequence[Kill]

    def run(self) -> dict[str, Result]:
        """Both jobs, side by side: much of a start of Spark is waiting."""
        brokers = self.kafka.bootstrap_servers
        for name in SCRIPTS:
            for topic, partitions in PARTITIONS.items():
                if topic != SOURCE:
                    self.kafka.create_topic(output(topic, name), partitions)
        self.kafka.create_topic(SOURCE, PARTITIONS[SOURCE])
        with phase(f"{len(self.events):,} settlements"):
            send({"bootstrap.servers": brokers}, SOURCE, self.events)
        return side_by_side(console, {name: partial(self._run_job, name) for name in SCRIPTS})

    def downstream(self) -> tuple[bool, str]:
        """What follows the exactly-once refunds, and the reconciliation of all: whether it is fine, and its report."""
        self.kafka.create_topic(NOTIFICATIONS, PARTITIONS["refunds-emitted"])
        topics = {
            "source": SOURCE,
            "refunds": output("refunds-emitted", EXACTLY_ONCE),
            "audit": output("refund-audit", EXACTLY_ONCE),
            "dead_letter": output("settlements-dead-letter", EXACTLY_ONCE),
            "notifications": NOTIFICATIONS,
        }
        rest = Downstream(self.kafka.bootstrap_servers, self.folder, topics, query_id(EXACTLY_ONCE), console.print)
        outcomes = side_by_side(console, rest.jobs(round(len(self.events) * self._refunds_due())))
        for name, outcome in outcomes.items():
            console.print(f"{name}: input processed, {outcome.starts} starts, {outcome.seconds:.0f} s")
        with phase("reconciliation"):
            return rest.reconcile()

    def _run_job(self, name: str, board: Board) -> Result:
        brokers = self.kafka.bootstrap_servers
        names = {topic: output(topic, name) for topic in PARTITIONS if topic != SOURCE}
        with LiveReader(Topics(brokers, tuple(names.values()))) as reader:
            outcome = self._killed_run(name, lambda text: board.show(name, text)).run(self.plan)
            seen = reader.finish()
        console.print(f"{name}: input processed, {outcome.starts} starts, {outcome.seconds:.0f} s")
        board.show(name, f"{name}: check")
        figures = check(
            brokers,
            source=SOURCE,
            refunds=names["refunds-emitted"],
            audit=names["refund-audit"],
            dead_letter=names["settlements-dead-letter"],
            group=query_id(name) if name == EXACTLY_ONCE else None,  # the other commits none to Kafka
            seen=seen,
        )
        return Result(figures, outcome)

    def _killed_run(self, name: str, status: Report) -> KilledRun:
        checkpoint = self.folder / f"checkpoint-{name}"
        per_batch = events_per_batch(len(self.events), len(self.plan))
        topics = (output("refunds-emitted", name), output("refund-audit", name))
        options = {
            "--bootstrap-servers": self.kafka.bootstrap_servers,
            "--checkpoint": str(checkpoint),
            "--query-id": query_id(name),
            "--max-offsets-per-trigger": str(per_batch),
            "--trigger": "available-now",
            "--source-topic": SOURCE,
            "--refunds-topic": topics[0],
            "--audit-topic": topics[1],
            "--dead-letter-topic": output("settlements-dead-letter", name),
        }
        return KilledRun(
            name=name,
            command=command(SCRIPTS[name], options),
            folder=self.folder,
            checkpoint=Checkpoint(checkpoint),
            **growth(Topics(self.kafka.bootstrap_servers, topics)),
            batch_rows=int(2 * self._refunds_due() * per_batch),
            status=status,
            note=console.print,
        )

    def _refunds_due(self) -> float:
        """Share of the settlements that call for a refund, about."""
        sample = self.events[:1_000]
        return sum(isinstance(expected(*event), tuple) for event in sample) / len(sample)


def output(topic: str, name: str) -> str:
    """Each job has output topics of its own."""
    return f"{topic}-{name}"


def query_id(name: str) -> str:
    return f"refunds-{name}"


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A spinner while it lasts, and a line when it is done."""
    began = time.monotonic()
    with console.status(name):
        yield
    console.print(f"{name}: {time.monotonic() - began:.0f} s")


@contextmanager
def workspace(keep: bool) -> Iterator[Path]:
    """A folder for everything the demonstration writes; removed at the end unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-demo-")).resolve()
    try:
        yield folder
    except RunFailed:
        keep = True
        raise
    finally:
        if keep:
            console.print(f"kept: {folder} (logs, checkpoints, and with --keep Kafka's data)")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def show(results: dict[str, Result]) -> None:
    """The one table: figures as rows, jobs as columns."""
    table = figures_table({name: result.figures for name, result in results.items()})
    table.add_section()
    outcomes = [result.outcome for result in results.values()]
    table.add_row("SIGKILLs in the middle of a batch", *(str(len(outcome.kills)) for outcome in outcomes))
    table.add_row("SIGKILLs that came too late", *(str(outcome.missed) for outcome in outcomes))
    table.add_row("starts of the job", *(str(outcome.starts) for outcome in outcomes))
    table.add_row("seconds, starts included", *(f"{outcome.seconds:.0f}" for outcome in outcomes))
    console.print(table)


def verdict(results: dict[str, Result], kills: int) -> tuple[bool, str]:
    """Whether the demonstration shows what it is there to show, and a line that says it."""
    sure, usual = results[EXACTLY_ONCE], results[AT_LEAST_ONCE]
    if sure.figures.faults:
        faults = ", ".join(f"{label}: {count:,}" for label, count in sure.figures.faults.items())
        return False, f"The exactly-once run is WRONG: {faults}."
    if any(len(result.outcome.kills) < kills for result in results.values()):
        return False, f"Not every run was killed {kills} times before its input ended: more --events are needed."
    twice = usual.figures.refunds_duplicated
    if not twice:
        return False, "The at-least-once run shows no duplicate, so this demonstrates nothing. Try another --seed."
    return True, (
        f"With spark-eos, each of {sure.figures.refunds_expected:,} refunds is there once, with its audit row, after "
        f"{kills} SIGKILL(s) in the middle of batches. The same job written in the usual way emitted {twice:,} refunds "
        f"too many."
    )


def demonstrate(events: int, kills: int, seed: int, merchants: int, keep: bool) -> bool:
    """Run everything; whether it shows what it should."""
    began = time.monotonic()
    with workspace(keep) as folder:
        kafka = EmbeddedKafka(brokers=1, data_dir=folder / "kafka" if keep else None)
        try:
            with phase("Kafka (the first time, it is downloaded)"):
                kafka.start()
            demo = Demo(kafka, folder, list(generate(seed, events, merchants)), kill_plan(seed, kills))
            results = demo.run()
            show(results)
            fine, report = demo.downstream()
        finally:
            kafka.stop()
    console.print(report, markup=False)
    good, line = verdict(results, kills)
    if not fine:
        good, line = False, "The reconciliation found differences."
    console.print(f"{line} ({time.monotonic() - began:.0f} s)", style="bold green" if good else "bold red")
    return good


def main(
    *,
    events: Annotated[int, typer.Option(min=200, help="Settlements to process.")] = 100_000,
    kills: Annotated[int, typer.Option(min=1, help="SIGKILLs in the middle of a batch, for each job.")] = 5,
    seed: Annotated[int, typer.Option(help="Decides the settlements and the plan of kills.")] = 7,
    merchants: Annotated[int, typer.Option(min=1)] = 40,
    keep: Annotated[bool, typer.Option(help="Keep logs, checkpoints and Kafka's data.")] = False,
) -> None:
    """Settlements → refunds under SIGKILL, exactly once and in the usual way.

    Exit code 1 if a figure of the exactly-once run is wrong, or if the other run shows no duplicate.
    """
    # Both clean up; a shell that starts this in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        good = demonstrate(events, kills, seed, merchants, keep)
    except RunFailed as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print("interrupted")
        raise typer.Exit(130) from None
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(main)
