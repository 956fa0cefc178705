"""What the checker compares, without a broker."""

from __future__ import annotations

import pytest

from spark_eos.checker import Entry
from spark_eos.checker.findings import Findings
from spark_eos.checker.judge import compare_seen
from spark_eos.checker.rows import Rows, digest

FINAL = [(0, 10), (1, 11), (3, 13), (4, 14)]


def log(rows: list[tuple[int, int]]) -> dict[tuple[str, int], Rows]:
    made = Rows()
    for row in rows:
        made.add(*row)
    return {("out", 0): made}


@pytest.mark.parametrize(
    ("seen", "anomalies"),
    [
        (FINAL, {}),
        (FINAL[1:], {"missed": 1}),
        (FINAL[:-1], {"missed": 1}),
        ([], {"missed": 4}),
        ([*FINAL[:2], (2, 12), *FINAL[2:]], {"aborted-seen": 1}),
        ([*FINAL, (5, 15)], {"aborted-seen": 1}),
        ([(0, 10), (1, 99), (3, 13), (4, 14)], {"aborted-seen": 1, "missed": 1}),
    ],
)
def test_what_a_reader_saw_is_what_was_committed(seen, anomalies) -> None:
    findings = Findings()
    compare_seen(log(FINAL), log(seen), findings)
    assert findings.anomalies == anomalies


def test_a_partition_that_the_reader_never_got_is_missed() -> None:
    findings = Findings()
    compare_seen(log(FINAL) | {("out", 1): log(FINAL)["out", 0]}, log(FINAL), findings)
    assert findings.examples == {"missed": ["out[1]@0", "out[1]@1", "out[1]@3", "out[1]@4"]}


def test_digests_tell_keys_from_values_and_null_from_empty() -> None:
    records = [(None, None), (None, b""), (b"", None), (b"", b""), (b"ab", b"c"), (b"a", b"bc"), (b"abc", None)]
    assert len({digest(*record) for record in records}) == len(records)


def test_digests_tell_headers_and_timestamps_from_each_other() -> None:
    headers = [
        [],
        [("a", None)],
        [("a", b"")],
        [("", b"a")],
        [("a", b"b")],
        [("ab", b"")],
        [("a", b"b"), ("c", b"")],
        [("c", b""), ("a", b"b")],
    ]
    times = [None, -1, 0, 1, 10]
    assert len({digest(b"k", b"1", each, time) for each in headers for time in times}) == len(headers) * len(times)
    assert Entry("t", 0, 0, b"k", b"1", (("a", b"b"),), 10).digest == digest(b"k", b"1", [("a", b"b")], 10)
