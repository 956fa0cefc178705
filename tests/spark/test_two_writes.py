"""Several writes in one batch, several queries in one group, and errors that are swallowed."""

from __future__ import annotations

import threading

import pytest
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests_support import Query

from spark_eos import KafkaSink
from spark_eos.errors import SparkEosError
from spark_eos.testing import wait_for_markers


def large(given):
    return pytest.param(given, marks=pytest.mark.large)


def values(pipe, topic) -> list[str]:
    wait_for_markers(pipe.bootstrap, topic)
    return Query(pipe.bootstrap, "any", topic).values()


def upper(df, topic):
    return df.withColumn("value", F.upper(F.col("value").cast("string"))).withColumn("topic", F.lit(topic))


def test_two_sinks_with_names_of_their_own_write_two_outputs(pipe, topic):
    audit = topic(name="audit")
    one, two = pipe.sink(), pipe.sink(**{"query.id": f"{pipe.query_id}-audit"})

    def write(df, batch):
        one(df, batch)
        two(upper(df, audit), batch)

    for fed in ("ab", "cd"):
        pipe.feed(fed)
        pipe.run(sink=write)
    assert sorted(pipe.values()) == list("abcd")
    assert values(pipe, audit) == list("ABCD")


@pytest.mark.parametrize("sinks", [*map(large, ("one", "same name")), "no name", large("a new one each time")])
def test_a_second_write_that_cannot_be_told_from_the_first_is_refused(pipe, topic, sinks):
    audit = topic(name="audit")
    no_name = {"kafka.bootstrap.servers": pipe.bootstrap}
    made = {
        "one": lambda: [pipe.sink()] * 2,
        "same name": lambda: [pipe.sink(), pipe.sink()],
        "no name": lambda: [KafkaSink(no_name), KafkaSink(no_name)],
    }
    kept = made[sinks]() if sinks in made else None

    def write(df, batch):
        one, two = kept or (pipe.sink(), pipe.sink())
        one(df, batch)
        two(upper(df, audit), batch)

    pipe.feed("ab")
    with pytest.raises(PySparkException, match=r"SecondWrite.*What to do: Give each sink a query.id of its own"):
        pipe.run(sink=write)
    assert sorted(pipe.values()) == ["a", "b"]
    assert values(pipe, audit) == []


def test_a_write_that_is_repeated_with_the_same_rows_is_one(pipe):
    sink = pipe.sink()

    def twice(df, batch):
        sink(df, batch)
        sink(df, batch)

    pipe.feed("ab")
    pipe.run(sink=twice)
    pipe.feed("cd")
    pipe.run(sink=twice)
    assert sorted(pipe.values()) == list("abcd")


def test_two_sinks_in_one_group_are_refused(pipe, topic):
    audit = topic(name="audit")
    shared = {"group.id": f"{pipe.query_id}-group"}
    one, two = pipe.sink(**shared), pipe.sink(**shared, **{"query.id": f"{pipe.query_id}-audit"})

    def write(df, batch):
        one(df, batch)
        two(upper(df, audit), batch)

    pipe.feed("ab")
    with pytest.raises(PySparkException, match=r"OtherQuery.*the ledger of .*group\.id of its own"):
        pipe.run(sink=write)
    assert values(pipe, audit) == []


def test_batch_writes_in_one_group_are_refused(pipe):
    def save(value, **options):
        given = {"kafka.bootstrap.servers": pipe.bootstrap, "topic": pipe.target, **options}
        frame = pipe.spark.createDataFrame([(value,)], "value string").coalesce(1)
        frame.write.format("kafka-eos").mode("append").options(**given).save()

    group = {"group.id": f"{pipe.query_id}-group"}
    save("a", **group, **{"write.id": f"{pipe.query_id}-1"})
    save("a", **group, **{"write.id": f"{pipe.query_id}-1"})
    for other in ({"write.id": f"{pipe.query_id}-2"}, {}):
        with pytest.raises(PySparkException, match=r"OtherQuery.*group\.id of its own, or leave the option out"):
            save("b", **group, **other)
    save("b", **{"write.id": f"{pipe.query_id}-2"})
    save("c")
    assert sorted(pipe.values()) == ["a", "b", "c"]


@pytest.mark.parametrize("groups", [large(("a", None)), large((None, "a")), ("a", "b")])
def test_another_group_in_the_middle_of_the_first_batch_is_refused(pipe, groups):
    """Its ledger is empty, and the batch would look like that of a new query."""
    one, two = ({"group.id": f"{pipe.query_id}-{name}"} if name else {} for name in groups)

    def save(bad=None, **options):
        given = {"kafka.bootstrap.servers": pipe.bootstrap, "topic": pipe.target, "write.id": pipe.query_id, **options}
        frame = pipe.spark.range(0, 4, numPartitions=2).select(F.col("id").cast("string").alias("value"))
        frame = frame.withColumn("partition", F.when(F.spark_partition_id() == bad, 99).cast("int"))
        frame.write.format("kafka-eos").mode("append").options(**given).save()

    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        save(bad=1, **one)
    before = pipe.values()
    with pytest.raises(PySparkException, match=r"OtherQuery.*is in consumer group .*Set group\.id to"):
        save(**two)
    assert pipe.values() == before
    save(**one)
    save(**one)
    assert sorted(pipe.values()) == list("0123")


def swallowing(sink, fails):
    """As code that must not be written: an error of the sink is passed over."""

    def write(df, batch):
        rows = df.withColumn("partition", F.lit(99)) if fails() else df
        try:
            sink(rows, batch)
        except (PySparkException, SparkEosError) as error:
            swallowed.append(str(error))

    swallowed: list[str] = []
    write.swallowed = swallowed
    return write


def test_a_swallowed_error_never_passes_a_batch_over_in_a_run(pipe):
    bad = iter([True, False, False])
    write = swallowing(pipe.sink(), lambda: next(bad, False))
    pipe.feed("a")
    pipe.run(sink=write)  # batch 0 is empty, batch 1 has "a"
    pipe.feed("bc")
    pipe.run(pipe.rows(maxOffsetsPerTrigger="1"), sink=write)
    assert pipe.values() == [] or sorted(pipe.values()) == list("abc")
    assert any("BatchAbandoned" in each for each in write.swallowed) or sorted(pipe.values()) == list("abc")


def test_a_swallowed_error_never_passes_a_batch_over_across_runs_and_the_way_on_is_exact(pipe):
    pipe.feed("x")
    pipe.run()
    pipe.feed("a")
    pipe.run(sink=swallowing(pipe.sink(), lambda: True))
    lost = pipe.batches()[-1]
    pipe.feed("bc")
    pipe.refused(rf"BatchAbandoned.*batch {lost} was never written.*Remove the entries {lost} and above from commits/")
    assert pipe.values() == ["x"]
    for folder, first in (("commits", lost), ("offsets", lost + 1)):
        for file in (pipe.checkpoint / folder).iterdir():
            number = file.name.strip(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                file.unlink()
    pipe.run()
    assert sorted(pipe.values()) == ["a", "b", "c", "x"]


def test_batches_that_a_function_leaves_out_go_on_where_that_is_asked_for(pipe):
    sink = pipe.sink(**{"on.skipped.batch": "pass", "on.missing.ledger": "start"})

    def unless_empty(df, batch):
        if not df.isEmpty():
            sink(df, batch)

    for fed in ("a", "x", "b"):
        pipe.feed([fed])
        pipe.run(pipe.rows().where("value != 'x'"), sink=unless_empty)
    assert sorted(pipe.values()) == ["a", "b"]


@pytest.mark.parametrize("sinks", ["no name", large("the same")])
def test_two_writes_at_once_by_one_name_are_refused_and_nothing_is_lost(pipe, topic, sinks):
    audit = topic(name="audit")
    no_name = {"kafka.bootstrap.servers": pipe.bootstrap}
    one = KafkaSink(no_name)
    two = one if sinks == "the same" else KafkaSink(no_name)

    def write(df, batch):
        failed: list[Exception] = []

        def call(sink, rows):
            try:
                sink(rows, batch)
            except Exception as error:
                failed.append(error)

        calls = [(one, df), (two, upper(df, audit))]
        threads = [InheritableThread(target=call, args=each) for each in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    pipe.feed("ab")
    for _ in range(2):
        with pytest.raises(PySparkException, match=r"SecondWrite"):
            pipe.run(sink=write)
    written = pipe.values() + values(pipe, audit)
    assert sorted(written) in (["a", "b"], ["A", "B"], [])


def test_one_sink_without_a_name_serves_two_queries_at_once(pipe, topic, tmp_path):
    other = topic(name="other")
    sink = KafkaSink({"kafka.bootstrap.servers": pipe.bootstrap})
    queries = []
    for number, target in enumerate((pipe.target, other)):
        rows = pipe.rows(maxOffsetsPerTrigger="2").withColumn("topic", F.lit(target))
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / f"cp-{number}"))
        queries.append(writer)
    pipe.feed(range(10))
    running = [writer.trigger(availableNow=True).start() for writer in queries]
    for query in running:
        assert query.awaitTermination(60)
    assert sorted(map(int, pipe.values())) == list(range(10))
    assert sorted(map(int, values(pipe, other))) == list(range(10))
    assert threading.active_count() < 100
