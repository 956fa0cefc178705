"""Outputs against inputs: lost, duplicated, foreign and torn rows, and their order. Pure: no Kafka."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spark_eos.checker.findings import Findings, at
from spark_eos.checker.rows import Columns, Place, Position, Rows, without

Log = Mapping[Place, Rows]


@dataclass
class Due:
    """The input records, numbered partition by partition in the order of their offsets.

    Attributes:
        number: of each digest. Records that are alike have the first one's number.
        times: how many there are of each number.
        keys: digests of their keys, 0 where there is none.
    """

    rows: dict[Place, Rows]
    keys: array[int]
    number: dict[int, int] = field(default_factory=dict)
    times: array[int] = field(default_factory=lambda: array("I"))
    _firsts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for rows in self.rows.values():
            self._firsts.append(len(self.times))
            for digested in rows.digests:
                number = self.number.setdefault(digested, len(self.times))
                self.times.append(0)
                self.times[number] += 1

    def partition(self, number: int) -> int:
        """Which of the partitions, counted from 0, the record is in."""
        return bisect_right(self._firsts, number) - 1

    def position(self, number: int) -> Position:
        index = self.partition(number)
        place = list(self.rows)[index]
        return *place, self.rows[place].offsets[number - self._firsts[index]]


@dataclass
class Output:
    """An output's rows, and how often each input record is there."""

    name: str
    log: Log
    found: array[int]

    @classmethod
    def of(cls, name: str, log: Log, due: Due, findings: Findings) -> Output:
        mine = {place: rows for place, rows in sorted(log.items()) if place[0] == name}
        output = cls(name, mine, array("I", bytes(4 * len(due.times))))
        for position, digested in output.rows():
            number = due.number.get(digested)
            if number is None:
                findings.add("foreign", at(position))
            else:
                output.found[number] += 1
        return output

    def rows(self) -> Iterator[tuple[Position, int]]:
        for place, rows in self.log.items():
            for offset, digested in zip(rows.offsets, rows.digests, strict=True):
                yield (*place, offset), digested

    def positions_of(self, wanted: int) -> list[Position]:
        return [position for position, digested in self.rows() if digested == wanted]


@dataclass(frozen=True)
class Copies:
    """What copies of input records must be.

    Attributes:
        due: the input records.
        outputs: topics, each of which must have them.
        compared: what of them is in the digests.
    """

    due: Due
    outputs: tuple[str, ...]
    compared: Columns

    def columns(self, _topic: str) -> Columns:
        """What of an output's records is compared."""
        return self.compared

    def judge(self, log: Log, findings: Findings) -> None:
        """Properties 1 to 4 and 6."""
        findings.looked_at("lost", "duplicated", "foreign", "torn", "disordered")
        outputs = [Output.of(name, log, self.due, findings) for name in self.outputs]
        _count(self.due, outputs, findings)
        for output in outputs:
            _order(self.due, output, findings)


def compare_seen(final: Log, seen: Log, findings: Findings) -> None:
    """Property 5: what a live reader saw is what was committed in the end."""
    findings.looked_at("aborted-seen", "missed")
    for label, some, others in (("aborted-seen", seen, final), ("missed", final, seen)):
        for place, rows in sorted(some.items()):
            for offset in without(rows, others.get(place, Rows())):
                findings.add(label, at((*place, offset)))


def compare_readers(ours: Log, javas: Log, findings: Findings) -> None:
    """Property 11: Kafka's own client reads the same rows."""
    findings.looked_at("readers-differ")
    for place in sorted({*ours, *javas}):
        some, others = ours.get(place, Rows()), javas.get(place, Rows())
        for offset in sorted({*without(some, others), *without(others, some)}):
            findings.add("readers-differ", at((*place, offset)))


def _count(due: Due, outputs: list[Output], findings: Findings) -> None:
    for number, times in enumerate(due.times):
        for output in outputs:
            if output.found[number] > times:
                findings.add("duplicated", f"{at(due.position(number))} in {output.name}", output.found[number] - times)
        missing = [output.name for output in outputs if output.found[number] < times]
        if missing:
            label = "lost" if len(missing) == len(outputs) else "torn"
            findings.add(label, f"{at(due.position(number))} not in {', '.join(missing)}")


def _order(due: Due, output: Output, findings: Findings) -> None:
    """Of the records that are there once: a second copy is a duplicate, not a disorder."""
    home: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for position, digested in output.rows():
        number = due.number.get(digested)
        if number is None or not due.keys[number] or not due.times[number] == output.found[number] == 1:
            continue
        key = due.keys[number]
        strand = key, due.partition(number)
        misplaced = home.setdefault(key, position[1]) != position[1]
        if misplaced or number < last.get(strand, number):
            findings.add("disordered", at(position))
        last[strand] = max(number, last.get(strand, number))
