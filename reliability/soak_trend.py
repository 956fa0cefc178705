"""Whether anything grew that should not: the last quarter of a soak against its second one.

The first quarter is left out, in which JVMs warm up. Medians are compared, so that a single sample says nothing. A
quarter must be long enough to hold a whole life of the driver: within one, memory rises by nature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Sample = Mapping[str, Any]

SHORTEST_S = 20 * 60
"""A run that is shorter has no trend: the driver is killed every 5 minutes, and a quarter must be as long."""


@dataclass(frozen=True)
class Bound:
    """Growth is an anomaly when it exceeds both, so that neither small figures nor noise count."""

    share: float
    amount: float

    def broken_by(self, before: float, after: float) -> bool:
        return after - before > max(self.share * before, self.amount)


BOUNDS = {
    "memory": Bound(0.25, 64),  # MiB
    "files": Bound(0.10, 16),
    "threads": Bound(0.10, 16),
}
ALONE = {
    ("transactional ids", "known"): Bound(0.0, 2),
    ("topics", "lag"): Bound(0.5, 10_000),  # records: the job does not keep up
}


@dataclass(frozen=True)
class Trend:
    """One figure's medians in the second and in the last quarter."""

    name: str
    before: float
    after: float
    broken: bool


def trends(samples: Sequence[Sample], shortest_s: float = SHORTEST_S) -> list[Trend]:
    """Each figure's trend; empty for a run that is too short for any.

    Args:
        samples: in the order of their time, `at` seconds after the start.
        shortest_s: what is too short, in seconds.
    """
    if not samples or samples[-1]["at"] < shortest_s:
        return []
    whole = samples[-1]["at"]
    second = [sample for sample in samples if 0.25 * whole <= sample["at"] < 0.5 * whole]
    last = [sample for sample in samples if sample["at"] >= 0.75 * whole]
    found = [_trend(*place, BOUNDS[place[1]], second, last) for place in _places(samples)]
    found += [_trend(*place, bound, second, last) for place, bound in ALONE.items()]
    return [trend for trend in found if trend is not None]


def _places(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """Group and figure of all that `BOUNDS` bounds."""
    groups = dict.fromkeys(group for sample in samples for group in sample if group != "at")
    return [(group, name) for name in BOUNDS for group in groups if any(name in (s.get(group) or {}) for s in samples)]


def _trend(group: str, name: str, bound: Bound, second: Sequence[Sample], last: Sequence[Sample]) -> Trend | None:
    before, after = ([s[group][name] for s in part if name in (s.get(group) or {})] for part in (second, last))
    if not before or not after:
        return None
    middle = median(before), median(after)
    return Trend(f"{group} {name}", *middle, bound.broken_by(*middle))
