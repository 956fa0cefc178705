"""The checker's rules, and that each seeded bug moves exactly the figure that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from check_refunds import Due, Figures, Outputs, compare, compare_seen, offsets_behind
from check_rules import expected
from generate_settlements import generate

from spark_eos.checker.rows import digest
from spark_eos.checker.topic_log import Entry

GOOD = {
    "settlement_id": "STL-1",
    "merchant": "MER-1",
    "sequence": 4,
    "amount_paise": 300_000,
    "refund_paise": 250_000,
    "reason": "order cancelled",
    "at": "2026-01-01T09:30:00Z",
}


def encoded(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


def test_a_refund_and_its_audit_row() -> None:
    both = {"refund_id": "RFD-bfc614aeda2fa2ac", "settlement_id": "STL-1", "merchant": "MER-1", "sequence": 4}
    refund, audit = both | {"amount_paise": 250_000, "at": GOOD["at"]}, both | {"actor": "refunds-job"}
    assert expected(b"MER-1", encoded()) == (refund, audit | {"reason": "order cancelled"})


def test_no_refund_is_due() -> None:
    assert expected(b"MER-1", encoded(refund_paise=0)) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty value"),
        (b"", "empty value"),
        (b"\xff" + encoded(), "not UTF-8"),
        (encoded()[:-1], "not JSON"),
        (encoded() + b"{}", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1, "a": 1}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        *((without(name), f"bad {name}") for name in GOOD),
        (encoded(amount_paise="300000"), "bad amount_paise"),
        (encoded(amount_paise=-1), "bad amount_paise"),
        (encoded(amount_paise=0), "bad amount_paise"),
        (encoded(amount_paise=1.0), "bad amount_paise"),
        (encoded(amount_paise=True), "bad amount_paise"),
        (encoded(amount_paise=2**63), "bad amount_paise"),
        (encoded(refund_paise=-1), "bad refund_paise"),
        (encoded(refund_paise=None), "bad refund_paise"),
        (encoded(sequence=-1), "bad sequence"),
        (encoded(merchant=""), "bad merchant"),
        (encoded(reason=7), "bad reason"),
        (encoded(at="yesterday"), "bad at"),
        (encoded(at="2026-01-01T09:30:00Z\n"), "bad at"),
        (encoded(refund_paise=300_001), "refund above amount"),
        (encoded(merchant="MER-2"), "key is not the merchant"),
    ],
)
def test_reasons_of_dead_letters(value: bytes | None, reason: str) -> None:
    assert expected(b"MER-1", value) == reason


def settlements() -> list[Entry]:
    events = enumerate(generate(seed=2, events=400, merchants=3))
    return [Entry("settlements", 0, offset, key, value) for offset, (key, value) in events]


DUE = Due.of(settlements())


def right_outputs() -> Outputs:
    """What a faultless job writes, in one partition per topic."""
    return Outputs(
        [_entry("refunds", i, row) for i, row in enumerate(DUE.refunds.values())],
        [_entry("audit", i, row) for i, row in enumerate(DUE.audits.values())],
        [_letter(i, event, reason) for i, (event, reason) in enumerate(DUE.dead.values())],
    )


def _entry(topic: str, offset: int, row: dict[str, Any]) -> Entry:
    return Entry(topic, 0, offset, row["merchant"].encode(), json.dumps(row).encode())


def _letter(offset: int, event: Entry, reason: str) -> Entry:
    place = {"source.topic": event.topic, "source.partition": event.partition, "source.offset": event.offset}
    headers = tuple((name, str(value).encode()) for name, value in ({"reason": reason} | place).items())
    return Entry("dead", 0, offset, event.key, event.value, headers)


def test_a_faultless_run() -> None:
    figures = compare(DUE, right_outputs())
    assert figures.faults == {}
    assert figures.settlements == 400
    assert figures.refunds_found == figures.refunds_expected == figures.audits_found > 150
    assert figures.dead_letters_found == figures.dead_letters_expected > 0


def again(entries: list[Entry]) -> None:
    entries.append(replace(entries[-1], offset=len(entries)))


def swapped(entries: list[Entry]) -> None:
    """Two refunds of one merchant change places."""
    first = entries[0]
    other = next(entry for entry in entries[1:] if entry.key == first.key)
    one, two = entries.index(first), entries.index(other)
    entries[one], entries[two] = other, first


def changed(entries: list[Entry], **changes: Any) -> None:
    row = json.loads(entries[3].value or b"") | changes
    entries[3] = replace(entries[3], value=json.dumps(row).encode())


Bug = Callable[[Outputs], Any]
BUGS: list[tuple[str, Bug, set[str]]] = [
    ("lost", lambda o: (o.refunds.pop(5), o.audits.pop(5)), {"refunds_lost", "audits_lost"}),
    ("torn: no audit", lambda o: o.audits.pop(5), {"audits_lost", "refunds_without_audit"}),
    ("torn: no refund", lambda o: o.refunds.pop(5), {"refunds_lost", "audits_without_refund"}),
    (
        "duplicated",
        lambda o: (again(o.refunds), again(o.audits)),
        {"refunds_duplicated", "audits_duplicated"},
    ),
    (
        "half duplicated",
        lambda o: again(o.refunds),
        {"refunds_duplicated", "refunds_without_audit"},
    ),
    ("misordered", lambda o: swapped(o.refunds), {"order_violations"}),
    (
        "in another partition",
        lambda o: o.refunds.append(replace(o.refunds.pop(), partition=1)),
        {"order_violations"},
    ),
    ("wrong amount", lambda o: changed(o.refunds, amount_paise=1), {"refunds_wrong"}),
    ("wrong actor", lambda o: changed(o.audits, actor="nobody"), {"audits_wrong"}),
    (
        "invented",
        lambda o: (changed(o.refunds, refund_id="RFD-0"), changed(o.audits, refund_id="RFD-0")),
        {"refunds_lost", "audits_lost", "refunds_wrong", "audits_wrong"},
    ),
    ("wrong key", lambda o: o.refunds.append(replace(o.refunds.pop(), key=b"?")), {"refunds_wrong"}),
    ("dead letter lost", lambda o: o.dead_letters.pop(), {"dead_letters_lost"}),
    ("dead letter duplicated", lambda o: again(o.dead_letters), {"dead_letters_duplicated"}),
    (
        "dead letter changed",
        lambda o: o.dead_letters.append(replace(o.dead_letters.pop(), value=b"other")),
        {"dead_letters_wrong"},
    ),
    (
        "dead letter without a reason",
        lambda o: o.dead_letters.append(replace(o.dead_letters[-1], headers=o.dead_letters.pop().headers[1:])),
        {"dead_letters_wrong"},
    ),
    (
        "dead letter from nowhere",
        lambda o: o.dead_letters.append(replace(o.dead_letters[-1], headers=())),
        {"dead_letters_wrong"},
    ),
]


@pytest.mark.parametrize(("bug", "faults"), [bug[1:] for bug in BUGS], ids=[bug[0] for bug in BUGS])
def test_each_seeded_bug_is_caught(bug: Bug, faults: set[str]) -> None:
    outputs = right_outputs()
    bug(outputs)
    labels = {label: name for name, label, _ in Figures.rows()}
    assert {labels[label] for label in compare(DUE, outputs).faults} == faults


def test_what_a_live_reader_saw() -> None:
    outputs = right_outputs()
    right = {entry.position: entry.digest for entry in outputs}
    aborted = {("refunds", 0, 10_000): digest(b"k", b"aborted")}
    assert compare_seen(outputs, None) == (None, None)
    assert compare_seen(outputs, right) == (0, 0)
    assert compare_seen(outputs, right | aborted) == (1, 0)
    assert compare_seen(outputs, dict(list(right.items())[1:])) == (0, 1)


def test_offsets_that_the_group_has_not_committed() -> None:
    last = DUE.positions[-1][2]
    assert offsets_behind(DUE, {("settlements", 0): last + 1}) == 0
    assert offsets_behind(DUE, {("settlements", 0): last}) == 1
    assert offsets_behind(DUE, {}) == len(DUE.positions) > 200
