"""Arithmetic of the source's offsets: rate limit, AvailableNow, data loss, ranges, progress."""

from __future__ import annotations

import json

import pytest

from spark_eos.errors import SparkEosError
from spark_eos.kafka.offsets import (
    Bounds,
    Holdings,
    Marks,
    OffsetRange,
    ends,
    limited,
    losses,
    lost,
    ranges,
    report,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
HELD = {A0: Bounds(5, 100, 104), A1: Bounds(0, 50, 50), B0: Bounds(0, 0, 3)}


def test_offsets_in_the_checkpoint_are_always_in_the_same_order() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 9): 3}
    marks = Marks(offsets, {"b": "id-b", "a": "id-a", "gone": "id"})
    text = json.dumps(marks.to_json())
    assert text == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}, "topic ids": {"a": "id-a", "b": "id-b"}}'
    assert Marks.of_json(json.loads(text)) == Marks(offsets, {"a": "id-a", "b": "id-b"})
    assert Marks.of_json({}) == Marks({}, {})


def test_the_checkpoint_of_sparks_own_source_is_understood() -> None:
    marks = Marks.of_json({"a": {"0": 3}})
    assert marks == Marks({A0: 3}, {})
    assert marks.to_json() == {"a": {"0": 3}}
    assert marks.replaced({"a": "any id"}) == set()


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(SparkEosError, match="not those of a Kafka source"):
        Marks.of_json({"logOffset": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("start", "held", "told"),
    [
        (10, Bounds(0, 20, 20), None),
        (20, Bounds(0, 20, 20), None),
        (10, Bounds(10, 20, 20), None),
        (10, Bounds(10, 10, 10), None),
        (10, Bounds(11, 20, 20), "starts at 11"),
        (10, Bounds(0, 9, 9), "ends at 9"),
        (10, Bounds(0, 0, 0), "ends at 0"),
        (0, None, "is gone"),
        (None, Bounds(0, 20, 20), None),
        (None, Bounds(3, 20, 20), "is new, and starts at offset 3 instead of 0"),
    ],
)
def test_what_counts_as_data_loss(start: int | None, held: Bounds | None, told: str | None) -> None:
    found = losses({A0: start} if start is not None else {}, {A0: held} if held else {})
    assert list(found) == ([A0] if told else [])
    assert not told or told in found[A0]


def test_a_topic_created_again_is_data_loss_however_many_records_it_has() -> None:
    known = Marks({A0: 10, B0: 0}, {"a": "old", "b": "same"})
    now = Holdings({A0: Bounds(0, 20, 20), B0: Bounds(0, 0, 0)}, {"a": "new", "b": "same"})
    assert known.replaced(now.topic_ids) == {"a"}
    assert known.without({"a"}) == Marks({B0: 0}, {"b": "same"})
    found = lost(known, now)
    assert list(found) == [A0]
    assert "deleted and created again" in found[A0]
    assert lost(known, Holdings(now.bounds, {"a": "old", "b": "same"})) == {}


def test_a_deleted_topic_is_gone_and_not_replaced() -> None:
    known = Marks({A0: 10}, {"a": "old"})
    assert known.replaced({}) == set()
    assert "is gone" in lost(known, Holdings({}, {}))[A0]


HIDDEN = Marks({A1: 4}, {"a": "id-a", "b": "id-b"}, {A0: 7, B0: 3})


def test_hidden_partitions_wait_in_the_checkpoint() -> None:
    text = json.dumps(HIDDEN.to_json())
    assert text == (
        '{"a": {"1": 4}, "topic ids": {"a": "id-a", "b": "id-b"}, "out of sight": {"a": {"0": 7}, "b": {"0": 3}}}'
    )
    assert Marks.of_json(json.loads(text)) == HIDDEN
    assert HIDDEN.all == {A0: 7, A1: 4, B0: 3}
    none_seen = Marks({}, {"b": "id-b"}, {B0: 3})
    assert Marks.of_json(none_seen.to_json()) == none_seen


def test_hidden_partitions_are_no_loss_until_they_are_back() -> None:
    held = {A1: Bounds(0, 9, 9)}
    assert lost(HIDDEN, Holdings(held, {"a": "id-a"})) == {}
    back = Holdings({**held, B0: Bounds(0, 5, 5)}, {"a": "id-a", "b": "id-b"})
    assert HIDDEN.back(back) == Marks({A1: 4, B0: 3}, HIDDEN.topic_ids, {A0: 7})
    assert lost(HIDDEN, back) == {}
    short = Holdings({**held, B0: Bounds(0, 2, 2)}, back.topic_ids)
    assert "ends at 2" in lost(HIDDEN, short)[B0]
    another = Holdings(back.bounds, {"a": "id-a", "b": "another"})
    assert HIDDEN.back(another) == HIDDEN
    assert HIDDEN.without({"b"}) == Marks({A1: 4}, {"a": "id-a"}, {A0: 7})
    assert lost(HIDDEN, another) == {}


def test_a_batch_moves_no_mark_back_and_loses_none() -> None:
    start = Marks({A0: 10, A1: 4}, {"a": "id-a"})
    now = Holdings({A0: Bounds(0, 8, 8), B0: Bounds(0, 2, 2)}, {"a": "id-a", "b": "id-b"})
    assert start.moved({A0: 8, B0: 2}, now) == Marks({A0: 10, B0: 2}, now.topic_ids, {A1: 4})
    # Not in the target of Trigger.AvailableNow, and seen all the same.
    assert start.moved({B0: 2}, now).offsets == {A0: 10, B0: 2}


def test_without_a_target_all_partitions_are_read_to_their_end() -> None:
    assert ends(HELD, None) == {A0: 100, A1: 50, B0: 0}


def test_available_now_reads_neither_beyond_its_target_nor_new_partitions() -> None:
    assert ends(HELD, {A0: 60, A1: 70}) == {A0: 60, A1: 50}


@pytest.mark.parametrize(
    ("limit", "start", "until"),
    [
        # In proportion to the backlogs 90 and 10, rounded down.
        (10, {A0: 10, A1: 40, B0: 0}, {A0: 19, A1: 41, B0: 0}),
        (15, {A0: 10, A1: 40, B0: 0}, {A0: 23, A1: 41, B0: 0}),
        # A small backlog is not starved.
        (2, {A0: 10, A1: 40, B0: 0}, {A0: 11, A1: 41, B0: 0}),
        # More room than backlog.
        (1000, {A0: 10, A1: 40, B0: 0}, {A0: 100, A1: 50, B0: 0}),
        # Nothing to read.
        (10, {A0: 100, A1: 50, B0: 0}, {A0: 100, A1: 50, B0: 0}),
        # A new partition starts at 0, one whose head is gone at what is left of it.
        (10, {A0: 0, B0: 0}, {A0: 5 + 6, A1: 3, B0: 0}),
        # Records are gone, so that the end is below the start: on from the end, as Spark does.
        (10, {A0: 200, A1: 40, B0: 0}, {A0: 100, A1: 50, B0: 0}),
    ],
)
def test_rate_limit(limit: int, start: dict[tuple[str, int], int], until: dict[tuple[str, int], int]) -> None:
    assert limited(limit, start, HELD, ends(HELD, None)) == until


def test_the_rate_limit_reaches_every_end() -> None:
    start, until, batches = {A0: 5, A1: 0, B0: 0}, ends(HELD, None), 0
    while start != until:
        after = limited(7, start, HELD, until)
        assert all(start[key] <= after[key] <= until[key] for key in start)
        assert after != start
        start, batches = after, batches + 1
    assert batches <= 145  # one offset a batch would be the slowest


def test_ranges_are_sorted_and_never_empty() -> None:
    start = {("b", 0): 3, ("a", 10): 1, ("a", 9): 1, ("a", 2): 5, ("gone", 0): 1}
    end = {("b", 0): 4, ("a", 10): 2, ("a", 9): 2, ("a", 2): 5, ("a", 11): 6, ("shrunk", 0): 0}
    assert ranges(start, end) == [
        OffsetRange("a", 9, 1, 2),
        OffsetRange("a", 10, 1, 2),
        OffsetRange("a", 11, 0, 6),
        OffsetRange("b", 0, 3, 4),
    ]


def test_ranges_do_not_depend_on_the_order_of_the_checkpoint() -> None:
    start, end = {A0: 1, A1: 2}, {A0: 3, A1: 4}
    backwards = [dict(reversed(each.items())) for each in (start, end)]
    assert ranges(start, end) == ranges(backwards[0], backwards[1])


def test_progress_tells_the_lag_to_both_ends() -> None:
    found = report(Holdings(HELD, {}), {A0: 90, A1: 50})
    assert found == {
        "a": {"0": 100, "1": 50},
        "b": {"0": 0},
        "high watermark": {"a": {"0": 104, "1": 50}, "b": {"0": 3}},
        "lag": {"to last stable offset": 10, "to high watermark": 14 + 3},
        "isolation.level": "read_committed",
    }
