"""`df.write.format("kafka-eos")`: one transaction for each partition, and reruns that write only what is missing."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests_support import Query

from spark_eos.errors import OptionError


def rows(pipe, wrong_partition=None):
    """Six rows in three partitions; those of one name a partition that the topic does not have."""
    found = pipe.spark.range(0, 6, numPartitions=3)
    bad = F.when(F.spark_partition_id() == wrong_partition, 99) if wrong_partition is not None else F.lit(None)
    value = F.col("id").cast("string").alias("value")
    return found.select(value, F.lit(pipe.target).alias("topic"), bad.cast("int").alias("partition"))


def save(pipe, frame, mode="append", **options):
    writer = frame.write.format("kafka-eos").options(**{"kafka.bootstrap.servers": pipe.bootstrap}, **options)
    (writer.mode(mode) if mode else writer).save()


def test_each_row_is_written_once_and_two_writes_are_two_writes(pipe):
    save(pipe, rows(pipe))
    assert sorted(pipe.values()) == list("012345")
    save(pipe, rows(pipe))
    assert sorted(pipe.values()) == sorted("012345" * 2)


def test_a_rerun_with_the_same_write_id_writes_nothing(pipe, query_id):
    for _ in range(2):
        save(pipe, rows(pipe), **{"write.id": query_id})
    # What is whole is not compared either: the name says that it is the same write.
    save(pipe, rows(pipe).limit(1), **{"write.id": query_id})
    assert sorted(pipe.values()) == list("012345")
    assert Query(pipe.bootstrap, query_id, pipe.target).ledger.query().next_batch == 1


def test_a_write_that_failed_in_part_is_completed_by_its_rerun(pipe, query_id):
    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        save(pipe, rows(pipe, wrong_partition=2), **{"write.id": query_id})
    assert set(pipe.values()) <= set("0123")
    save(pipe, rows(pipe), **{"write.id": query_id})
    assert sorted(pipe.values()) == list("012345")


def test_a_committed_partition_that_comes_back_with_other_rows_is_refused(pipe, query_id):
    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        save(pipe, rows(pipe, wrong_partition=2), **{"write.id": query_id})
    written = min(pipe.values())  # one of the other two tasks has ended when the third one begins
    with pytest.raises(PySparkException, match=r"(?s)ReplayDiffers.*had 2 rows.*has 1 rows"):
        save(pipe, rows(pipe).where(F.col("value") != written), **{"write.id": query_id})
    assert set(Counter(pipe.values()).values()) == {1}


REFUSED = [
    ({"query.id": "q"}, "append", "query.id can't be used.*write.id"),
    ({"on.other.checkpoint": "adopt"}, "append", "on.other.checkpoint can't be used"),
    ({"commit.scope": "batch"}, "append", r"commit\.scope is 'batch'.*coalesce\(1\)"),
    ({"topic": "no-such-topic"}, "append", "TopicMissing.*no-such-topic does not exist"),
    ({}, "overwrite", "can't be overwritten"),
    ({}, None, "kafka-eos.*cannot be written in the .ErrorIfExists. mode"),
]


@pytest.mark.parametrize(("options", "mode", "says"), REFUSED)
def test_what_does_not_fit_a_batch_write_is_refused_by_name(pipe, options, mode, says):
    with pytest.raises((PySparkException, OptionError), match=f"(?s){says}"):
        save(pipe, rows(pipe), mode, **options)
    assert pipe.values() == []


def test_more_lanes_than_the_ledger_has_room_for_at_first(pipe, query_id):
    own = {"ledger.topic": f"ledger-{query_id}"}
    wide = pipe.spark.range(0, 140, numPartitions=70).select(F.col("id").cast("string").alias("value"))
    save(pipe, wide, topic=pipe.target, **own)
    assert sorted(map(int, pipe.values())) == list(range(140))
