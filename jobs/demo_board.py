"""Runs of jobs side by side, with a line on the terminal for each; the first that fails ends the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from rich.console import Console
from rich.status import Status

T = TypeVar("T")


class Cancelled(Exception):
    """The other run failed, or the user ended the demonstration."""


class Board:
    """Shows where both runs are, a line for each; through it they are also told to give up."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._texts: dict[str, str] = {}
        self._cancelled = threading.Event()

    def show(self, name: str, text: str) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        self._texts[name] = text
        self._status.update("\n  ".join(self._texts.values()))

    def cancel(self) -> None:
        self._cancelled.set()


def side_by_side(console: Console, runs: Mapping[str, Callable[[Board], T]]) -> dict[str, T]:
    """Run all at once, since much of a start of Spark is waiting; what each has returned."""
    with console.status("") as status, ThreadPoolExecutor(len(runs)) as pool:
        board = Board(status)
        started = {name: pool.submit(run, board) for name, run in runs.items()}
        try:
            for done in as_completed(started.values()):
                done.result()
            return {name: run.result() for name, run in started.items()}
        finally:
            board.cancel()
