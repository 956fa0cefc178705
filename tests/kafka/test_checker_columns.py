"""Headers and timestamps, for the checker: of copies, and of what a live reader saw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from copy_program import Copy
from kafka_log import until

from spark_eos.checker import Entry
from spark_eos.checker.rows import Columns, rows_of
from spark_eos.checker.topic_log import Topics

TRACED = [("trace", b"1"), ("trace", None), ("empty", b"")]


@pytest.fixture
def entries(copy: Copy) -> list[Entry]:
    """The input's records; the last two have headers."""
    copy.write([(p, f"k{p}", f"k{p}:traced") for p in (0, 1)], copy.source, headers=TRACED)
    copy.done(1000)
    return Topics(copy.bootstrap, (copy.source,)).read()


def write(copy: Copy, entries: Iterable[Entry]) -> None:
    """Copies of these records, with all that they have."""
    with copy.transaction() as producer:
        for topic in copy.outputs:
            for each in entries:
                columns = {"headers": list(each.headers), "timestamp": each.timestamp}
                producer.produce(topic, each.value, each.key, each.partition, **columns)
        producer.commit_transaction(10)


def test_a_copy_of_all_columns_is_clean(copy: Copy, entries: list[Entry]) -> None:
    write(copy, entries)
    assert copy.check(timestamps=True).anomalies == {}


@pytest.mark.parametrize(
    "headers",
    [(), tuple(TRACED[:2]), (*TRACED, ("more", b"")), (("trace", b"2"), *TRACED[1:]), tuple(reversed(TRACED))],
    ids=["none", "less", "more", "other", "order"],
)
def test_other_headers_are_found(copy: Copy, entries: list[Entry], headers) -> None:
    write(copy, [replace(each, headers=headers) if each.value == b"k1:traced" else each for each in entries])
    assert copy.check().anomalies == {"lost": 1, "foreign": 2}
    assert copy.check(headers=False).anomalies == {}


def test_other_timestamps_are_found_where_they_count(copy: Copy, entries: list[Entry]) -> None:
    write(copy, [replace(each, timestamp=each.timestamp + (each.value == b"k1:traced")) for each in entries])
    assert copy.check().anomalies == {}
    assert copy.check(timestamps=True).anomalies == {"lost": 1, "foreign": 2}
    assert copy.check(headers=False, timestamps=True).anomalies == {"lost": 1, "foreign": 2}


@pytest.mark.parametrize(("less", "rows"), [(Columns(headers=False), 2), (Columns(timestamp=False), 32)])
def test_a_live_reader_sees_headers_and_timestamps(copy: Copy, entries: list[Entry], less: Columns, rows: int) -> None:
    with copy.watch() as watch:
        write(copy, entries)
        until(lambda: sum(map(len, watch.reader.rows.values())) == 2 * len(entries))
        assert copy.check(watch).anomalies == {}
    outputs = Topics(copy.bootstrap, copy.outputs)
    assert watch.reader.finish() == {entry.position: entry.digest for entry in outputs.read()}
    watch.reader.rows = rows_of(outputs.messages(), less)
    assert copy.check(watch).anomalies == {"aborted-seen": 2 * rows, "missed": 2 * rows}
