"""What an entry of Spark's offset log says of the sources that are Kafka."""

from __future__ import annotations

import json

from spark_eos.spark.logged import UNKNOWN, LoggedBatch


def logged(*sources: object) -> LoggedBatch:
    return LoggedBatch([json.dumps(each) for each in sources])


def test_what_several_sources_read_is_processed_up_to_the_smallest_end() -> None:
    """A union, or a self-join: each source has limits and an end of its own."""
    ids = {"topic ids": {"a": "id-a"}}
    one, two, three = {"a": {"0": 7, "1": 4}}, {"a": {"0": 5, "1": 9}, "b": {"0": 2}}, {"a": {"0": 6}}
    for order in ((one, two, three), (three, two, one)):
        found = logged(*(source | ids for source in order))
        assert found.offsets == {("a", 0): 5, ("a", 1): 4, ("b", 0): 2}
        assert found.shared == {("a", 0), ("a", 1)}


def test_sources_that_share_nothing() -> None:
    found = logged({"a": {"0": 7}}, {"logOffset": 3}, {"b": {"0": 2}})
    assert (found.offsets, found.shared) == ({("a", 0): 7, ("b", 0): 2}, frozenset())
    assert (UNKNOWN.offsets, UNKNOWN.shared) == ({}, frozenset())
