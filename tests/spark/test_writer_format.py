"""The writer format alone: what it asks of the checkpoint, and how its batches become runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from tests_support import Query

from spark_eos.errors import UnsupportedError
from spark_eos.spark.checkpoint import Checkpoint


@pytest.fixture
def query(pipe):
    pipe.way = "format"
    pipe.options["ledger.topic"] = f"ledger-{pipe.query_id}"
    return pipe


@pytest.fixture
def folder(tmp_path) -> Path:
    """A checkpoint as Spark writes one, at batch 10."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"the-id"}')
    for batch in (8, 9, 10):
        entry = ["v1", json.dumps({"batchTimestampMs": 1500, "conf": {}}), '{"in": {"0": 3}}', "-"]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(entry))
        (tmp_path / "offsets" / f".{batch}.crc").touch()
    return tmp_path


def ledger(query):
    """What the query's ledger says, in a topic of its own: no other test has widened it."""
    return Query(query.bootstrap, query.query_id, query.target, ledger_topic=query.options["ledger.topic"]).ledger.view(
        stable=True
    )


def test_a_session_wide_checkpoint_location_is_not_enough(query):
    query.feed("a")
    name = "spark.sql.streaming.checkpointLocation"
    query.spark.conf.set(name, str(query.checkpoint))
    try:
        writer = query.rows().writeStream.format("kafka-eos").options(**query.given())
        running = writer.trigger(availableNow=True).start()
        with pytest.raises(
            PySparkException, match=r"checkpointLocation is not set on the query.*Set option checkpoint"
        ):
            running.awaitTermination(60)
    finally:
        query.spark.conf.unset(name)
    assert query.values() == []


@pytest.mark.parametrize("where", ["{}", "file:{}", "file://{}", "{}/"])
def test_a_checkpoint_is_read_from_a_path_or_a_uri(folder, where):
    found = Checkpoint(where.format(folder))
    assert (found.query_id(), found.newest()) == ("the-id", 10)
    assert found.logged(9).offsets == {("in", 0): 3}
    assert found.logged(9).planned_at == 1.5


def test_a_checkpoint_is_read_from_a_relative_path(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert Checkpoint(folder.name).newest() == 10


def test_an_offset_log_of_version_2_is_read_and_one_of_an_unknown_version_is_refused(folder):
    log = folder / "offsets" / "10"
    _, metadata, *ends = log.read_text().splitlines()
    log.write_text("\n".join(["v2", metadata, *(f"{name}:{end}" for name, end in enumerate(ends))]))
    assert Checkpoint(str(folder)).logged(10).offsets == {("in", 0): 3}
    log.write_text(log.read_text().replace("v2", "v3"))
    with pytest.raises(UnsupportedError, match=r"has version v3, and this spark-eos reads v1 and v2"):
        Checkpoint(str(folder)).logged(10)


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path):
    missing = str(tmp_path / "missing")
    for ask in (Checkpoint.query_id, Checkpoint.newest, lambda checkpoint: checkpoint.logged(0)):
        with pytest.raises(UnsupportedError, match=rf"{missing} can't be read from here.*KafkaSink"):
            ask(Checkpoint(missing))
    (tmp_path / "offsets").mkdir()
    with pytest.raises(UnsupportedError, match="no batch in offsets/"):
        Checkpoint(str(tmp_path)).newest()
    with pytest.raises(UnsupportedError, match=r"nosuch://host/path can't be read from here"):
        Checkpoint("nosuch://host/path")


def test_async_progress_tracking_is_refused_by_spark(query):
    query.feed("a")
    with pytest.raises(PySparkException, match="Sink kafka-eos does not support async progress tracking"):
        query.run(asyncProgressTrackingEnabled="true")
    assert query.values() == []


@pytest.mark.large
def test_more_lanes_than_the_ledger_had_room_for(query):
    rows = query.rows(maxOffsetsPerTrigger="200").repartition(70)
    query.feed(range(400))
    query.run(rows)
    assert sorted(map(int, query.values())) == list(range(400))
    assert len(query.batches()) >= 3
    found = ledger(query)
    assert sorted(found.lanes) == list(range(70))
    assert {row.next_batch for row in found.lanes.values()} == {query.batches()[-1] + 1}


def test_each_batch_is_a_run_of_its_own_that_takes_over_once_and_ends_at_rest(query):
    """The process that commits does not take over again: the run that sealed is the run whose lanes wrote."""
    runs = []
    writer = query.rows().writeStream.format("kafka-eos").options(**query.given())
    running = writer.option("checkpointLocation", str(query.checkpoint)).start()
    try:
        for value in "abc":
            query.feed(value)
            running.processAllAvailable()
            found = ledger(query)
            assert found.query.at_rest
            assert found.lanes[0].next_batch == found.query.next_batch
            assert found.lanes[0].run == found.query.run
            runs.append(found.query.run)
    finally:
        running.stop()
    assert len(set(runs)) == 3
    assert query.values() == list("abc")
