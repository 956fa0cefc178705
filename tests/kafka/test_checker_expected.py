"""A pipeline that is no copy, judged by a function: it filters, writes some in upper case and some to another topic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from copy_program import Copy, Row

from spark_eos.checker import Entry, ExpectedRow, JavaReader


def made(copy: Copy) -> dict[str, list[Row]]:
    """What a right program writes: to the first output all but each key's first, to the second its last, too."""
    upper = [(p, key, value.upper()) for p, key, value in copy.rows if not value.endswith(":0")]
    return {
        copy.outputs[0]: upper,
        copy.outputs[1]: [(1, None, value) for _, _, value in upper if value.endswith(":4")],
    }


def expected_of(copy: Copy):
    """The function: it has the input records only."""

    def expected(records: Iterator[Entry]) -> Iterator[ExpectedRow]:
        for record in records:
            value = record.value.upper()
            if not value.endswith(b":0"):
                yield ExpectedRow(copy.outputs[0], record.key, value, source=record, ordered=True)
            if value.endswith(b":4"):
                yield ExpectedRow(copy.outputs[1], None, value, headers=(), partition=1, source=record)

    return expected


def test_a_right_pipeline_is_clean(copy: Copy) -> None:
    with copy.watch() as watch:
        for topic, rows in made(copy).items():
            copy.write(rows, topic, commit=False)
            copy.write(rows, topic)
        copy.done()
        how = {"java_reader": JavaReader(copy.bootstrap), "expected": expected_of(copy)}
        findings = copy.check(watch, **how)
    assert findings.anomalies == {}
    assert None not in findings.figures.values(), "all was looked at"
    assert findings.figures["input records"] == len(copy.rows)


@pytest.mark.parametrize(
    ("wrong", "anomalies"),
    [
        (lambda one, two: one.pop(0), {"lost": 1}),
        (lambda one, two: one.append(one[0]), {"duplicated": 1}),
        (lambda one, two: one.append((0, "k0", "k0:1")), {"foreign": 1}),
        (lambda one, two: one.append((0, "k0", "K0:0")), {"foreign": 1}),
        (lambda one, two: two.pop(), {"torn": 1}),
        (lambda one, two: two.append((0, *two.pop()[1:])), {"torn": 1, "foreign": 1}),
        (lambda one, two: one.reverse(), {"disordered": 18}),
    ],
    ids=["lost", "doubled", "foreign", "not left out", "torn", "other partition", "reversed"],
)
def test_what_is_wrong_is_found(copy: Copy, wrong, anomalies: dict[str, int]) -> None:
    rows = made(copy)
    wrong(*rows.values())
    for topic, there in rows.items():
        copy.write(there, topic)
    copy.done()
    findings = copy.check(expected=expected_of(copy))
    assert findings.anomalies == anomalies
    if "lost" in anomalies:
        assert findings.examples == {"lost": [f"{copy.source}[0]@3 not in {copy.outputs[0]}"]}


def test_offsets_cover_input_records_that_the_function_did_not_ask_for(copy: Copy) -> None:
    copy.write(copy.rows[:1])
    expected = [ExpectedRow(topic, b"k0", b"k0:0") for topic in copy.outputs]
    findings = copy.check(expected=lambda records: [row for _ in islice(records, 1) for row in expected])
    assert findings.anomalies == {"uncovered": len(copy.rows)}
    assert findings.figures["input records"] == len(copy.rows)


def test_headers_and_timestamps_are_said_by_the_rows(copy: Copy) -> None:
    with pytest.raises(ValueError, match="say themselves"):
        copy.check(expected=lambda records: [], timestamps=True)
