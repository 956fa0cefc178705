"""What an attempt of a lane did and how long each step took; a report carries it to the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Clock = Callable[[], float]
"""Seconds since some moment, never going back: `time.monotonic`."""

OPEN_STEPS = ("write", "flush", "offsets", "commit")
"""From begin to the answer of the commit, without a gap."""


class Stopwatch:
    """Seconds of each step of something. A step ends where the next one begins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: list[tuple[str, float]] = []

    def begin(self, step: str) -> None:
        """Begin a step, and end the one before."""
        self._began.append((step, self._clock()))

    def stop(self) -> dict[str, float]:
        """End the last step; each step with its seconds, to the microsecond."""
        ends = [since for _, since in self._began[1:]] + [self._clock()]
        return {step: round(end - since, 6) for (step, since), end in zip(self._began, ends, strict=True)}


@dataclass(frozen=True)
class LaneStats:
    """What an attempt did that ended well. Attempts that failed report nothing.

    Args:
        attempt: Spark's number of the attempt, from 0: how many before it failed in this run of the query.
        rows: written to Kafka in the committed transaction: none of an empty or skipped lane.
        bytes: of these rows' keys and values, before compression.
        queue_waits: how often the client's queue was full, so that the task waited for the brokers, up to 50 ms each
            time.
        seconds: step to seconds. "write" has the time in which Spark computed the rows; so has "check" of a skipped
            lane, whose rows are computed to be compared.
    """

    attempt: int = 0
    rows: int = 0
    bytes: int = 0
    queue_waits: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def transaction_seconds(self) -> float | None:
        """From begin to the answer of the commit; None without a transaction."""
        if "commit" not in self.seconds:
            return None
        return round(sum(self.seconds[step] for step in OPEN_STEPS), 6)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `LaneStats(**values)` reads it."""
        return asdict(self)
