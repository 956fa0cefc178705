"""A job as a process, of which nothing is left at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo_runs import JobProcess


@contextmanager
def job(command: list[str], folder: Path) -> Iterator[JobProcess]:
    """One life of it; its log is job.log in the folder."""
    process = JobProcess(command, folder, folder / "job.log")
    try:
        yield process
    finally:
        process.end()


def exit_code(process: JobProcess, folder: Path, within_s: float = 120) -> int:
    """Its exit code, when it has ended."""
    deadline = time.monotonic() + within_s
    while (code := process.exit_code) is None:
        assert time.monotonic() < deadline, (folder / "job.log").read_text(encoding="utf-8")[-3_000:]
        time.sleep(0.1)
    return code
