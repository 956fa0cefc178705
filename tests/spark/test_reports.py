"""What a streaming query tells of its batches: a callback, log lines, and metrics as Prometheus scrapes them."""

from __future__ import annotations

import json
import logging
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from pyspark import cloudpickle

from spark_eos import BatchReport, KafkaSink
from spark_eos.metrics import BatchMetrics

# Workers can't import the tests: send the class itself.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class FailOnce:
    """Fails the first attempt of lane 0 before a step."""

    step: str

    def __call__(self, step, task) -> None:
        if (step, task.lane, task.attempt) == (self.step, 0, 0):
            raise OSError("the first attempt fails")


def run(pipe, on_batch, before_step=None) -> None:
    given = {"kafka.bootstrap.servers": pipe.bootstrap, "query.id": pipe.query_id}
    pipe.run(sink=KafkaSink(given, before_step=before_step, on_batch=on_batch))


@contextmanager
def scraped(registry):
    """A function that gives every sample: name and labels but the query's to value."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:

        def samples() -> dict[tuple[str, ...], float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
            found = [sample for family in families for sample in family.samples if "query" in sample.labels]
            return {(s.name, s.labels.pop("query"), *s.labels.values()): s.value for s in found}

        yield samples
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_query_is_scraped_with_what_its_reports_say(pipe):
    registry, reports = CollectorRegistry(), []
    metrics = BatchMetrics(registry)

    def on_batch(report: BatchReport) -> None:
        reports.append(report)
        metrics(report)

    pipe.feed("abc", 0)
    pipe.feed("de", 1)
    run(pipe, on_batch)
    assert sorted(pipe.values()) == list("abcde")
    last = reports[-1]
    # Keys and values are one byte each.
    assert (last.query, last.batch, last.rows, last.bytes) == (pipe.query_id, pipe.batches()[-1], 5, 10)
    assert last.outcomes == {"committed": 2}
    assert [lane.lane for lane in last.lanes] == [0, 1]
    planned = json.loads((pipe.checkpoint / "offsets" / str(last.batch)).read_text().splitlines()[1])
    assert last.planned_at == planned["batchTimestampMs"] / 1000
    assert last.age >= last.seconds["lanes"] > max(lane.stats.transaction_seconds or 0 for lane in last.lanes) > 0

    with scraped(registry) as samples:
        found = samples()

    def value(name: str, *labels: str) -> float:
        return found[(f"spark_eos_{name}", pipe.query_id, *labels)]

    assert (value("rows_total"), value("bytes_total"), value("batches_total")) == (5, 10, len(reports))
    assert value("lanes_total", "committed") == value("transaction_seconds_count") == 2
    assert value("transaction_seconds_sum") == pytest.approx(sum(x.stats.transaction_seconds or 0 for x in last.lanes))
    assert value("step_seconds_count", "commit") == 2
    assert value("batch_seconds_sum", "lanes") == pytest.approx(sum(each.seconds["lanes"] for each in reports))
    assert (value("last_batch"), value("last_batch_age_seconds")) == (last.batch, last.age)
    assert value("last_batch_timestamp_seconds") == last.sealed_at
    assert value("task_retries_total") == value("skipped_rows_total") == value("queue_waits_total") == 0


@pytest.mark.parametrize(
    ("step", "rows", "skipped", "outcome"), [("offsets", 2, 0, "committed"), ("report", 0, 2, "skipped")]
)
def test_a_retry_is_told_and_rows_that_its_dead_attempt_committed_are_told_as_skipped(
    pipe, caplog, step, rows, skipped, outcome
):
    reports = []
    pipe.feed("ab")
    with caplog.at_level(logging.DEBUG, "spark_eos.sink"):
        run(pipe, reports.append, FailOnce(step))
    last = reports[-1]
    assert (last.rows, last.skipped, last.retries, last.outcomes[outcome]) == (rows, skipped, 1, 1)
    told = [record for record in caplog.records if record.spark_eos["batch"] == last.batch]
    (batch,) = [record for record in told if record.levelno == logging.INFO]
    assert batch.spark_eos == last.fields()
    assert json.loads(json.dumps(batch.spark_eos)) == batch.spark_eos
    assert f"query {pipe.query_id}, batch {last.batch}: {rows} rows ({2 * rows} bytes)" in batch.getMessage()
    assert "1 task retries; lanes:" in batch.getMessage()
    lanes = {record.spark_eos["lane"]: record for record in told if record.levelno == logging.DEBUG}
    assert list(lanes) == [0]
    assert lanes[0].spark_eos["outcome"] == outcome
    assert lanes[0].spark_eos["seconds"] == last.lanes[0].stats.seconds
    assert f"lane 0: {outcome}, {rows} rows" in lanes[0].getMessage()
    assert sorted(pipe.values()) == ["a", "b"]


def test_an_error_of_the_callback_is_logged_and_costs_no_batch(pipe, caplog):
    def on_batch(_: BatchReport) -> None:
        raise OSError("the dashboard is down")

    pipe.feed("ab")
    run(pipe, on_batch)
    # A batch that was sealed before is skipped, and not told again.
    pipe.forget_commit(pipe.batches()[-1])
    pipe.feed("c")
    run(pipe, on_batch)
    assert sorted(pipe.values()) == ["a", "b", "c"]
    failed = [record for record in caplog.records if record.name == "spark_eos.sink" and record.exc_info]
    assert len(failed) == len(pipe.batches())
    assert f"query {pipe.query_id}, batch {pipe.batches()[-1]} is written; on_batch failed" in failed[-1].getMessage()
    assert "the dashboard is down" in caplog.text
