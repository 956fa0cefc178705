"""Settlements against everything that was made of them: a batch job, and a report that says what differs.

    python jobs/reconcile.py --bootstrap-servers localhost:9092 --table warehouse/refunds
    ./spark-submit.sh jobs/reconcile.py --config conf/production.toml --report json

What is due is worked out from the settlements by the rules of refunds.py, and from the refunds for what comes after
them; what is there is what a read_committed reader sees. Exit code 1 on any difference, 2 if it can't be told.

It may run while the pipeline does: what was made is read before what it was made of, so all of it is accounted for.
What is due and not there is `pending` while the query that makes it has not come so far; that is a difference, too,
unless allow_pending says otherwise. All options are in conf/reconcile.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cached_property, partial
from typing import Literal

from confluent_kafka import Consumer, KafkaException, TopicPartition
from job_options import job_app
from job_session import log_to_stderr, session
from job_settings import Name, SparkSettings
from merchant_notifications import DURATION, notifications, refund_fields, utc
from pydantic import Field
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from reconcile_leg import Leg, compare
from reconcile_report import as_json, print_table
from refunds import output_rows
from refunds_to_warehouse import warehouse_rows
from rich.console import Console
from rich.progress import track
from settlements_job import RefundsTopics
from warehouse_table import OFFSET, PARTITION, TOPIC, Place, ends_of, offset_of

ANSWER_S = 30


class ReconcileTopics(RefundsTopics):
    """The pipeline's topics."""

    notifications: Name = Field("merchant-notifications", description="Topic of the notifications.")


class ReconcileSettings(SparkSettings):
    """`conf/reconcile.toml` explains each key."""

    file = "reconcile"
    delta = True

    query_id: Name = Field("refunds", description="Query that makes the refunds; its group has its offsets.")
    table: Name = Field(description="Folder of the warehouse's Delta table.")
    columns: Name = Field(description="Fields of a refund, as the warehouse has them.")
    window: str = Field("10 minutes", pattern=DURATION, description="Length of a notification's window.")
    lateness: str = Field("1 hour", pattern=DURATION, description="How late a refund may be for its notification.")
    allow_pending: bool = Field(False, description="What is still on its way is no difference.")
    report: Literal["table", "json"] = Field("table", description="table or json.")
    topics: ReconcileTopics = ReconcileTopics()


class Reconciliation:
    """The pipeline's rows as they are now, each topic read once, outputs before inputs.

    Args:
        spark: session with Delta Lake.
        settings: of the job.
    """

    def __init__(self, spark: SparkSession, settings: ReconcileSettings) -> None:
        self._spark, self._settings = spark, settings
        topics = settings.topics
        self._warehouse = self._held(spark.read.format("delta").load(settings.table))
        self._notifications = self._held(self._topic(topics.notifications))
        self._processed = committed(settings, topics.source)
        self._outputs = {
            name: self._held(self._topic(name)) for name in (topics.refunds, topics.audit, topics.dead_letter)
        }
        self._settlements = self._held(self._topic(topics.source))

    @cached_property
    def settlements(self) -> int:
        return self._settlements.count()

    def legs(self) -> Iterator[Leg]:
        """The comparisons, one by one."""
        topics = self._settings.topics
        yield self._of_settlements("refunds", topics.refunds, refund_row)
        yield self._of_settlements("audit rows", topics.audit, audit_row)
        yield self._of_settlements("dead letters", topics.dead_letter, dead_letter)
        yield self._in_warehouse()
        yield self._notified()

    def _of_settlements(self, name: str, topic: str, row: Callable[[DataFrame, Column], DataFrame]) -> Leg:
        due = self._due.where(F.col("topic") == topic)
        waits = _beyond(self._processed, F.col("source.topic"), F.col("source.partition"), F.col("source.offset"))
        return compare(name, row(due, waits), row(self._outputs[topic], F.lit(False)))

    @cached_property
    def _due(self) -> DataFrame:
        topics = self._settings.topics
        rows = output_rows(
            self._settlements, refunds=topics.refunds, audit=topics.audit, dead_letter=topics.dead_letter
        )
        return self._held(rows)

    def _in_warehouse(self) -> Leg:
        behind = {place: last + 1 for place, last in ends_of(self._warehouse).items()}
        due = warehouse_rows(self._outputs[self._settings.topics.refunds], self._settings.columns)
        columns = [name for name in due.columns if name in self._warehouse.columns]
        waits = _beyond(behind, F.col(TOPIC), F.col(PARTITION), F.col(OFFSET))
        return compare(
            "warehouse", warehouse_row(due, columns, waits), warehouse_row(self._warehouse, columns, F.lit(False))
        )

    def _notified(self) -> Leg:
        refunds = refund_fields(self._outputs[self._settings.topics.refunds])
        # A window is over when the watermark, the time of the newest refund less the lateness, has passed its end.
        (watermark,) = refunds.agg(utc(F.max("at") - F.expr(f"interval {self._settings.lateness}"))).first()
        due = notifications(refunds, self._settings.window).where(_text("window_end") <= watermark)
        (newest,) = self._notifications.agg(F.max(_text("window_end"))).first()
        waits = F.lit(True) if newest is None else _text("window_end") > newest
        return compare("notifications", notification(due, waits), notification(self._notifications, F.lit(False)))

    def _topic(self, name: str) -> DataFrame:
        options = self._settings.kafka_options | {"subscribe": name, "includeHeaders": "true"}
        return self._spark.read.format("kafka-eos").options(**options).load()

    @staticmethod
    def _held(rows: DataFrame) -> DataFrame:
        """The rows as they are now."""
        rows.persist().count()
        return rows


def committed(settings: ReconcileSettings, topic: str) -> dict[Place, int]:
    """How far the query has come with a topic: the offsets that its group has committed, by partition.

    Raises:
        KafkaException: nobody answers.
    """
    with closing(Consumer(settings.client | {"group.id": settings.query_id, "enable.auto.commit": False})) as consumer:
        partitions = consumer.list_topics(topic, ANSWER_S).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, p) for p in partitions], ANSWER_S)
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def _beyond(offsets: Mapping[Place, int], topic: Column, partition: Column, offset: Column) -> Column:
    """Whether a position is at or behind the offset of its partition, or that has none."""
    return F.coalesce(offset >= offset_of(offsets, topic, partition), F.lit(True))


def refund_row(rows: DataFrame, waits: Column) -> DataFrame:
    return _row(rows, _text("refund_id"), F.struct("key", "value"), waits, _text("amount_paise").cast("bigint"))


def audit_row(rows: DataFrame, waits: Column) -> DataFrame:
    return _row(rows, _text("refund_id"), F.struct("key", "value"), waits)


def dead_letter(rows: DataFrame, waits: Column) -> DataFrame:
    """A dead letter's headers say where it came from: they are its id."""
    came_from = F.concat_ws("-", *(_header(f"source.{part}") for part in ("topic", "partition", "offset")))
    return _row(rows, came_from, F.struct("key", "value", "headers"), waits)


def warehouse_row(rows: DataFrame, columns: list[str], waits: Column) -> DataFrame:
    number = F.coalesce("refund_id", F.concat_ws("-", TOPIC, PARTITION, OFFSET))
    return _row(rows, number, F.struct(*columns), waits, F.col("amount_paise"))


def notification(rows: DataFrame, waits: Column) -> DataFrame:
    merchant_and_window = F.concat_ws(" ", _text("merchant"), _text("window_start"))
    return _row(rows, merchant_and_window, F.struct("key", "value"), waits, _text("amount_paise").cast("bigint"))


def _row(rows: DataFrame, number: Column, content: Column, waits: Column, paise: Column | None = None) -> DataFrame:
    money = F.lit(None).cast("bigint") if paise is None else paise
    known = F.coalesce(number, F.base64("value")) if "value" in rows.columns else number
    return rows.select(known.alias("id"), content.alias("content"), money.alias("paise"), waits.alias("pending"))


def _text(field: str) -> Column:
    return F.get_json_object(F.col("value").cast("string"), f"$.{field}")


def _header(name: str) -> Column:
    """The last header of this name, as text."""
    return F.element_at(F.filter("headers", lambda header: header["key"] == name), -1)["value"].cast("string")


def run(settings: ReconcileSettings) -> None:
    """Print the report.

    Raises:
        SystemExit: with 1 if anything differs, with 2 if something can't be read.
    """
    log_to_stderr()
    spark = session(settings, "reconcile")
    try:
        reconciliation = Reconciliation(spark, settings)
        errors = Console(stderr=True)
        told = track(reconciliation.legs(), "reconciling", 5, console=errors, disable=not errors.is_terminal)
        legs = list(told)
        fine = all(leg.is_fine(settings.allow_pending) for leg in legs)
        if settings.report == "json":
            print(as_json(reconciliation.settlements, legs, fine))
        else:
            print_table(Console(), reconciliation.settlements, legs, fine)
    except (PySparkException, KafkaException) as error:
        print(f"can't reconcile: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        sys.exit(2)
    finally:
        spark.stop()
    sys.exit(0 if fine else 1)


app = job_app(
    ReconcileSettings,
    "Compare settlements with refunds, audit rows, dead letters, the warehouse and notifications.",
    lambda settings: partial(run, settings),
)

if __name__ == "__main__":
    app()
