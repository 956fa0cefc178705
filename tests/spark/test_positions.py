"""Source positions that are not those of a plain copy: null, of another cluster, of an aggregation; and offset logs."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tests_support import Query

OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


def ledger(pipe):
    return Query(pipe.bootstrap, pipe.query_id, pipe.target).ledger


@pytest.mark.parametrize("null", ["struct", "fields"])
def test_rows_without_a_position_among_others_are_written(both, null):
    """As an outer join gives them."""
    both.feed("abc")
    no_position = F.lit(None) if null == "struct" else F.struct(*(F.lit(None).alias(n) for n in NAMES))
    nothing = no_position.cast("struct<topic:string,partition:int,offset:bigint>")
    rows = both.rows().withColumn("source", F.when(F.col("value") == "b", nothing).otherwise(F.col("source")))
    both.run(rows)
    assert sorted(both.values()) == list("abc")
    assert ledger(both).query().aligned is False


NAMES = ("topic", "partition", "offset")


def test_positions_of_another_clusters_topic_are_written_and_not_committed(both):
    both.feed("abc")
    elsewhere = F.struct(F.lit("not-in-this-cluster").alias("topic"), F.lit(0).alias("partition"), F.col("o"))
    rows = both.rows().withColumn("o", F.col("source.offset")).withColumn("source", elsewhere).drop("o")
    rows = rows.withColumn("source", F.col("source").cast("struct<topic:string,partition:int,offset:bigint>"))
    both.run(rows)
    both.feed("d")
    both.run(rows)
    assert sorted(both.values()) == list("abcd")


def totals(pipe):
    """A running total of each key, with the position of its last row."""
    last = F.struct(*(F.max(f"source.{name}").alias(name) for name in NAMES)).alias("source")
    grouped = pipe.rows().groupBy("key").agg(F.count("*").cast("string").alias("value"), last)
    return grouped.withColumn("topic", F.lit(pipe.target))


def test_a_query_with_state_is_not_adopted(both, tmp_path):
    both.mode = "complete"
    both.feed("ab")
    both.run(totals(both))
    assert sorted(both.values()) == ["1", "1"]
    both.checkpoint = tmp_path / "new"
    both.refused(r"OtherCheckpoint.*keeps state", totals(both), **{"on.other.checkpoint": "adopt"})


def test_committed_offsets_stay_where_an_aggregations_positions_go_back(both):
    both.mode = "complete"
    both.feed("aab", 0)
    both.run(totals(both))
    place = (both.source, 0)
    assert ledger(both).offsets([place]) == {place: 3}
    both.feed("c", 1)
    both.run(totals(both))  # rows of the first batch come again, with their old positions
    assert ledger(both).offsets([place]) == {place: 3}
    assert ledger(both).query().went_back


def test_an_offset_log_of_version_2_is_understood(both, spark):
    """Spark 4.2.0 itself does not start a query again in the middle of a batch then (None.get), whatever its sink."""
    spark.conf.set(OFFSET_LOG, "2")
    try:
        both.feed("ab", 0)
        both.run()
        assert (both.checkpoint / "offsets" / "1").read_text().startswith("v2")
        both.feed("c", 0)
        both.feed("d", 1)
        both.run()
    finally:
        spark.conf.unset(OFFSET_LOG)
    assert sorted(both.values()) == list("abcd")
    assert ledger(both).query().content is not None
    places = [(both.source, 0), (both.source, 1)]
    assert list(ledger(both).offsets(places).values()) == [3, 1]


def test_a_self_union_reads_one_topic_twice_and_each_row_is_there_twice(both):
    both.feed("ab", 0)
    rows = both.rows(maxOffsetsPerTrigger="1").unionByName(both.rows())
    both.run(rows)
    both.feed("c", 0)
    both.run(rows)
    assert sorted(both.values()) == list("aabbcc")
    row = ledger(both).query()
    assert not row.aligned
    assert ledger(both).offsets([(both.source, 0)]) == {(both.source, 0): 3}


def test_speculation_is_refused_by_tasks_of_the_format_too(pipe):
    """Spark tells a format no settings on the driver."""
    pipe.way = "format"
    pipe.feed("a")
    context = pipe.spark.sparkContext
    context.setLocalProperty("spark.speculation", "true")  # as Spark tells tasks of what is set
    try:
        pipe.refused("spark.speculation is on.*Set spark.speculation=false")
    finally:
        context.setLocalProperty("spark.speculation", None)
    pipe.run()
    assert pipe.values() == ["a"]
