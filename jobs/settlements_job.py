"""What the two settlements → refunds jobs share: settings, and the rows to write. How these are written differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from job_runner import BatchWriter, counted
from job_settings import Name, StreamSettings, Table
from pydantic import Field, model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from refunds import output_rows


class RefundsTopics(Table):
    """Names of the topics: one in, three out."""

    source: Name = Field("settlements", description="Topic of the settlements.")
    refunds: Name = Field("refunds-emitted", description="Topic for the refunds.")
    audit: Name = Field("refund-audit", description="Topic for the audit rows.")
    dead_letter: Name = Field("settlements-dead-letter", description="Topic for malformed events.")

    @model_validator(mode="after")
    def _all_different(self) -> RefundsTopics:
        names = [self.source, self.refunds, self.audit, self.dead_letter]
        if len(set(names)) < len(names):
            raise ValueError("the four topics must have different names")
        return self


class RefundsSettings(StreamSettings):
    """`conf/settlements_to_refunds.toml` explains each key."""

    file = "settlements_to_refunds"

    topics: RefundsTopics = RefundsTopics()


class SettlementsJob:
    """Settlements in; refunds, audit rows and dead letters out.

    Args:
        settings: of the job.
        writer: makes what writes a micro-batch.
    """

    reads: ClassVar[str] = "settlements"

    def __init__(self, settings: RefundsSettings, writer: Callable[[RefundsSettings], BatchWriter]) -> None:
        self._settings = settings
        self._write = writer(settings)

    def rows(self, spark: SparkSession) -> DataFrame:
        topics = self._settings.topics
        options = self._settings.source_options(topics.source) | {"includeHeaders": "true"}
        settlements = spark.readStream.format("kafka-eos").options(**options).load()
        rows = output_rows(settlements, refunds=topics.refunds, audit=topics.audit, dead_letter=topics.dead_letter)
        kinds = {"refunds": topics.refunds, "audits": topics.audit, "dead letters": topics.dead_letter}
        return counted(rows, **{kind: F.count_if(F.col("topic") == name) for kind, name in kinds.items()})

    def write(self, df: DataFrame, batch_id: int) -> Any:
        return self._write(df, batch_id)
