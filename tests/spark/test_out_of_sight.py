"""failOnDataLoss=false while partitions can't be seen: each record once all the same, as long as the topic is the same.

The planning is asked as Spark's driver asks it, one reader after the other with the checkpoint's offsets between them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import functions as F
from spark_pipe import Pipe
from spark_source import Source

from spark_eos import source_position
from spark_eos.errors import DataLoss, TopicMissing
from spark_eos.source_options import SourceOptions
from spark_eos.spark.stream_reader import KafkaEosStreamReader
from spark_eos.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, Spark41StreamReader

ALL = ReadAllAvailable()


@dataclass
class Query:
    """A checkpoint, and what was read from batch to batch."""

    at: dict[str, Any]
    read: list[str] = field(default_factory=list)

    def batch(self, reader: KafkaEosStreamReader, limit: ReadLimit = ALL) -> list[str]:
        """One batch: planned, and planned again as after a restart, and read."""
        start = json.loads(json.dumps(self.at))
        self.at = json.loads(json.dumps(reader.latestOffset(start, limit)))
        found = [
            value.decode()
            for part in reader.partitions(start, self.at)
            for batch in reader.read(part)
            for value in batch.column("value").to_pylist()
        ]
        self.read += found
        return found


@dataclass
class Pair:
    """Two topics that one pattern matches; `sees(...)` tells which of them can be seen."""

    shown: Source
    hidden: Source

    def sees(self, *topics: Source, **options: str) -> Source:
        names = "|".join(topic.topics[0] for topic in topics)
        given = {"subscribePattern": names, "failOnDataLoss": "false", **options}
        return _Matching(self.shown.bootstrap, [names], given)

    @property
    def both(self) -> Source:
        return self.sees(self.shown, self.hidden)

    @property
    def one(self) -> Source:
        return self.sees(self.shown)

    def query(self) -> Query:
        """A query that has read "a" and "b" of the topic that is hidden afterwards, and "x" of the other."""
        self.shown.plain("x")
        self.hidden.plain("a", "b")
        self.hidden.plain("c", partition=1)
        reader = self.both.reader()
        query = Query(reader.initialOffset())
        query.at = reader.latestOffset(query.at, ALL)  # batch 0
        assert sorted(query.batch(reader)) == ["a", "b", "c", "x"]
        return query


class _Matching(Source):
    """A stream on the topics that a pattern matches."""

    @property
    def given(self) -> dict[str, str]:
        return {name: value for name, value in super().given.items() if name != "subscribe"}


@pytest.fixture
def pair(kafka, topic: Callable[..., str]) -> Pair:
    tag = uuid.uuid4().hex[:8]
    return Pair(*(Source(kafka.bootstrap_servers, [topic(2, name=f"{name}-{tag}")]) for name in ("shown", "hidden")))


def test_a_topic_that_was_out_of_sight_goes_on_where_it_stood(pair: Pair) -> None:
    query = pair.query()
    for _ in range(2):
        pair.shown.plain("y")
        assert query.batch(pair.one.reader()) == ["y"]
    pair.hidden.plain("d")
    assert query.batch(pair.both.reader()) == ["d"]
    assert query.batch(pair.both.reader()) == []


def test_an_end_below_the_start_does_not_move_the_checkpoint_back(pair: Pair) -> None:
    """As a leader tells it that lags behind, or one whose log was truncated: the start is beyond what is there."""
    query = pair.query()
    name = pair.hidden.topics[0]
    query.at[name]["0"] = 4
    for limit in (ALL, ReadMaxRows(5)):
        assert query.batch(pair.both.reader(), limit) == []
        assert query.at[name]["0"] == 4
    pair.hidden.plain("c", "d", "e")
    assert query.batch(pair.both.reader()) == ["e"]


def test_available_now_with_a_topic_that_was_out_of_sight_when_its_end_was_fixed(pair: Pair) -> None:
    query = pair.query()
    reader = pair.one.reader()
    reader.prepareForTriggerAvailableNow()
    again = pair.both.reader()
    again._target = reader._target
    pair.hidden.plain("d")
    pair.shown.plain("later")
    assert query.batch(again) == []
    assert sorted(query.batch(pair.both.reader())) == ["d", "later"]


def test_what_was_accepted_once_is_no_error_later_and_goes_on_too(pair: Pair) -> None:
    query = pair.query()
    strict = pair.sees(pair.shown, failOnDataLoss="true")
    with pytest.raises(DataLoss, match="to be read from offset 2, is gone"):
        query.batch(strict.reader())
    assert query.batch(pair.one.reader()) == []
    pair.shown.plain("y")
    assert query.batch(strict.reader()) == ["y"]
    pair.hidden.plain("d", "e")
    everything = pair.sees(pair.shown, pair.hidden, failOnDataLoss="true")
    assert query.batch(everything.reader()) == ["d", "e"]
    assert "out of sight" not in query.at


def test_records_that_are_deleted_while_they_are_out_of_sight_are_data_loss(pair: Pair) -> None:
    query = pair.query()
    query.batch(pair.one.reader())
    pair.hidden.plain("d", "e")
    pair.hidden.delete_before(3)
    everything = pair.sees(pair.shown, pair.hidden, failOnDataLoss="true")
    with pytest.raises(DataLoss, match="to be read from offset 2, starts at 3"):
        query.batch(everything.reader())
    assert query.batch(pair.both.reader()) == ["e"]


def test_a_topic_that_is_created_again_while_it_is_out_of_sight_starts_anew(kafka, pair: Pair) -> None:
    query = pair.query()
    query.batch(pair.one.reader())
    kafka.delete_topic(pair.hidden.topics[0])
    assert query.batch(pair.both.reader()) == []
    kafka.create_topic(pair.hidden.topics[0], partitions=2)
    pair.hidden.plain(*"defg")
    assert query.batch(pair.both.reader()) == [*"defg"]
    pair.hidden.plain("h")
    assert query.batch(pair.both.reader()) == ["h"]


def test_a_named_topic_that_is_gone_does_not_end_the_query(kafka, pair: Pair) -> None:
    """With failOnDataLoss=true it is missed."""
    query = pair.query()
    kafka.delete_topic(pair.hidden.topics[0])
    named = Source(pair.shown.bootstrap, [pair.shown.topics[0], pair.hidden.topics[0]], {"failOnDataLoss": "false"})
    reader = named.reader()
    assert query.batch(reader) == []
    pair.shown.plain("y")
    assert query.batch(reader) == ["y"]
    with pytest.raises(TopicMissing, match=pair.hidden.topics[0]):
        query.batch(named.but(failOnDataLoss="true").reader())


def test_a_partition_that_was_not_assigned_for_a_while(pair: Pair) -> None:
    name = pair.hidden.topics[0]
    given = {key: value for key, value in pair.hidden.given.items() if key != "subscribe"} | {"failOnDataLoss": "false"}

    def reader(*partitions: int) -> KafkaEosStreamReader:
        return KafkaEosStreamReader(SourceOptions.of(given | {"assign": json.dumps({name: partitions})}, "stream"))

    pair.hidden.plain("a")
    pair.hidden.plain("c", partition=1)
    query = Query({name: {"0": 0, "1": 0}})
    assert query.batch(reader(0, 1)) == ["a", "c"]
    assert query.batch(reader(0)) == []
    assert query.at["out of sight"] == {name: {"1": 1}}
    pair.hidden.plain("d", partition=1)
    assert query.batch(reader(0, 1)) == ["d"]


def test_a_checkpoint_without_ids_keeps_its_marks_too(pair: Pair) -> None:
    """As Spark's own source makes it."""
    query = pair.query()
    del query.at["topic ids"]
    assert query.batch(pair.one.reader()) == []
    pair.hidden.plain("d")
    assert query.batch(pair.both.reader()) == ["d"]


def test_a_few_offsets_are_waited_for_beside_a_topic_that_is_out_of_sight(pair: Pair) -> None:
    query, limit = pair.query(), ReadMinRows(3)
    reader = pair.sees(pair.shown, minOffsetsPerTrigger="3", maxTriggerDelay="1h").reader()
    query.batch(reader, limit)  # a run's first batch does not wait
    pair.shown.plain("y")
    assert query.batch(reader, limit) == []
    assert reader.reportLatestOffset()["lag"]["to last stable offset"] == 1
    pair.shown.plain("z", "w")
    assert query.batch(reader, limit) == ["y", "z", "w"]
    assert reader.reportLatestOffset()["lag"]["to last stable offset"] == 0
    pair.hidden.plain("d")
    assert query.batch(pair.both.reader()) == ["d"]


def test_spark_41_goes_on_where_a_topic_stood(pair: Pair) -> None:
    query = pair.query()
    asked = Spark41StreamReader(pair.one.reader())
    asked.partitions(query.at, query.at)  # after a restart
    hidden = [asked.latestOffset() for _ in range(2)][-1]
    pair.hidden.plain("d")
    again = Spark41StreamReader(pair.both.reader())
    again.partitions(hidden, hidden)
    assert again.latestOffset()[pair.hidden.topics[0]] == {"0": 3, "1": 1}


def test_each_loss_is_told_once(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    query = pair.query()
    query.at[pair.hidden.topics[0]]["0"] = 4
    reader = pair.both.reader()
    for _ in range(3):
        query.batch(reader)
    assert caplog.text.count("to be read from offset 4, ends at 2") == 1
    pair.hidden.plain("c")
    query.batch(reader)
    assert caplog.text.count("to be read from offset 4, ends at 3") == 1


def test_the_sink_goes_on_without_a_topic_and_with_the_one_that_takes_its_name(pipe: Pipe, kafka, topic) -> None:
    """What is out of sight is in the offset log, and is no offset that the sink would commit."""
    other = Source(kafka.bootstrap_servers, [topic(name="other")])
    given = {"subscribePattern": f"{pipe.source}|{other.topics[0]}", "failOnDataLoss": "false"}
    given |= {"kafka.bootstrap.servers": pipe.bootstrap, "startingOffsets": "earliest"}
    stream = pipe.spark.readStream.format("kafka-eos").options(**given).load()
    rows = stream.select("key", "value", F.lit(pipe.target).alias("topic"), source_position())
    pipe.feed("ab")
    other.plain("x")
    pipe.run(rows)
    kafka.delete_topic(other.topics[0])
    for value in "cd":
        pipe.feed(value)
        pipe.run(rows)
    assert pipe.log_offsets(max(pipe.batches()))["out of sight"] == {other.topics[0]: {"0": 1}}
    kafka.create_topic(other.topics[0])
    other.plain("y", "z")
    pipe.run(rows)
    assert sorted(pipe.values()) == [*"abcdxyz"]
