"""What follows the demonstration's refunds: warehouse and notifications, each killed once, and the reconciliation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from demo_board import Board
from demo_runs import Checkpoint, Kill, KilledRun, Outcome, Report, RunFailed, growth, spark_environment

from spark_eos.checker.topic_log import Topics

JOBS = Path(__file__).resolve().parent
BATCHES = 4
KILL = Kill(after_batches=1, share=0.0, whole_tree=True)
REPORT_S = 240
WINDOWS = {"--window": "1 minute", "--lateness": "1 minute"}
"""Short: the settlements of a small demonstration are of some minutes."""


@dataclass(frozen=True)
class Downstream:
    """The pipeline's second half, and the reconciliation of all of it.

    Args:
        brokers: host:port.
        folder: for logs, checkpoints and the table.
        topics: source, refunds, audit, dead_letter and notifications, by these names.
        query_id: of the job that made the refunds.
        note: told of each kill.
    """

    brokers: str
    folder: Path
    topics: Mapping[str, str]
    query_id: str
    note: Report

    @property
    def table(self) -> Path:
        return self.folder / "warehouse"

    def jobs(self, refunds: int) -> dict[str, Callable[[Board], Outcome]]:
        """Runs of both jobs to the end of their input, to be done side by side.

        Args:
            refunds: about how many there are.
        """
        runs = (self._warehouse(refunds), self._notifications(refunds))
        return {run.name: partial(self._killed_once, run) for run in runs}

    @staticmethod
    def _killed_once(run: KilledRun, board: Board) -> Outcome:
        return replace(run, status=lambda text: board.show(run.name, text)).run([KILL])

    def _warehouse(self, refunds: int) -> KilledRun:
        """Killed when a batch has its first data file, so most likely before its commit."""
        options = {"--topic": self.topics["refunds"], "--table": str(self.table)}
        files = {"written": lambda: len(list(self.table.glob("*.parquet"))), "idle": 0, "unit": "data files"}
        return self._job("warehouse", "refunds_to_warehouse.py", options, refunds, files)

    def _notifications(self, refunds: int) -> KilledRun:
        topic = self.topics["notifications"]
        options = {"--source-topic": self.topics["refunds"], "--notifications-topic": topic} | WINDOWS
        return self._job(
            "notifications", "merchant_notifications.py", options, refunds, growth(Topics(self.brokers, (topic,)))
        )

    def _job(
        self, name: str, script: str, options: Mapping[str, str], refunds: int, written: Mapping[str, Any]
    ) -> KilledRun:
        checkpoint = self.folder / f"checkpoint-{name}"
        common = {
            "--bootstrap-servers": self.brokers,
            "--checkpoint": str(checkpoint),
            "--trigger": "available-now",
            "--max-offsets-per-trigger": str(max(1, refunds // BATCHES)),
        }
        return KilledRun(
            name=name,
            command=command(script, common | dict(options)),
            folder=self.folder,
            checkpoint=Checkpoint(checkpoint),
            batch_rows=1,
            status=lambda _: None,
            note=self.note,
            **written,
        )

    def reconcile(self) -> tuple[bool, str]:
        """Whether all is there, and the report.

        Raises:
            RunFailed: it could not be told.
        """
        topics = {f"--{name.replace('_', '-')}-topic": topic for name, topic in self.topics.items()}
        options = {
            "--bootstrap-servers": self.brokers,
            "--query-id": self.query_id,
            "--table": str(self.table),
        } | WINDOWS
        done = subprocess.run(
            command("reconcile.py", options | topics),
            cwd=self.folder,
            env=os.environ | spark_environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=REPORT_S,
        )
        if done.returncode not in {0, 1}:
            raise RunFailed(f"the reconciliation ended with code {done.returncode}.\n{done.stderr[-3_000:]}")
        return done.returncode == 0, done.stdout


def command(script: str, options: Mapping[str, str]) -> list[str]:
    """How a job is started."""
    return [sys.executable, str(JOBS / script), *(word for pair in options.items() for word in pair)]
