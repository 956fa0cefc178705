"""foreachBatch(KafkaSink(...)) alone: what the format does alike is in test_contract.py and test_recovery.py."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests_support import Query

from spark_eos import KafkaSink
from spark_eos.errors import OptionError, SparkEosError


def test_the_query_id_defaults_to_the_checkpoints(pipe):
    pipe.feed("ab")
    query = pipe.run(sink=KafkaSink({"kafka.bootstrap.servers": pipe.bootstrap}))
    assert Query(pipe.bootstrap, str(query.id), pipe.target).ledger.query().next_batch == 2


def test_the_option_topic_wins_over_the_column(pipe, topic):
    other = topic(name="other")
    pipe.feed("ab")
    pipe.run(pipe.rows().withColumn("topic", F.lit("nowhere")), pipe.sink(topic=other))
    assert pipe.values() == []
    assert sorted(Query(pipe.bootstrap, "any", other).values()) == ["a", "b"]


def test_the_column_headers_of_the_source_fits_the_sink(pipe):
    pipe.feed("a")
    rows = pipe.read(includeHeaders="true").select(
        "value", "headers", "timestamp", F.lit(pipe.target).alias("topic"), F.lit(1).alias("partition")
    )
    pipe.run(rows)
    assert pipe.values() == ["a"]


WRONG_ROWS = [
    (lambda p: p.rows().drop("value"), r"column value is missing"),
    (lambda p: p.rows().drop("topic"), r"column topic is missing .*option topic"),
    (lambda p: p.rows().withColumn("value", F.lit(1)), r"column value has type int and must be string or binary"),
    (lambda p: p.rows().withColumn("partition", F.lit("1")), r"column partition has type string and must be int"),
    (lambda p: p.rows().withColumn("headers", F.lit("h")), r"column headers has type string and must be array"),
    (lambda p: p.rows().withColumn("source", F.lit("s")), r"column source has type string and must be struct"),
    (lambda p: p.rows().withColumn("amount", F.lit(1)), r"does not know column amount"),
    (lambda p: p.rows().withColumn("topic", F.lit(None).cast("string")), r"NullTopic.*lane 0.*offset 0.* has no topic"),
    (lambda p: p.rows().withColumn("topic", F.lit("no-such-topic")), r"TopicMissing.*no-such-topic does not exist"),
    (lambda p: p.rows().withColumn("partition", F.lit(9)), r"PartitionOutOfRange.*names partition 9"),
    (
        lambda p: p.rows().withColumn("value", F.repeat(F.lit("x"), 1_100_000)),
        r"RecordTooLarge.*key 'a' has 1100001 bytes.*message\.max\.bytes",
    ),
]


@pytest.mark.parametrize(("rows", "says"), WRONG_ROWS)
def test_rows_that_cannot_be_written_are_refused_by_name_and_mended_rows_go_on(pipe, rows, says):
    pipe.feed("a")
    pipe.refused(says, rows(pipe))
    pipe.run()
    assert pipe.values() == ["a"]


def test_options_are_checked_at_once(pipe):
    with pytest.raises(OptionError, match=r"transactional\.id is reserved"):
        pipe.sink(**{"kafka.transactional.id": "mine"})


WRONG_SINKS = [
    ({"topic": "no-such-topic"}, r"TopicMissing.*no-such-topic does not exist"),
    ({"kafka.transaction.timeout.ms": "130000"}, r"TransactionTimeoutTooLong.*transaction\.max\.timeout\.ms"),
    ({"kafka.no.such.setting": "1"}, r"OptionError.*no\.such\.setting"),
    ({"kafka.bootstrap.servers": "127.0.0.1:9"}, r"BrokerUnreachable.*Connect to ipv4#127\.0\.0\.1:9"),
]


@pytest.mark.parametrize(("options", "says"), WRONG_SINKS)
def test_a_cluster_that_does_not_fit_is_told_before_anything_is_written(pipe, options, says):
    pipe.feed("a")
    pipe.refused(says, sink=pipe.sink(**options))
    pipe.run()
    assert pipe.values() == ["a"]


def test_a_shuffle_inside_foreachbatch_with_aqe_is_refused(pipe):
    pipe.feed("a")
    sink = pipe.sink()
    pipe.refused("UnsupportedError.*adaptive", sink=lambda df, batch: sink(df.repartition(2), batch))
    pipe.run()
    assert pipe.values() == ["a"]


@pytest.mark.large
def test_speculation_is_refused(pipe):
    pipe.feed("a")
    job = pipe.process(conf="--conf spark.speculation=true")
    says, _ = job.communicate(timeout=120)
    assert job.returncode == 1
    assert "UnsupportedError" in says
    assert "Set spark.speculation=false" in says
    assert pipe.values() == []
    pipe.run()
    assert pipe.values() == ["a"]


def test_outside_a_streaming_query_the_sink_refuses(pipe, spark):
    rows = spark.createDataFrame([("v", "t")], "value string, topic string")
    with pytest.raises(SparkEosError, match="outside a streaming query"):
        pipe.sink()(rows, 0)


def test_a_lost_ledger_is_refused_and_started_anew_when_asked(pipe, query_id):
    pipe.feed("ab")
    pipe.run()
    pipe.feed("c")
    renamed = {"query.id": query_id + "-renamed"}
    pipe.refused(r"LedgerLost.*on\.missing\.ledger=start", sink=pipe.sink(**renamed))
    pipe.run(sink=pipe.sink(**renamed, **{"on.missing.ledger": "start"}))
    assert sorted(pipe.values()) == list("abc")


def test_no_secret_shows_in_the_sink_or_in_an_error(pipe):
    secret = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "u"}
    secret |= {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    sink = pipe.sink(**secret)
    assert "hunter2" not in repr(sink)
    pipe.feed("a")
    with pytest.raises(PySparkException) as raised:
        pipe.run(sink=sink)
    assert "hunter2" not in str(raised.value)
