"""Outputs against what a function makes of the inputs, for pipelines that do not copy. Pure: no Kafka."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from spark_eos.checker.findings import Findings, at
from spark_eos.checker.judge import Log
from spark_eos.checker.rows import Columns, Headers, Position, digest
from spark_eos.checker.topic_log import Entry


@dataclass(frozen=True)
class ExpectedRow:
    """A row that must be in an output.

    All rows of a topic say headers, or none does; so with the timestamp, and with the partition.

    Args:
        topic: one of the outputs.
        key: None is no key.
        value: None is no value: a tombstone.
        headers: names and contents, in their order; None: any.
        timestamp: in ms since 1970; None: any.
        partition: None: any.
        source: the input record that it comes from. Rows of one record are due together: where some are there, those
            missing are torn. None: a row of its own, which can be lost only.
        ordered: rows of one key, whose sources are of one partition, must stand in one partition and in the order in
            which the function yields them.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp: int | None = None
    partition: int | None = None
    source: Entry | None = None
    ordered: bool = False

    @property
    def columns(self) -> tuple[Columns, bool]:
        """What of it is compared, beside key and value; the partition, too?"""
        return Columns(self.headers is not None, self.timestamp is not None), self.partition is not None


Expects = Callable[[Iterator[Entry]], Iterable[ExpectedRow]]
"""From the input records, each partition's in the order of their offsets, to the rows that must come of them."""
Likeness = tuple[str, int | None, int]
"""Topic, partition if it counts, digest: what rows have in common that can't be told apart."""
Strand = tuple[bytes, str, int]


@dataclass
class Alike:
    """Expected rows that are alike: the first one's number, counted from 0, where each comes from, how many came."""

    number: int
    strand: Strand | None
    sources: list[Position | None] = field(default_factory=list)
    found: int = 0


class Expectation:
    """What a function expects of the outputs. It takes some hundred bytes a row.

    Args:
        rows: what the function yields.
        outputs: topics that may be expected in.

    Raises:
        ValueError: a row is for another topic, or says of more or less columns than the topic's rows before it.
    """

    def __init__(self, rows: Iterable[ExpectedRow], outputs: tuple[str, ...]) -> None:
        self._shapes: dict[str, tuple[Columns, bool]] = {}
        self._rows: dict[Likeness, Alike] = {}
        for number, row in enumerate(rows):
            if row.topic not in outputs:
                raise ValueError(f"row {number} is expected in {row.topic}, which is no output")
            if self._shapes.setdefault(row.topic, row.columns) != row.columns:
                raise ValueError(f"row {number} has not the columns of the rows of {row.topic} before it")
            self._add(number, row)

    def columns(self, topic: str) -> Columns:
        """What of an output's records is compared."""
        return self._shapes.get(topic, (Columns(), False))[0]

    def judge(self, log: Log, findings: Findings) -> None:
        """Properties 1 to 4 and 6, as far as the rows say enough for it."""
        findings.looked_at("lost", "duplicated", "foreign")
        for position, alike in self._found(log):
            if alike is None:
                findings.add("foreign", at(position))
            else:
                alike.found += 1
        self._count(findings)
        if any(alike.strand for alike in self._rows.values()):
            self._order(log, findings)

    def _add(self, number: int, row: ExpectedRow) -> None:
        likeness = row.topic, row.partition, digest(row.key, row.value, row.headers, row.timestamp)
        source = row.source.position if row.source else None
        strand = None
        if row.ordered and row.key is not None:
            strand = row.key, *(source[:2] if source else ("", 0))
        self._rows.setdefault(likeness, Alike(number, strand)).sources.append(source)

    def _found(self, log: Log) -> Iterator[tuple[Position, Alike | None]]:
        for (topic, partition), rows in sorted(log.items()):
            counted = partition if self._shapes.get(topic, (None, False))[1] else None
            for offset, digested in zip(rows.offsets, rows.digests, strict=True):
                yield (topic, partition, offset), self._rows.get((topic, counted, digested))

    def _count(self, findings: Findings) -> None:
        there: Counter[Position] = Counter()
        missing: defaultdict[Position, list[str]] = defaultdict(list)
        for (topic, *_), alike in self._rows.items():
            surplus = alike.found - len(alike.sources)
            if surplus > 0:
                findings.add("duplicated", f"{_named(alike.sources[0], alike.number)} in {topic}", surplus)
            there.update(filter(None, alike.sources[: alike.found]))
            for source in alike.sources[alike.found :]:
                if source is None:
                    findings.add("lost", f"{_named(None, alike.number)} not in {topic}")
                else:
                    missing[source].append(topic)
        if there or missing:
            findings.looked_at("torn")
        for source, topics in missing.items():
            findings.add("torn" if there[source] else "lost", f"{at(source)} not in {', '.join(topics)}")

    def _order(self, log: Log, findings: Findings) -> None:
        """Of the rows that are there once: a second copy is a duplicate, not a disorder."""
        findings.looked_at("disordered")
        home: dict[tuple[str, bytes], int] = {}
        last: dict[tuple[str, Strand], int] = {}
        for position, alike in self._found(log):
            if alike is None or alike.strand is None or not len(alike.sources) == alike.found == 1:
                continue
            topic, partition, _ = position
            before = last.get((topic, alike.strand), alike.number)
            if home.setdefault((topic, alike.strand[0]), partition) != partition or alike.number < before:
                findings.add("disordered", at(position))
            last[topic, alike.strand] = max(alike.number, before)


def _named(source: Position | None, number: int) -> str:
    return at(source) if source else f"expected row {number}"
