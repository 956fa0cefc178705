"""The soak: hours of steady load with a kill a minute, everything measured over time, every row checked at the end.

    make soak HOURS=1

A real broker, a steady load, and the proof's pipeline (`job.py`). Once a minute, at a random moment, a Spark worker is
SIGKILLed; every fifth time it is the driver with all it has started, and it is started again on the same checkpoint.
Every second kill waits for the next open transaction.
Writes into the folder as it goes: `samples.jsonl` and `kills.jsonl`, a line each, so a run that is cut off leaves its
data. At the end: `summary.json`, and the picture. SIGTERM and ctrl-C end it in order, with what there is.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from pipeline import Pipeline, World
from soak_job import Job
from soak_load import Load
from soak_plot import plot
from soak_sample import Ends, records_held_back
from soak_sampler import Lines, Sampler
from soak_trend import trends

from spark_eos.checker import Watch, check

PARTITIONS = 4
SECONDS_PER_BATCH = 20
"""What a batch may read of the load, at most; so a long backlog is several batches."""
TIMEOUT_S = 30
KILL_EVERY_S = 60.0
DRIVER_EVERY = 5
DRAIN_S = 180
LOOK_EVERY_S = 0.1
AIM_S = 10

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Soak:
    """One run.

    Args:
        broker: its process.
        pipeline: what runs against it.
        folder: for the data.
        over: set to end the run before its time.
        seed: decides when is killed, and which worker.
        rate: records per second.
        kill_every_s: seconds.
    """

    broker: psutil.Process
    pipeline: Pipeline
    folder: Path
    over: threading.Event
    seed: int
    rate: int
    kill_every_s: float
    anomalies: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        began = time.monotonic()
        self.samples, self.kills = (Lines(self.folder / f"{name}.jsonl", began) for name in ("samples", "kills"))

    def run(self, seconds: float) -> dict[str, Any]:
        """Load, kills and samples for so many seconds, or until `over` is set; then all verdicts."""
        pipe = self.pipeline
        load = Load(pipe.bootstrap, pipe.source, pipe.partitions, self.rate)
        places = {"inputs": (pipe.source,), "outputs": pipe.outputs, "group": pipe.name}
        with Watch(pipe.bootstrap, **places) as watch:
            with Job(pipe, self._random) as job, Sampler(self.broker, pipe, job, load, self.samples) as sampler:
                with load:
                    self._wait_for_rows(job, sampler)
                    self._load_and_kill(seconds, job)
                self._drain(job, sampler)
            findings = check(pipe.bootstrap, **places, watch=watch)
        self.anomalies.update(findings.anomalies)
        found = trends(self.samples.written)
        self.anomalies.update(f"growth: {trend.name}" for trend in found if trend.broken)
        self.anomalies.update(f"readers held back for over {pipe.limit_s:.0f} s" for _ in self._held_too_long())
        return {
            "minutes": round(self.samples.written[-1]["at"] / 60, 1),
            "kills": dict(Counter(kill["what"] for kill in self.kills.written)),
            "rows": 2 * load.sent,
            "anomalies": dict(self.anomalies),
            "examples": findings.examples,
            "figures": findings.figures,
            "trends": [asdict(trend) for trend in found],
            "not answered": sampler.missed,
            "seed": self.seed,
            "records per second": self.rate,
        }

    def _wait_for_rows(self, job: Job, sampler: Sampler) -> None:
        """The time counts from the first batch on: how long Spark takes to start is the machine's affair."""
        deadline = time.monotonic() + DRAIN_S
        while not sampler.lag()["processed"] and not self._is_over(deadline):
            self._watch(job)
            self.over.wait(LOOK_EVERY_S)

    def _load_and_kill(self, seconds: float, job: Job) -> None:
        start = time.monotonic()
        end, turn = start + seconds, 0
        while not self._is_over(end):
            turn += 1
            # Not at the very end of its time: a job that starts just then has no worker yet.
            moment = start + self._random.uniform(0.2, 0.8) * self.kill_every_s
            start += self.kill_every_s
            if self._wait(min(end, moment), job):
                self._kill(job, turn, min(end, start))
            self._wait(min(end, start), job)

    def _is_over(self, end: float) -> bool:
        return self.over.is_set() or time.monotonic() >= end

    def _kill(self, job: Job, turn: int, end: float) -> None:
        what, kill = ("driver", job.kill_driver) if turn % DRIVER_EVERY == 0 else ("worker", job.kill_worker)
        ends = Ends(self.pipeline.bootstrap, self.pipeline.outputs)
        if turn % 2 == 0:
            self._wait_for_open_transaction(ends)
        while not self._is_over(end):
            held = records_held_back(ends)
            if kill():
                self.kills.write({"what": what, "held back": held})
                return
            self._watch(job)
            self.over.wait(LOOK_EVERY_S)

    def _wait_for_open_transaction(self, ends: Ends) -> None:
        """Most moments of a steady load are between two batches, where a kill costs little."""
        deadline = time.monotonic() + AIM_S
        while not records_held_back(ends) and not self._is_over(deadline):
            self.over.wait(0.005)

    def _wait(self, until: float, job: Job) -> bool:
        """False if the run is over before."""
        while not self._is_over(until):
            self._watch(job)
            self.over.wait(LOOK_EVERY_S)
        return not self.over.is_set()

    def _watch(self, job: Job) -> None:
        if job.revive():
            self.anomalies["the job ended by itself"] += 1
            (self.folder / f"job-ended-{self.anomalies['the job ended by itself']}.log").write_text(
                self.pipeline.log_tail(200)
            )

    def _drain(self, job: Job, sampler: Sampler) -> None:
        deadline = time.monotonic() + DRAIN_S
        while sampler.lag()["lag"]:
            if time.monotonic() > deadline:
                self.anomalies[f"input left after {DRAIN_S} s without load"] += 1
                return
            self._watch(job)
            time.sleep(1)

    def _held_too_long(self) -> list[dict[str, Any]]:
        return [each for each in self.samples.written if each["held back"]["seconds"] > self.pipeline.limit_s]


def last_line(summary: dict[str, Any]) -> str:
    kills, anomalies = sum(summary["kills"].values()), sum(summary["anomalies"].values())
    return f"soak: {summary['minutes']:.0f} min, {kills} kills, {summary['rows']:,} rows, {anomalies} anomalies"


def soak(seconds: float, folder: Path, over: threading.Event, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run it against a broker of its own, and write all it found into the folder; settings as of `Soak`."""
    folder.mkdir(parents=True, exist_ok=True)
    with World.open() as world:
        rows = SECONDS_PER_BATCH * settings["rate"] // PARTITIONS
        pipeline = world.pipeline("soak", partitions=PARTITIONS, rows=rows, timeout_s=TIMEOUT_S)
        run = Soak(world.broker(), pipeline, folder, over, **settings)
        summary = run.run(seconds)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    plot(run.samples.written, run.kills.written, folder / "soak.png", last_line(summary))
    return summary


def report(summary: dict[str, Any]) -> None:
    for trend in summary["trends"]:
        mark = "✗" if trend["broken"] else "✓"
        typer.echo(
            f"{mark} {trend['name']}: {trend['before']:,.0f} in the second quarter, {trend['after']:,.0f} in the last"
        )
    for label, count in summary["anomalies"].items():
        typer.echo(f"✗ {label}: {count}  {str(summary['examples'].get(label, ''))[:300]}")
    typer.echo(last_line(summary))


@app.command()
def main(
    *,
    hours: Annotated[float, typer.Option(min=0)] = 0.0,
    minutes: Annotated[float, typer.Option(min=0, help="Beside the hours.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Decides when is killed, and which worker.")] = 1,
    rate: Annotated[int, typer.Option(min=4, help="Records per second.")] = 400,
    kill_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = KILL_EVERY_S,
    out: Annotated[Path, typer.Option(help="Folder for samples, kills, summary and picture.")] = Path("build/soak"),
    picture: Annotated[Path | None, typer.Option(help="Copy the picture to here.")] = None,
) -> None:
    """Steady load and a kill a minute, measured over time and checked. Exit code 1 on any anomaly."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    settings = {"seed": seed, "rate": rate, "kill_every_s": kill_every}
    summary = soak(3600 * hours + 60 * minutes, out, over, settings)
    if picture is not None:
        shutil.copy(out / "soak.png", picture)
    report(summary)
    raise typer.Exit(1 if summary["anomalies"] else 0)


if __name__ == "__main__":
    app()
