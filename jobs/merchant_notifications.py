"""Tells each merchant what was refunded in each window of time, once, when the window is over: refunds → notifications.

    python jobs/merchant_notifications.py --bootstrap-servers localhost:9092 --checkpoint checkpoints/notifications
    ./spark-submit.sh jobs/merchant_notifications.py --config conf/production.toml

A stateful query with a shuffle before the sink: what a merchant is told stands in the checkpoint's state until the
watermark has passed the window's end. A refund that comes later than `lateness` is in no notification; reconcile.py
tells. The number of lanes is the number of shuffle partitions, which Spark keeps in the checkpoint.
All options are in conf/merchant_notifications.toml.
"""

from __future__ import annotations

from typing import Any, ClassVar

from job_options import job_app
from job_runner import counted, streaming
from job_settings import Name, StreamSettings, Table
from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_eos import KafkaSink, from_json_value

DURATION = r"^\d+ (second|minute|hour|day)s?$"
REFUND = "merchant string, amount_paise bigint, at timestamp"


class NotificationTopics(Table):
    """Names of the topics."""

    source: Name = Field("refunds-emitted", description="Topic of the refunds.")
    notifications: Name = Field("merchant-notifications", description="Topic for the notifications.")


class NotificationSettings(StreamSettings):
    """`conf/merchant_notifications.toml` explains each key."""

    file = "merchant_notifications"

    window: str = Field("10 minutes", pattern=DURATION, description="Length of a window.")
    lateness: str = Field("1 hour", pattern=DURATION, description="How late a refund may come.")
    topics: NotificationTopics = NotificationTopics()


class NotificationJob:
    """Refunds in, a notification for each merchant and window out.

    Args:
        settings: of the job.
    """

    reads: ClassVar[str] = "refunds"

    def __init__(self, settings: NotificationSettings) -> None:
        self._settings = settings
        self._sink = KafkaSink(settings.sink_options)

    def rows(self, spark: SparkSession) -> DataFrame:
        settings = self._settings
        refunds = spark.readStream.format("kafka-eos").options(**settings.source_options(settings.topics.source)).load()
        timely = refund_fields(refunds).withWatermark("at", settings.lateness)
        rows = notifications(timely, settings.window).withColumn("topic", F.lit(settings.topics.notifications))
        return counted(rows, notifications=F.count(F.lit(1)))

    def write(self, df: DataFrame, batch_id: int) -> Any:
        return self._sink(df, batch_id)


def refund_fields(refunds: DataFrame) -> DataFrame:
    """What a notification is made of, of each refund that can be read; what can't be is for the warehouse to show."""
    parsed = refunds.select(from_json_value("value", REFUND).alias("refund"))
    return parsed.where("refund._corrupt_record is null").select("refund.*")


def notifications(refunds: DataFrame, window: str) -> DataFrame:
    """Key and value of each notification.

    Args:
        refunds: merchant, amount_paise, at.
        window: its length, as "10 minutes".
    """
    of_window = refunds.groupBy(F.window("at", window), "merchant")
    sums = of_window.agg(F.count(F.lit(1)).alias("refunds"), F.sum("amount_paise").alias("amount_paise"))
    ends = (utc(F.col(f"window.{end}")).alias(f"window_{end}") for end in ("start", "end"))
    value = F.to_json(F.struct("merchant", *ends, "refunds", "amount_paise"))
    return sums.select(F.col("merchant").cast("binary").alias("key"), value.cast("binary").alias("value"))


def utc(moment: Column) -> Column:
    """A timestamp as text, to the second; the session's time zone is UTC."""
    return F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss'Z'")


app = job_app(
    NotificationSettings,
    "Tell each merchant what was refunded in each window of time, exactly once.",
    streaming(NotificationJob),
)

if __name__ == "__main__":
    app()
