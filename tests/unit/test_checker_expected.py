"""Outputs against what a function expects, without a broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_eos.checker import Entry, ExpectedRow, Findings
from spark_eos.checker.expected import Expectation
from spark_eos.checker.rows import Rows, digest

OUTPUTS = ("a", "b")
RECORDS = [Entry("in", number % 2, number // 2, b"k%d" % (number % 2), b"%d" % number) for number in range(6)]
HEADERS = (("h", b"1"),)


def judged(expected: Iterable[ExpectedRow], rows: Iterable[ExpectedRow]) -> Findings:
    """What is found where these rows are in the outputs, each in its partition (0 if it says none)."""
    expectation, findings, log = Expectation(expected, OUTPUTS), Findings(), {}
    for row in rows:
        columns, there = expectation.columns(row.topic), log.setdefault((row.topic, row.partition or 0), Rows())
        headers, time = row.headers or () if columns.headers else None, row.timestamp if columns.timestamp else None
        there.add(len(there), digest(row.key, row.value, headers, time))
    expectation.judge(log, findings)
    return findings


def both(records: Iterable[Entry], *, ordered: bool = True, source: bool = True) -> list[ExpectedRow]:
    """Of each record a row in either output; that in b has no key."""
    return [
        ExpectedRow(topic, key, each.value, source=each if source else None, ordered=ordered)
        for each in records
        for topic, key in (("a", each.key), ("b", None))
    ]


DUE = both(RECORDS)
A, B = DUE[::2], DUE[1::2]


@pytest.mark.parametrize(
    ("rows", "anomalies"),
    [
        (DUE, {}),
        (B + A, {}),
        (A[1:] + B[1:], {"lost": 1}),
        (A[1:] + B, {"torn": 1}),
        ([*DUE, A[3], A[3], B[0]], {"duplicated": 3}),
        ([*DUE, ExpectedRow("a", b"k0", b"9"), ExpectedRow("b", b"k0", b"0")], {"foreign": 2}),
        ([A[2], A[0], A[1], *A[3:], *B], {"disordered": 1}),
        ([*A, *reversed(B)], {}),  # they have no key
        ([A[0], *A[2:], ExpectedRow("a", b"k1", b"1", partition=1), *B], {"disordered": 1}),
        ([], {"lost": 6}),
    ],
)
def test_what_is_wrong_has_its_name(rows: list[ExpectedRow], anomalies: dict[str, int]) -> None:
    findings = judged(DUE, rows)
    assert findings.anomalies == anomalies
    assert findings.examples.keys() == anomalies.keys()


def test_an_empty_key_is_a_key() -> None:
    rows = [ExpectedRow("a", b"", b"%d" % number, ordered=True) for number in range(2)]
    assert judged(rows, rows).anomalies == {}
    assert judged(rows, rows[::-1]).anomalies == {"disordered": 1}


def test_examples_name_the_input_record() -> None:
    assert judged(DUE, A[1:] + B).examples == {"torn": ["in[0]@0 not in a"]}
    assert judged(DUE, [*DUE, B[3]]).examples == {"duplicated": ["in[1]@1 in b"]}
    assert judged(both(RECORDS, source=False), A[1:] + B).examples == {"lost": ["expected row 0 not in a"]}


def test_rows_that_are_alike_are_counted() -> None:
    alike = [ExpectedRow("a", b"k", b"v", source=record) for record in RECORDS]
    assert judged(alike, alike).anomalies == {}
    assert judged(alike, alike[1:]).anomalies == {"lost": 1}
    assert judged(alike, [*alike, alike[0]]).anomalies == {"duplicated": 1}


def test_what_the_rows_do_not_tell_is_not_judged() -> None:
    figures = judged(both(RECORDS, ordered=False, source=False), DUE[::-1]).figures
    assert [figures[label] for label in ("lost", "duplicated", "foreign", "torn", "disordered")] == [
        0,
        0,
        0,
        None,
        None,
    ]
    assert judged(both(RECORDS, ordered=False), A[::-1] + B).anomalies == {}
    assert judged([], [A[0]]).anomalies == {"foreign": 1}


@pytest.mark.parametrize("column", [{"headers": HEADERS}, {"headers": ()}, {"timestamp": 7}, {"partition": 1}])
def test_columns_count_where_they_are_told(column: dict[str, object]) -> None:
    told, other = (
        ExpectedRow("a", b"k", b"v", **each) for each in (column, {"headers": [("x", None)], "timestamp": 9})
    )
    assert judged([told], [told]).anomalies == {}
    assert judged([told], [other]).anomalies == {"lost": 1, "foreign": 1}
    assert judged([ExpectedRow("a", b"k", b"v")], [other]).anomalies == {}


def test_rows_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="row 0 is expected in c, which is no output"):
        Expectation([ExpectedRow("c", None, None)], OUTPUTS)
    rows = [ExpectedRow("b", None, None), ExpectedRow("a", None, None), ExpectedRow("a", None, None, headers=())]
    with pytest.raises(ValueError, match="row 2 has not the columns of the rows of a before it"):
        Expectation(rows, OUTPUTS)
