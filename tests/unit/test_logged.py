"""What an entry of Spark's offset log says of a batch: where it ends, and whether it is known what it is made of."""

from __future__ import annotations

import json

from spark_eos.spark.logged import UNKNOWN, LoggedBatch, SourceEnds, initial_offsets, listings

DELTA = {"sourceVersion": 1, "reservoirId": "r", "reservoirVersion": 3, "index": -1, "isStartingVersion": False}


def ends(*sources: object) -> SourceEnds:
    return {str(name): json.dumps(each) for name, each in enumerate(sources)}


def logged(*sources: object) -> LoggedBatch:
    return LoggedBatch(ends(*sources))


def test_what_several_sources_read_is_processed_up_to_the_smallest_end() -> None:
    """A union, or a self-join: each source has limits and an end of its own."""
    ids = {"topic ids": {"a": "id-a"}}
    one, two, three = {"a": {"0": 7, "1": 4}}, {"a": {"0": 5, "1": 9}, "b": {"0": 2}}, {"a": {"0": 6}}
    for order in ((one, two, three), (three, two, one)):
        found = logged(*(source | ids for source in order))
        assert found.offsets == {("a", 0): 5, ("a", 1): 4, ("b", 0): 2}
        assert found.shared


def test_sources_that_share_nothing() -> None:
    found = logged({"a": {"0": 7}}, {"logOffset": 3}, {"b": {"0": 2}})
    assert (found.offsets, found.shared) == ({("a", 0): 7, ("b", 0): 2}, False)
    assert (UNKNOWN.offsets, UNKNOWN.shared) == ({}, False)


def test_a_batch_starts_where_the_one_before_ended_but_for_topics_that_were_created_again() -> None:
    def entry(id_of_b: str, offset: int) -> dict[str, object]:
        return {"a": {"0": offset}, "b": {"0": offset}, "topic ids": {"a": "id", "b": id_of_b}}

    found = LoggedBatch(ends(entry("new", 9)), before=ends(entry("old", 7)))
    assert found.starts == {("a", 0): 7}
    assert LoggedBatch(ends(entry("old", 9)), before=ends(entry("old", 7))).starts == {("a", 0): 7, ("b", 0): 7}


def test_a_first_batch_starts_where_its_source_says() -> None:
    """That of kafka-eos is empty; Spark's own source keeps its start apart."""
    files = {"sources/0/0": 'v1\n{"a":{"0":2}}'}
    ours, sparks = ends({"a": {"0": 5}, "topic ids": {"a": "id"}}), ends({"a": {"0": 5}})
    assert LoggedBatch(ours, initial=initial_offsets(ours, files.get)).starts == {("a", 0): 5}
    assert LoggedBatch(sparks, initial=initial_offsets(sparks, files.get)).starts == {("a", 0): 2}
    assert LoggedBatch(sparks, initial=initial_offsets(sparks, {}.get)).starts == {}
    assert LoggedBatch(ours).starts == {}


def test_a_content_is_known_only_where_the_offsets_say_which_rows_there_are() -> None:
    kafka = {"a": {"0": 7}}
    assert logged(kafka).content == logged(kafka).content != logged({"a": {"0": 8}}).content
    assert logged(DELTA).content != logged(DELTA | {"index": 4}).content
    for other in ({"logOffset": 3}, 17, {"offset": 1}, {"offset": 3, "timestamp": 1000}, {"seqNum": 4}, {}):
        assert logged(other).content is None
        assert logged(kafka, other).content is None


def test_the_content_of_a_folder_is_its_files() -> None:
    files = {
        "sources/0/0": 'v1\n{"path":"a","timestamp":1,"batchId":0}',
        "sources/0/2.compact": 'v1\n{"path":"a","timestamp":1,"batchId":0}\n{"path":"c","timestamp":3,"batchId":2}',
        "sources/0/1": 'v1\n{"path":"b","timestamp":2,"batchId":1}',
    }
    one, two = ends({"logOffset": 1}), ends({"logOffset": 2})
    assert listings({}, one, files.get) == {"0": "a 1\nb 2"}
    assert listings(one, two, files.get) == {"0": "c 3"}
    assert listings(two, two, files.get) == {"0": ""}
    assert listings({}, ends({"logOffset": 4}), files.get) == {}
    known = LoggedBatch(two, listings={"0": "c 3"}).content
    assert known != LoggedBatch(two, listings={"0": "d 3"}).content
    assert known is not None
    assert known.startswith("sources:")


def test_the_content_of_a_rate_is_when_it_began() -> None:
    for end in (17, {"offset": 3, "timestamp": 1000}):
        assert listings({}, ends(end), {"sources/0/0": "v1\n1500"}.get) == {"0": "v1\n1500"}
        assert listings({}, ends(end), {}.get) == {}
