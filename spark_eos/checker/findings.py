"""What was found: counts by label, and a few examples."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_eos.checker.rows import Position

PROPERTIES = {
    "lost": "input records in no output",
    "duplicated": "rows beyond one of an input record",
    "foreign": "rows that no input record calls for",
    "torn": "input records in one output and not in another",
    "aborted-seen": "rows a live reader saw that are not committed",
    "missed": "committed rows a live reader missed",
    "disordered": "rows out of order within their key",
    "moved-back": "committed offsets that moved back",
    "early": "rows seen before their transaction was committed",
    "uncovered": "input records that the group's offsets don't cover",
    "hanging": "partitions with an open transaction",
    "readers-differ": "rows that Java's client reads otherwise",
}
"""Label and meaning of what must not be, in the order of check.py's list."""

EXAMPLES = 5


@dataclass
class Findings:
    """What a check found.

    Attributes:
        figures: all counts by label; None stands for "not looked at". Those in PROPERTIES must be 0.
        examples: a few places for each anomaly, such as `out-a[0]@17`.
    """

    figures: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(PROPERTIES))
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def anomalies(self) -> dict[str, int]:
        """The counts that should be 0 and are not; empty if all is well."""
        return {label: count for label in PROPERTIES if (count := self.figures[label])}

    def looked_at(self, *labels: str) -> None:
        """These have been checked: none found so far."""
        for label in labels:
            self.figures[label] = self.figures[label] or 0

    def add(self, label: str, example: str, times: int = 1) -> None:
        """One more of an anomaly, or several that are told by one example."""
        self.figures[label] = (self.figures[label] or 0) + times
        examples = self.examples.setdefault(label, [])
        if len(examples) < EXAMPLES:
            examples.append(example)


def at(position: Position) -> str:
    """A position for people: `topic[partition]@offset`."""
    topic, partition, offset = position
    return f"{topic}[{partition}]@{offset}"
