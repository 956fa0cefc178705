"""Batches as Prometheus metrics: `KafkaSink(options, on_batch=BatchMetrics())`. Needs the extra `metrics`.

The metrics are on the driver only. How they leave it is the application's choice: `prometheus_client` has an HTTP
server (`start_http_server`) and a push gateway's client. Names follow Prometheus' conventions: base units, `_total`
for counters.
"""

from __future__ import annotations

from spark_eos.errors import UsageError
from spark_eos.spark.report import BatchReport

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError:
    raise UsageError(
        "spark_eos.metrics needs prometheus_client, which is not installed here",
        do="pip install spark-eos[metrics], for the driver.",
    ) from None

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
"""Upper bounds of the histograms: from the fastest commit to the longest transaction that brokers allow by default."""


class BatchMetrics:
    """Updates metrics with each batch that is sealed. One for all sinks of the process: the query is a label.

    Args:
        registry: where the metrics are registered; a name can be registered only once.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(f"spark_eos_{name}", doc, ["query", *labels], registry=registry)

        def gauge(name: str, doc: str) -> Gauge:
            return Gauge(f"spark_eos_{name}", doc, ["query"], registry=registry)

        def histogram(name: str, doc: str, *labels: str) -> Histogram:
            return Histogram(f"spark_eos_{name}", doc, ["query", *labels], registry=registry, buckets=SECONDS)

        self._batches = counter("batches_total", "Batches sealed.")
        self._rows = counter("rows_total", "Rows written.")
        self._bytes = counter("bytes_total", "Bytes of the keys and values of the rows written, before compression.")
        self._skipped = counter("skipped_rows_total", "Rows of lanes that an earlier attempt had committed.")
        self._dropped = counter("dropped_rows_total", "Rows processed before the checkpoint was adopted.")
        self._dead = counter("dead_letters_total", "Rows that went to the dead letter topic.")
        self._lanes = counter("lanes_total", "Lanes, by how their last attempt ended.", "outcome")
        self._retries = counter("task_retries_total", "Failed attempts before the ones that ended well.")
        self._waits = counter("queue_waits_total", "Waits for a full queue of the Kafka client.")
        self._batch_seconds = histogram("batch_seconds", "Parts of a batch on the driver: open, lanes, seal.", "part")
        self._step_seconds = histogram("step_seconds", "Steps of a lane.", "step")
        self._transaction_seconds = histogram("transaction_seconds", "A lane's transaction, from begin to commit.")
        self._last = gauge("last_batch", "Id of the last batch sealed.")
        self._last_at = gauge("last_batch_timestamp_seconds", "When the last batch was sealed, Unix time.")
        self._last_age = gauge("last_batch_age_seconds", "From Spark's planning of the last batch to its seal.")

    def __call__(self, report: BatchReport) -> None:
        """Count a batch."""
        query = report.query
        self._batches.labels(query).inc()
        self._rows.labels(query).inc(report.rows)
        self._bytes.labels(query).inc(report.bytes)
        self._skipped.labels(query).inc(report.skipped)
        self._dropped.labels(query).inc(report.dropped)
        self._dead.labels(query).inc(report.dead)
        self._retries.labels(query).inc(report.retries)
        for part, seconds in report.seconds.items():
            self._batch_seconds.labels(query, part).observe(seconds)
        self._count_lanes(report)
        self._last.labels(query).set(report.batch)
        self._last_at.labels(query).set(report.sealed_at)
        if report.age is not None:
            self._last_age.labels(query).set(report.age)

    def _count_lanes(self, report: BatchReport) -> None:
        query = report.query
        for lane in report.lanes:
            stats = lane.stats
            self._lanes.labels(query, lane.outcome.value).inc()
            self._waits.labels(query).inc(stats.queue_waits)
            for step, seconds in stats.seconds.items():
                self._step_seconds.labels(query, step).observe(seconds)
            if stats.transaction_seconds is not None:
                self._transaction_seconds.labels(query).observe(stats.transaction_seconds)
