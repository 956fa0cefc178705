"""Which offsets a micro-batch has, asked as Spark's driver asks, without Spark."""

from __future__ import annotations

import json
import logging
import pickle
import time
from typing import Any

import pytest
from spark_source import Source

from spark_eos.errors import DataLoss, OptionError, SparkEosError, TopicMissing
from spark_eos.spark.ranges import RangePartition
from spark_eos.spark.stream_reader import KafkaEosStreamReader
from spark_eos.spark.versions import ReadAllAvailable, ReadMaxRows, ReadMinRows

ALL = ReadAllAvailable()


def offsets(found: dict[str, Any]) -> dict[str, Any]:
    """Without the topics' ids."""
    return {name: each for name, each in found.items() if name != "topic ids"}


def test_only_the_options_travel_into_tasks(source: Source) -> None:
    source.plain("a")
    reader = source.reader()
    start = reader.initialOffset()
    again = pickle.loads(pickle.dumps(reader))
    assert again.__dict__ == source.reader().__dict__
    (part,) = _plan(again, start, {source.topics[0]: {"0": 1, "1": 0}})
    assert [batch.column("value").to_pylist() for batch in again.read(part)] == [[b"a"]]


def _plan(reader: KafkaEosStreamReader, start: Any, end: Any) -> list[RangePartition]:
    """Ranges as Spark plans them: offsets arrive as JSON."""
    start, end = (json.loads(json.dumps(each)) for each in (start, end))
    found = list(reader.partitions(start, end))
    assert pickle.loads(pickle.dumps(found))[0].work == found[0].work if found else True
    return found


def _ranges(reader: KafkaEosStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    plan = _plan(reader, start, end)
    return [(piece.partition, piece.start, piece.end) for each in plan for piece in each.work]


def test_the_limit_is_the_option_unless_spark_gives_another(source: Source) -> None:
    source.plain(*"abcd")
    reader = source.but(maxOffsetsPerTrigger="2").reader()
    assert source.reader().getDefaultReadLimit() == ALL
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(2)) == start  # batch 0
    assert offsets(reader.latestOffset(start, ReadMaxRows(2))) == {source.topics[0]: {"0": 2, "1": 0}}
    assert offsets(reader.latestOffset(start, ALL)) == {source.topics[0]: {"0": 4, "1": 0}}


def test_progress_tells_of_the_lag_and_of_an_open_transaction(source: Source) -> None:
    source.plain(*"abcd")
    reader = source.reader()
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    with source.open_transaction("held back"):
        reader.latestOffset(start, ReadMaxRows(3))
        found = reader.reportLatestOffset()
    assert offsets(found) == {
        source.topics[0]: {"0": 4, "1": 0},
        "high watermark": {source.topics[0]: {"0": 5, "1": 0}},
        "lag": {"to last stable offset": 1, "to high watermark": 2},
        "isolation.level": "read_committed",
    }


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(source: Source) -> None:
    name = source.topics[0]
    source.plain("a")
    patient = source.but(minOffsetsPerTrigger="3", maxTriggerDelay="1s")
    reader, limit = patient.reader(), ReadMinRows(3)
    assert reader.getDefaultReadLimit() == limit
    assert patient.but(maxOffsetsPerTrigger="5").reader().getDefaultReadLimit() == ReadMaxRows(5)
    start = reader.initialOffset()
    reader.latestOffset(start, limit)  # batch 0
    first = reader.latestOffset(start, limit)  # a run's first batch does not wait
    assert offsets(first) == {name: {"0": 1, "1": 0}}
    source.plain("b")
    assert reader.latestOffset(first, limit) == first
    assert reader.reportLatestOffset()["lag"]["to last stable offset"] == 1
    assert offsets(reader.latestOffset(first, ALL)) == {name: {"0": 2, "1": 0}}  # Trigger.Once
    source.plain("c", "d")
    second = reader.latestOffset(first, limit)
    assert offsets(second) == {name: {"0": 4, "1": 0}}
    source.plain("e")
    assert reader.latestOffset(second, limit) == second
    time.sleep(1)
    assert offsets(reader.latestOffset(second, limit)) == {name: {"0": 5, "1": 0}}


def test_available_now_does_not_wait_for_enough_offsets(source: Source) -> None:
    source.plain("a")
    reader = source.but(minOffsetsPerTrigger="3").reader()
    reader.prepareForTriggerAvailableNow()
    start = {source.topics[0]: {"0": 0, "1": 0}}
    for _ in range(2):
        assert offsets(reader.latestOffset(start, ReadMinRows(3))) == {source.topics[0]: {"0": 1, "1": 0}}


def test_tasks_are_split_and_packed_the_same_way_each_time(source: Source) -> None:
    name = source.topics[0]
    source.plain(*"abcdef")
    source.plain("u", partition=1)
    plan = ({name: {"0": 0, "1": 0}}, {name: {"0": 6, "1": 1}})
    split = source.but(minPartitions="3").reader()
    assert _ranges(split, *plan) == _ranges(split, *plan) == [(0, 0, 3), (0, 3, 6), (1, 0, 1)]
    packed = source.but(maxPartitions="1").reader()
    (part,) = _plan(packed, *plan)
    batches = list(packed.read(part))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [
        b"%c" % c for c in b"abcdefu"
    ]
    assert [batch.column("partition").to_pylist()[0] for batch in batches] == [0, 1]


def test_batch_0_is_empty_also_when_it_is_done_again(source: Source) -> None:
    reader = source.reader()
    start = reader.initialOffset()
    assert (reader.latestOffset(start, ALL), _ranges(reader, start, start)) == (start, [])
    source.plain("a")
    restarted = source.but(startingOffsets="latest").reader()
    later = restarted.initialOffset()
    assert later != start
    for _ in range(2):  # a foreachBatch function may plan several times
        assert _ranges(restarted, later, start) == []
    end = restarted.latestOffset(start, ALL)
    assert _ranges(restarted, start, end) == [(0, 0, 1)]


def test_batch_1_is_not_taken_for_batch_0(source: Source) -> None:
    source.plain("a")
    for planned_first in (False, True):
        reader = source.reader()
        start = reader.initialOffset()
        if not planned_first:
            assert reader.latestOffset(start, ALL) == start
        assert _ranges(reader, start, start) == []
        end = reader.latestOffset(start, ALL)
        assert end != start
        assert _ranges(reader, start, end) == [(0, 0, 1)]


def test_available_now_ends_where_it_was_fixed(source: Source) -> None:
    source.plain("a")
    reader = source.but(startingOffsets="latest").reader()
    reader.prepareForTriggerAvailableNow()
    source.plain("later")
    source.widen(3)
    start = reader.initialOffset()
    assert offsets(start) == {source.topics[0]: {"0": 1, "1": 0, "2": 0}}
    reader.latestOffset(start, ALL)
    later = reader.latestOffset({source.topics[0]: {"0": 0, "1": 0}}, ALL)
    assert offsets(later) == {source.topics[0]: {"0": 1, "1": 0}}


def test_starting_offsets_by_partition(source: Source) -> None:
    name = source.topics[0]
    source.plain(*"abcd")
    source.delete_before(1)

    def initial(given: Source) -> dict[str, Any]:
        return offsets(given.reader().initialOffset())

    for asked, found in (({"0": -2, "1": -1}, {"0": 1, "1": 0}), ({"0": 3, "1": 0}, {"0": 3, "1": 0})):
        assert initial(source.but(startingOffsets=json.dumps({name: asked}))) == {name: found}
    with pytest.raises(OptionError, match="names the partitions"):
        source.but(startingOffsets=json.dumps({name: {"0": 3}})).reader().initialOffset()
    gone = source.but(startingOffsets=json.dumps({name: {"0": 0, "1": 5}}))
    with pytest.raises(DataLoss, match=r"partition 0.*starts at 1.*partition 1.*ends at 0"):
        gone.reader().initialOffset()
    assert initial(gone.but(failOnDataLoss="false")) == {name: {"0": 1, "1": 0}}


def test_a_topic_that_is_deleted_and_created_again_is_data_loss(
    kafka, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told by its id, however many records the new one has; by its offsets in a checkpoint without ids."""
    name, lenient = source.topics[0], source.but(failOnDataLoss="false")
    source.plain("old")
    reader = source.reader()
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    before = reader.latestOffset(start, ALL)
    kafka.delete_topic(name)
    with pytest.raises(DataLoss, match="is gone"):
        reader.latestOffset(before, ALL)
    going_on = lenient.reader()
    aside = going_on.latestOffset(before, ALL)
    assert offsets(aside) == {"out of sight": {name: {"0": 1, "1": 0}}}
    assert going_on.latestOffset(aside, ALL) == aside
    with pytest.raises(TopicMissing, match=name):
        source.reader().latestOffset(aside, ALL)
    kafka.create_topic(name, partitions=2)
    source.plain("new", "newer")
    with pytest.raises(
        DataLoss, match="partition 0, to be read from offset 1, is another one by now: the topic was del"
    ):
        reader.latestOffset(before, ALL)
    with caplog.at_level(logging.WARNING):
        going_on = lenient.reader()
        going_on.latestOffset(before, ALL)
    assert "going on with what is there" in caplog.text
    for since in (before, aside):
        after = going_on.latestOffset(since, ALL)
        assert offsets(after) == {name: {"0": 2, "1": 0}}
        assert _ranges(going_on, since, after) == [(0, 0, 2)]
    # A batch of the old topic that is done again: its offsets are other records by now.
    with pytest.raises(DataLoss, match="deleted and created again"):
        source.reader().partitions(start, before)
    assert _ranges(lenient.reader(), start, before) == []
    without_ids = {name: {"0": 9, "1": 0}}
    with pytest.raises(DataLoss, match=r"to be read from offset 9, ends at 2 \(deleted and created again"):
        source.reader().latestOffset(without_ids, ALL)


def test_the_checkpoint_of_sparks_own_source_is_gone_on_from(source: Source) -> None:
    source.plain("a", "b")
    start, reader = {source.topics[0]: {"0": 1, "1": 0}}, source.reader()
    end = reader.latestOffset(start, ALL)
    assert offsets(end) == {source.topics[0]: {"0": 2, "1": 0}}
    assert end["topic ids"].keys() == {source.topics[0]}
    assert _ranges(reader, start, end) == [(0, 1, 2)]


def test_the_first_batch_of_sparks_own_source_is_not_taken_for_an_empty_one(source: Source) -> None:
    """Where it starts stands elsewhere in the checkpoint; Spark asks for it as if the query were new."""
    source.plain("a", "b")
    reader = source.reader()
    with pytest.raises(SparkEosError, match="first batch was planned by Spark's own Kafka source, and is not finished"):
        _plan(reader, reader.initialOffset(), {source.topics[0]: {"0": 2, "1": 0}})


def test_a_topic_that_was_never_there_is_no_data_loss(source: Source) -> None:
    both = Source(source.bootstrap, [*source.topics, "no-such-topic"])
    with pytest.raises(TopicMissing, match="no-such-topic"):
        both.reader().latestOffset({source.topics[0]: {"0": 0, "1": 0}}, ALL)


def test_a_batch_done_again_whose_records_are_gone_is_data_loss(source: Source) -> None:
    name = source.topics[0]
    source.plain(*"abcd")
    source.delete_before(2)
    plan = ({name: {"0": 1, "1": 0}}, {name: {"0": 4, "1": 0}})
    with pytest.raises(DataLoss, match="to be read from offset 1, starts at 2"):
        source.reader().partitions(*plan)
    beyond = ({name: {"0": 3, "1": 0}}, {name: {"0": 9, "1": 0}})
    with pytest.raises(DataLoss, match="ends at 4"):
        source.reader().partitions(*beyond)
    reader = source.but(failOnDataLoss="false").reader()
    (part,) = _plan(reader, *plan)
    assert [batch.column("value").to_pylist() for batch in reader.read(part)] == [[b"c", b"d"]]
