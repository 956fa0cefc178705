"""The pipeline's jobs run in the tests' own Spark, on topics of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from generate_settlements import Event, send
from job_runner import StreamJob
from job_settings import StreamSettings, load_settings
from merchant_notifications import NotificationJob, NotificationSettings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from reconcile import ReconcileSettings, Reconciliation
from reconcile_leg import Leg
from refunds_to_warehouse import WarehouseJob, WarehouseSettings
from settlements_job import RefundsSettings, SettlementsJob
from settlements_to_refunds import exactly_once
from spark_all import take_all

WINDOWS = {"window": "1 minute", "lateness": "1 minute"}


class JobsPipeline:
    """Settlements to refunds, to the warehouse and to notifications.

    Args:
        spark: session with Delta Lake.
        brokers: host:port.
        topic: makes topics.
        folder: for checkpoints and the table.
        query: prefix of the queries' ids.
    """

    def __init__(self, spark: SparkSession, brokers: str, topic: Callable[..., str], folder: Path, query: str) -> None:
        self.spark, self.brokers, self.folder, self.query = spark, brokers, folder, query
        names = ("source", "refunds", "audit", "dead_letter", "notifications")
        self.topics = {name: topic(2, name=name.replace("_", "-")) for name in names}

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.table))

    def settle(self, events: Iterable[Event]) -> None:
        send({"bootstrap.servers": self.brokers}, self.topics["source"], events)

    def write(self, topic: str, value: dict[str, Any] | bytes, key: bytes | None = None, partition: int = 0) -> None:
        """A record that no job of the pipeline has written."""
        producer = Producer({"bootstrap.servers": self.brokers})
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(self.topics[topic], text, key, partition)
        producer.flush()

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.brokers,
            "query_id": f"{self.query}-{name}",
            "checkpoint": str(self.folder / f"checkpoint-{name}"),
        }

    def _run(self, settings: StreamSettings, job: StreamJob) -> StreamingQuery:
        rows = job.rows(self.spark).writeStream.foreachBatch(job.write)
        return take_all(rows.option("checkpointLocation", settings.checkpoint))

    def refund(self) -> None:
        """Take all settlements."""
        topics = {f"topics.{name}": self.topics[name] for name in ("source", "refunds", "audit", "dead_letter")}
        settings = load_settings(RefundsSettings, options=self._common("refunds") | topics)
        self._run(settings, SettlementsJob(settings, exactly_once))

    def store(self, **options: Any) -> None:
        """Take all refunds into the table."""
        own = {"topic": self.topics["refunds"], "table": str(self.table)}
        settings = load_settings(WarehouseSettings, options=self._common("warehouse") | own | options)
        self._run(settings, WarehouseJob(settings))

    def notify(self) -> None:
        """Take all refunds into notifications."""
        own = {"topics.source": self.topics["refunds"], "topics.notifications": self.topics["notifications"]} | WINDOWS
        settings = load_settings(NotificationSettings, options=self._common("notifications") | own)
        self._run(settings, NotificationJob(settings))

    def reconcile(self) -> dict[str, Leg]:
        """What is there now against what is due, by leg."""
        own = {"query_id": f"{self.query}-refunds", "table": str(self.table), "bootstrap_servers": self.brokers}
        options = own | WINDOWS | {f"topics.{name}": topic for name, topic in self.topics.items()}
        settings = load_settings(ReconcileSettings, options=options)
        return {leg.name: leg for leg in Reconciliation(self.spark, settings).legs()}
