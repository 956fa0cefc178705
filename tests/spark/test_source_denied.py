"""What a Spark user sees where the broker does not allow it: our sentence, and never the password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from secured_kafka import SecuredKafka, no_secret_in, secured_kafka


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with secured_kafka() as broker:
        yield broker


def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("kafka-eos").options(**options, startingOffsets="earliest").load()


def failure_of(frame: DataFrame, checkpoint: Path) -> StreamingQueryException:
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    no_secret_in(raised.value, str(query.lastProgress))
    return raised.value


def test_a_stream_without_rights_fails_with_our_sentence(spark, secured: SecuredKafka, tmp_path: Path) -> None:
    log = secured.topic()
    frame = stream(spark, secured.login("stranger") | {"subscribe": log.topic})
    assert f"AccessDenied: looking up topic {log.topic}" in str(failure_of(frame, tmp_path / "driver"))
    secured.allow("reader", ResourceType.TOPIC, log.topic, AclOperation.DESCRIBE)
    frame = stream(spark, secured.login("reader") | {"subscribe": log.topic})
    assert f"AccessDenied: reading topic {log.topic}, partition 0" in str(failure_of(frame, tmp_path / "task"))


def test_no_plan_shows_the_password(spark, secured: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> None:
    options = secured.login("admin") | {"subscribe": secured.topic().topic}
    stream(spark, options).explain(True)
    spark.read.format("kafka-eos").options(**options).load().explain(True)
    shown = capsys.readouterr().out
    assert "kafka.sasl.password=" in shown
    no_secret_in(None, shown)
