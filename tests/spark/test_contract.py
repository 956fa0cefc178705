"""What both ways to write, foreachBatch and the format, must do alike: docs/SINK.md tells where they differ."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests_support import Query


def ledger(pipe, query=None):
    return Query(pipe.bootstrap, query or pipe.query_id, pipe.target).ledger


def test_rows_go_from_topic_to_topic_once_with_their_offsets(both):
    for partition in range(3):
        both.feed(range(partition * 100, partition * 100 + 50), partition)
    both.run(both.rows(maxOffsetsPerTrigger="60"))
    assert sorted(map(int, both.values())) == sorted(p * 100 + i for p in range(3) for i in range(50))
    assert len(both.batches()) >= 3
    assert set(ledger(both).offsets([(both.source, p) for p in range(3)]).values()) == {50}
    assert ledger(both).query().next_batch == both.batches()[-1] + 1


def test_a_query_goes_on_where_it_stopped_also_the_other_way(both):
    both.feed("ab")
    both.run()
    both.way = {"format": "foreachBatch", "foreachBatch": "format"}[both.way]
    both.feed("cd")
    both.run()
    assert sorted(both.values()) == list("abcd")


def test_a_batch_sealed_before_the_driver_died_is_not_written_again(both):
    both.feed("ab")
    both.run()
    both.forget_commit(both.batches()[-1])
    both.feed("cd")
    both.run()
    assert sorted(both.values()) == list("abcd")


def test_rows_without_positions_still_move_the_groups_offsets(either):
    either.feed("abc", 1)
    either.run(either.rows().drop("source"))
    wanted = {(either.source, 0): 0, (either.source, 1): 3, (either.source, 2): 0}
    assert ledger(either).offsets(wanted) == wanted


def test_rows_that_the_query_filters_away_count_as_processed(either):
    either.feed("abc", 0)
    either.run(either.rows().where("value = 'a'"))
    assert ledger(either).offsets([(either.source, 0)]) == {(either.source, 0): 3}
    assert either.values() == ["a"]


def counted(pipe):
    counts = pipe.read().groupBy("value").count()
    return counts.select(F.concat(F.col("value"), F.col("count").cast("string")).alias("value"))


def test_an_aggregation_behind_a_shuffle_is_written_once(both):
    both.feed("aabbb", 0)
    both.feed("bc", 1)
    # Spark lets no Python data source take output mode update: see the test below.
    both.mode = "complete" if both.way == "format" else "update"
    both.run(counted(both), topic=both.target)
    assert sorted(both.values()) == ["a2", "b4", "c1"]
    both.forget_commit(both.batches()[-1])
    both.feed("c", 2)
    both.run(counted(both), topic=both.target)
    added = ["c2"] if both.mode == "update" else ["a2", "b4", "c2"]
    assert sorted(both.values()) == sorted(["a2", "b4", "c1", *added])


def test_output_mode_update_is_refused_by_name_in_the_format(pipe):
    pipe.feed("a")
    pipe.way, pipe.mode = "format", "update"
    pipe.refused("kafka-eos does not support Update mode", counted(pipe), topic=pipe.target)


def test_all_columns_arrive_whatever_case_their_names_have(either):
    either.feed("a")
    rows = either.read().select(
        F.lit(None).cast("string").alias("KEY"),
        F.lit(None).cast("binary").alias("Value"),
        F.lit(either.target).alias("Topic"),
        F.lit(1).alias("PARTITION"),
        F.expr("array(struct('h' as key, binary('1') as value))").alias("Headers"),
        F.timestamp_millis(F.lit(1_700_000_000_123)).alias("timestamp"),
    )
    either.run(rows)
    consumer = Consumer({"bootstrap.servers": either.bootstrap, "group.id": "t", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(either.target, 1, 0)])
        found = consumer.poll(20)
        assert (found.key(), found.value(), found.headers()) == (None, None, [("h", b"1")])
        assert found.timestamp()[1] == 1_700_000_000_123
    finally:
        consumer.close()


WRONG = [
    (lambda p: p.rows().withColumn("amount", F.lit(1)), {}, r"does not know column amount"),
    (lambda p: p.rows().select("*", F.lit("x").alias("VALUE")), {}, r"value.*more than once|AMBIGUOUS_REFERENCE"),
    (lambda p: p.rows().withColumn("topic", F.lit(None).cast("string")), {}, r"NullTopic.*lane 0.*has no topic"),
    (lambda p: p.rows().withColumn("partition", F.lit(9)), {}, r"PartitionOutOfRange.*names partition 9"),
    (lambda p: p.rows(), {"topic": "no-such-topic"}, r"TopicMissing.*no-such-topic does not exist"),
    (lambda p: p.rows(), {"no.such.option": "1"}, r"option no\.such\.option is not known"),
    (lambda p: p.rows(), {"kafka.transactional.id": "mine"}, r"transactional\.id is reserved"),
    (lambda p: p.rows(), {"write.id": "w"}, r"write\.id can't be used.*batch write"),
]


@pytest.mark.parametrize(("rows", "options", "says"), WRONG)
def test_what_is_wrong_is_refused_by_name_and_mended_it_goes_on(either, rows, options, says):
    either.feed("a")
    before = either.values()
    with pytest.raises(Exception, match=f"(?s){says}"):
        either.run(rows(either), **options)
    assert either.values() == before
    either.run()
    assert either.values() == ["a"]


def test_no_secret_shows_in_an_error(either):
    secret = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "u"}
    secret |= {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    either.feed("a")
    with pytest.raises(PySparkException) as raised:
        either.run(**secret)
    assert "hunter2" not in str(raised.value)


def test_a_batch_without_rows_and_lanes_without_rows_leave_no_row(either):
    either.run()
    assert not ledger(either).view(stable=True).lanes
    either.feed("a", 0)
    either.feed("b", 1)
    either.run(either.rows().where("value = 'b'"))
    assert list(ledger(either).view(stable=True).lanes) == [1]
    assert either.values() == ["b"]


def test_one_lane_makes_the_whole_batch_visible_at_once(both):
    for partition in range(3):
        both.feed([partition], partition)
    if both.way == "format":
        both.refused(r"commit\.scope is 'batch'.*add coalesce\(1\)", **{"commit.scope": "batch"})
        both.run(both.rows().coalesce(1))
    else:
        both.run(**{"commit.scope": "batch"})
    assert sorted(both.values()) == ["0", "1", "2"]
    assert list(ledger(both).view(stable=True).lanes) == [0]
