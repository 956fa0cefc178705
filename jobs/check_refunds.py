"""The independent check of settlements → refunds: figures from the topics alone.

What it checks, by number:

 1. every refund that is due is there (lost), once (duplicated), with the right content (wrong);
 2. the same for audit rows;
 3. no refund without its audit row, no audit row without its refund;
 4. every malformed event is a dead letter, once, as it came, with the right reason;
 5. each merchant's refunds stand in one partition, in the order of its settlements;
 6. no transaction is left open, so nothing holds readers back;
 7. the query's group has committed the offset of every settlement that led to a row;
 8. a read_committed reader that ran all along saw no row of an aborted transaction, and missed none of a committed one.

It reads with the independent checker's plain clients, and uses nothing of the connector or of the job: what is due is
worked out anew by check_rules.py.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from typing import Annotated, Any

import typer
from check_rules import Row, expected
from rich.console import Console
from rich.table import Table

from spark_eos.checker import CannotCheck
from spark_eos.checker.rows import Place, Position
from spark_eos.checker.topic_log import Entry, Topics

WAIT_S = 90.0
"""How long to wait for open transactions: transaction.timeout.ms is 60 s, and the broker looks every 10 s."""


def _info(label: str) -> Any:
    return field(default=0, metadata={"label": label, "zero": False})


def _fault(label: str) -> Any:
    return field(default=0, metadata={"label": label, "zero": True})


def _unasked(label: str) -> Any:
    return field(default=None, metadata={"label": label, "zero": True})


@dataclass
class Figures:
    """What was counted. Those made by `_fault` and `_unasked` must be 0; None stands for "not looked at"."""

    settlements: int = _info("settlements")
    refunds_expected: int = _info("refunds expected")
    refunds_found: int = _info("refunds found")
    refunds_lost: int = _fault("refunds lost")
    refunds_duplicated: int = _fault("refunds duplicated")
    refunds_wrong: int = _fault("refunds wrong")
    audits_expected: int = _info("audit rows expected")
    audits_found: int = _info("audit rows found")
    audits_lost: int = _fault("audit rows lost")
    audits_duplicated: int = _fault("audit rows duplicated")
    audits_wrong: int = _fault("audit rows wrong")
    refunds_without_audit: int = _fault("refunds without audit row")
    audits_without_refund: int = _fault("audit rows without refund")
    dead_letters_expected: int = _info("dead letters expected")
    dead_letters_found: int = _info("dead letters found")
    dead_letters_lost: int = _fault("dead letters lost")
    dead_letters_duplicated: int = _fault("dead letters duplicated")
    dead_letters_wrong: int = _fault("dead letters wrong")
    order_violations: int = _fault("refunds out of order")
    offsets_behind: int | None = _unasked("settlements done, offset not committed")
    hanging_partitions: int = _fault("partitions with an open transaction")
    aborted_rows: int = _info("aborted rows in the log")
    aborted_rows_seen: int | None = _unasked("aborted rows seen by a reader")
    committed_rows_missed: int | None = _unasked("committed rows a reader missed")

    @property
    def faults(self) -> dict[str, int]:
        """The figures that should be 0 and are not, by their labels."""
        return {
            f.metadata["label"]: getattr(self, f.name)
            for f in fields(self)
            if f.metadata["zero"] and getattr(self, f.name)
        }

    @classmethod
    def rows(cls) -> list[tuple[str, str, bool]]:
        """Name, label, and whether it must be 0, of every figure in order."""
        return [(f.name, f.metadata["label"], f.metadata["zero"]) for f in fields(cls)]


@dataclass(frozen=True)
class Outputs:
    """What stands in the output topics."""

    refunds: list[Entry]
    audits: list[Entry]
    dead_letters: list[Entry]

    def __iter__(self) -> Any:
        return chain(self.refunds, self.audits, self.dead_letters)


@dataclass(frozen=True)
class Due:
    """What should stand there: rows by refund id, how often, and the dead letters' reasons."""

    settlements: list[Entry]
    refunds: dict[str, Row]
    audits: dict[str, Row]
    times: Counter[str]
    dead: dict[Position, tuple[Entry, str]]
    positions: list[Position]
    """Of the settlements that lead to any row."""

    @classmethod
    def of(cls, settlements: list[Entry]) -> Due:
        due = cls(settlements, {}, {}, Counter(), {}, [])
        for entry in settlements:
            result = expected(entry.key, entry.value)
            if result is None:
                continue
            due.positions.append(entry.position)
            if isinstance(result, str):
                due.dead[entry.position] = (entry, result)
            else:
                number = result[0]["refund_id"]
                due.refunds[number], due.audits[number] = result
                due.times[number] += 1
        return due


def check(
    bootstrap_servers: str,
    *,
    source: str = "settlements",
    refunds: str = "refunds-emitted",
    audit: str = "refund-audit",
    dead_letter: str = "settlements-dead-letter",
    group: str | None = None,
    seen: Mapping[Position, int] | None = None,
    wait_s: float = WAIT_S,
) -> Figures:
    """All figures, from the topics as they are now.

    Args:
        group: consumer group that the query commits its source offsets to; without it they are not looked at.
        seen: what a live reader of the three output topics saw, as `LiveReader.finish` returns it.
        wait_s: how long to wait for transactions that are open.

    Raises:
        CannotCheck: a topic does not exist, or nobody answers.
    """
    written = Topics(bootstrap_servers, (refunds, audit, dead_letter))
    hanging = written.hanging(wait_s)
    by_topic: dict[str, list[Entry]] = {name: [] for name in written.names}
    for entry in written.read():
        by_topic[entry.topic].append(entry)
    outputs = Outputs(by_topic[refunds], by_topic[audit], by_topic[dead_letter])
    settlements = Topics(bootstrap_servers, (source,))
    due = Due.of(settlements.read())
    figures = compare(due, outputs)
    if group is not None:
        figures.offsets_behind = offsets_behind(due, settlements.committed(group))
    figures.hanging_partitions = len(hanging)
    figures.aborted_rows = len(written.read("read_uncommitted")) - sum(map(len, by_topic.values()))
    figures.aborted_rows_seen, figures.committed_rows_missed = compare_seen(outputs, seen)
    return figures


def compare(due: Due, outputs: Outputs) -> Figures:
    """The figures that follow from committed rows."""
    found_refunds, found_audits = _numbers(outputs.refunds), _numbers(outputs.audits)
    figures = Figures(settlements=len(due.settlements))
    figures.refunds_expected = figures.audits_expected = due.times.total()
    figures.refunds_found, figures.audits_found = len(outputs.refunds), len(outputs.audits)
    figures.refunds_lost = (due.times - found_refunds).total()
    figures.audits_lost = (due.times - found_audits).total()
    figures.refunds_duplicated = _extra(found_refunds, due.times)
    figures.audits_duplicated = _extra(found_audits, due.times)
    figures.refunds_wrong = _wrong(outputs.refunds, due.refunds)
    figures.audits_wrong = _wrong(outputs.audits, due.audits)
    figures.refunds_without_audit = (found_refunds - found_audits).total()
    figures.audits_without_refund = (found_audits - found_refunds).total()
    _compare_dead_letters(figures, due, outputs.dead_letters)
    figures.order_violations = order_violations(outputs.refunds)
    return figures


def offsets_behind(due: Due, committed: Mapping[Place, int]) -> int:
    """Settlements that led to a row and would be read again by a reader that starts at the group's offsets."""
    return sum(offset >= committed.get((topic, partition), 0) for topic, partition, offset in due.positions)


def compare_seen(outputs: Outputs, seen: Mapping[Position, int] | None) -> tuple[int | None, int | None]:
    """Rows that a live reader saw and are not committed, and committed rows that it did not see."""
    if seen is None:
        return None, None
    final = {entry.position: entry.digest for entry in outputs}
    return len(seen.items() - final.items()), len(final.items() - seen.items())


def order_violations(refunds: list[Entry]) -> int:
    """Refunds that stand after a later one of the same merchant, or in another partition than its first.

    The same sequence number again is a duplicate, not a disorder.
    """
    violations = 0
    home: dict[bytes | None, int] = {}
    last: dict[bytes | None, int] = {}
    for entry in refunds:
        sequence = _row(entry).get("sequence")
        if not isinstance(sequence, int):
            continue  # counted as wrong
        misplaced = home.setdefault(entry.key, entry.partition) != entry.partition
        violations += misplaced or sequence < last.get(entry.key, sequence)
        last[entry.key] = max(sequence, last.get(entry.key, sequence))
    return violations


def _compare_dead_letters(figures: Figures, due: Due, letters: list[Entry]) -> None:
    found: defaultdict[Position | None, list[Entry]] = defaultdict(list)
    for letter in letters:
        found[_origin(letter)].append(letter)
    figures.dead_letters_expected, figures.dead_letters_found = len(due.dead), len(letters)
    figures.dead_letters_lost = len(due.dead.keys() - found.keys())
    figures.dead_letters_duplicated = sum(len(same) - 1 for place, same in found.items() if place in due.dead)
    figures.dead_letters_wrong = sum(
        place not in due.dead or not _is_letter_of(letter, *due.dead[place])
        for place, same in found.items()
        for letter in same
    )


def _is_letter_of(letter: Entry, event: Entry, reason: str) -> bool:
    as_it_came = (letter.key, letter.value) == (event.key, event.value)
    return as_it_came and set(event.headers) <= set(letter.headers) and letter.header("reason") == reason


def _origin(letter: Entry) -> Position | None:
    """Where a dead letter says that it came from; None if it does not say."""
    try:
        where = int(letter.header("source.partition")), int(letter.header("source.offset"))
    except ValueError:
        return None
    return letter.header("source.topic"), *where


def _row(entry: Entry) -> Row:
    try:
        row = json.loads(entry.value or b"")
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _numbers(entries: list[Entry]) -> Counter[str]:
    return Counter(str(_row(entry).get("refund_id")) for entry in entries)


def _extra(found: Counter[str], due: Counter[str]) -> int:
    """Rows beyond what is due; ids that no settlement calls for count as wrong instead."""
    return (Counter({number: times for number, times in found.items() if number in due}) - due).total()


def _wrong(entries: list[Entry], due: Mapping[str, Row]) -> int:
    """Rows that no settlement calls for, or whose content or key is not what it should be."""
    wrong = 0
    for entry in entries:
        row = _row(entry)
        right = due.get(str(row.get("refund_id")))
        wrong += row != right or entry.key != str(right["merchant"]).encode()
    return wrong


def figures_table(columns: Mapping[str, Figures], title: str = "") -> Table:
    """Figures as rows, one column for each checked run; what should be 0 and is not is marked."""
    table = Table(title=title or None)
    table.add_column("figure")
    for name in columns:
        table.add_column(name, justify="right")
    for name, label, must_be_zero in Figures.rows():
        values = [getattr(figures, name) for figures in columns.values()]
        table.add_row(label, *(_cell(value, must_be_zero) for value in values))
    return table


def _cell(value: int | None, must_be_zero: bool) -> str:
    if value is None:
        return "–"
    if not must_be_zero:
        return f"{value:,}"
    return f"[bold red]{value:,} ✗[/]" if value else "[green]0[/]"


def main(
    *,
    bootstrap_servers: Annotated[str, typer.Option(help="Brokers: host:port,host:port.")] = "localhost:9092",
    source: Annotated[str, typer.Option(help="Topic of the settlements.")] = "settlements",
    refunds: Annotated[str, typer.Option(help="Topic of the refunds.")] = "refunds-emitted",
    audit: Annotated[str, typer.Option(help="Topic of the audit rows.")] = "refund-audit",
    dead_letter: Annotated[str, typer.Option(help="Topic of the dead letters.")] = "settlements-dead-letter",
    group: Annotated[str | None, typer.Option(help="The query's consumer group: its query id.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for open transactions.")] = WAIT_S,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Check the refunds of a settlements topic. Exit code 1 if any figure is wrong, 2 if it can't be checked."""
    console = Console()
    try:
        figures = check(
            bootstrap_servers,
            source=source,
            refunds=refunds,
            audit=audit,
            dead_letter=dead_letter,
            group=group,
            wait_s=wait,
        )
    except CannotCheck as error:
        Console(stderr=True).print(f"can't check: {error}", markup=False)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps(asdict(figures) | {"faults": figures.faults}, indent=2))
    else:
        console.print(figures_table({"found": figures}, title=refunds))
    raise typer.Exit(1 if figures.faults else 0)


if __name__ == "__main__":
    typer.run(main)
