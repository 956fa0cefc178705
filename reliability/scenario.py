"""What the scenarios have in common: they tell what they do, show it in Kafka's own log, and say what was kept."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline import World

WIDTH = 110


@dataclass
class Story:
    """One scenario as it is told. Plain text, a line at a time.

    Args:
        number: of the scenario.
    """

    number: int
    broken: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def show(self, lines: Iterable[str]) -> None:
        """Lines of a dump."""
        for line in lines:
            for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False):
                print(f"      | {part}", flush=True)

    def promise(self, text: str, kept: bool) -> None:
        """Something that must hold; it is told whether it did."""
        print(f"   {'✓' if kept else '✗'} {text}", flush=True)
        if not kept:
            self.broken.append(f"{self.number}: {text}")


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Args:
        title: its heading.
        tell: runs it.
        brokers: of its cluster, 1 or 3.
        config: of the brokers.
    """

    title: str
    tell: Callable[[Story, World], None]
    brokers: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


def wait_until(holds: Callable[[], bool], limit_s: float) -> None:
    """Raises TimeoutError if it does not come to that in so many seconds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come to that in {limit_s:g} s")
        time.sleep(0.02)
