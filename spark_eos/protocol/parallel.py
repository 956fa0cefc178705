"""The same for many lanes, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

LANES_AT_ONCE = 16
"""Fencing one lane is mostly waiting. Each is a producer of its own: 7 threads, and about 1 MiB (measured)."""

ForEach = Callable[[Callable[[int], None], Iterable[int]], None]


def one_by_one(act: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Do something for each number, in this thread: always in the same order."""
    for number in numbers:
        act(number)


def at_once(act: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Do something for each number, in threads.

    After an error no further one begins, those under way are waited for, and it is raised.
    """
    failed = Event()

    def unless_failed(number: int) -> None:
        if failed.is_set():
            return
        try:
            act(number)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(LANES_AT_ONCE, "spark-eos") as pool:
        for _ in pool.map(unless_failed, numbers):
            pass
