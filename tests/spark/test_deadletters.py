"""Dead letters of a streaming query."""

from __future__ import annotations

import logging

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests_support import committed_messages


def test_a_query_goes_on_past_rows_that_cannot_be_written_and_says_how_many(pipe, topic, caplog):
    dead = topic(name="dead")
    for partition in range(2):
        pipe.feed(range(partition * 10, partition * 10 + 10), partition)
    bad = F.col("value").cast("string").isin("3", "14")
    rows = pipe.rows().withColumn("topic", F.when(~bad, F.col("topic")))
    with pytest.raises(PySparkException, match="has no topic"):
        pipe.run(rows)
    assert pipe.values() == []
    with caplog.at_level(logging.INFO, "spark_eos.sink"):
        pipe.run(rows, pipe.sink(**{"deadletter.topic": dead}))
    assert sorted(map(int, pipe.values())) == [n for n in range(20) if n not in (3, 14)]
    letters = {message.value(): dict(message.headers()) for message in committed_messages(pipe.bootstrap, dead)}
    assert letters.keys() == {b"3", b"14"}
    assert letters[b"14"]["spark-eos.source"] == f"{pipe.source}-1@4".encode()
    assert letters[b"14"]["spark-eos.query"] == pipe.query_id.encode()
    assert sum(", 2 dead letters;" in text for text in caplog.messages) == 1


def test_a_dead_letter_topic_that_does_not_exist_is_missed_before_anything_is_written(pipe):
    pipe.feed("a")
    with pytest.raises(PySparkException, match=r"TopicMissing.*topic never-made does not exist.*deadletter\.topic"):
        pipe.run(sink=pipe.sink(**{"deadletter.topic": "never-made"}))
    assert pipe.values() == []
