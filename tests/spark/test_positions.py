"""Source positions that are not those of a plain copy: null, of another cluster, of an aggregation; and offset logs."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tests_support import Query

OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


def ledger(pipe):
    return Query(pipe.bootstrap, pipe.query_id, pipe.target).ledger


@pytest.mark.parametrize("null", [pytest.param("struct", marks=pytest.mark.large), "fields"])
def test_rows_without_a_position_among_others_are_written(either, null):
    """As an outer join gives them."""
    either.feed("abc")
    no_position = F.lit(None) if null == "struct" else F.struct(*(F.lit(None).alias(n) for n in NAMES))
    nothing = no_position.cast("struct<topic:string,partition:int,offset:bigint>")
    rows = either.rows().withColumn("source", F.when(F.col("value") == "b", nothing).otherwise(F.col("source")))
    either.run(rows)
    assert sorted(either.values()) == list("abc")
    assert ledger(either).query().aligned is False


NAMES = ("topic", "partition", "offset")


def test_positions_of_another_clusters_topic_are_written_and_not_committed(either):
    either.feed("abc")
    elsewhere = F.struct(F.lit("not-in-this-cluster").alias("topic"), F.lit(0).alias("partition"), F.col("o"))
    rows = either.rows().withColumn("o", F.col("source.offset")).withColumn("source", elsewhere).drop("o")
    rows = rows.withColumn("source", F.col("source").cast("struct<topic:string,partition:int,offset:bigint>"))
    either.run(rows)
    either.feed("d")
    either.run(rows)
    assert sorted(either.values()) == list("abcd")


def totals(pipe):
    """A running total of each key, with the position of its last row."""
    last = F.struct(*(F.max(f"source.{name}").alias(name) for name in NAMES)).alias("source")
    grouped = pipe.rows().groupBy("key").agg(F.count("*").cast("string").alias("value"), last)
    return grouped.withColumn("topic", F.lit(pipe.target))


def test_a_query_with_state_is_not_adopted(either, tmp_path):
    either.mode = "complete"
    either.feed("ab")
    either.run(totals(either))
    assert sorted(either.values()) == ["1", "1"]
    either.checkpoint = tmp_path / "new"
    either.refused(r"OtherCheckpoint.*keeps state", totals(either), **{"on.other.checkpoint": "adopt"})


def test_committed_offsets_stay_where_an_aggregations_positions_go_back(either):
    either.mode = "complete"
    either.feed("aab", 0)
    either.run(totals(either))
    place = (either.source, 0)
    assert ledger(either).offsets([place]) == {place: 3}
    either.feed("c", 1)
    either.run(totals(either))  # rows of the first batch come again, with their old positions
    assert ledger(either).offsets([place]) == {place: 3}
    assert ledger(either).query().went_back


def test_an_offset_log_of_version_2_is_understood(either, spark):
    """Spark 4.2.0 itself does not start a query again in the middle of a batch then (None.get), whatever its sink."""
    spark.conf.set(OFFSET_LOG, "2")
    try:
        either.feed("ab", 0)
        either.run()
        assert (either.checkpoint / "offsets" / "1").read_text().startswith("v2")
        either.feed("c", 0)
        either.feed("d", 1)
        either.run()
    finally:
        spark.conf.unset(OFFSET_LOG)
    assert sorted(either.values()) == list("abcd")
    assert ledger(either).query().content is not None
    places = [(either.source, 0), (either.source, 1)]
    assert list(ledger(either).offsets(places).values()) == [3, 1]


def test_a_self_union_reads_one_topic_twice_and_each_row_is_there_twice(either):
    either.feed("ab", 0)
    rows = either.rows(maxOffsetsPerTrigger="1").unionByName(either.rows())
    either.run(rows)
    either.feed("c", 0)
    either.run(rows)
    assert sorted(either.values()) == list("aabbcc")
    row = ledger(either).query()
    assert not row.aligned
    assert ledger(either).offsets([(either.source, 0)]) == {(either.source, 0): 3}


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
