"""A Delta table that one streaming query fills, each batch once.

Delta skips an append whose (txnAppId, txnVersion) it has seen: a batch that is run again is not written twice. Alone
that is a trap: a new checkpoint counts its batches from 0 again, and Delta would skip them though they hold other rows.
So here the application id is the query's *and* its checkpoint's, and the table names the checkpoint that may write:

 1. a batch asks the table for its owner; another checkpoint than its own is refused, or taken over from where that was
    asked for: the table then names this one, and the run before it is refused at its next batch;
 2. the first batch of a run looks how far the table has come, by the rows' own positions in the topic, and rows up to
    there are dropped: of a checkpoint that starts earlier than the table ends, nothing is written twice.

An append of the run before that was at work meanwhile fails: naming the owner changes the table's metadata.
A table may have rows of several topics, one after the other: how far it has come is told for each by itself. If a topic
was deleted and made anew under its name, a lost checkpoint can't be adopted: take a new table.

https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch
"""

from __future__ import annotations

from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark tells a batch the id of its checkpoint."""

TOPIC, PARTITION, OFFSET, TIMESTAMP = "kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp"
"""Columns of every row: where it stands in Kafka."""

Place = tuple[str, int]


def ends_of(rows: DataFrame) -> dict[Place, int]:
    """How far each partition of each topic is in the table: offset of its last row. Reads three columns of it."""
    last = rows.groupBy(TOPIC, PARTITION).agg(F.max(OFFSET))
    return {(topic, partition): offset for topic, partition, offset in last.collect()}


def offset_of(offsets: Mapping[Place, int], topic: Column, partition: Column) -> Column:
    """The offset that a row's partition has among these; null where it has none."""
    if not offsets:
        return F.lit(None).cast("bigint")
    pairs = [F.lit(each) for (name, number), at in offsets.items() for each in (f"{name}-{number}", at)]
    return F.create_map(*pairs)[F.concat_ws("-", topic, partition)]


class TableRefused(Exception):
    """Writing could lose rows or double them, so nothing was written. The text says what to do."""


class WarehouseTable:
    """The table, as one run of a query sees it.

    Args:
        path: of the table.
        query: stable name of the query.
        adopts: whether to go on where another checkpoint has stopped.
    """

    def __init__(self, path: str, query: str, adopts: bool) -> None:
        self._path, self._query, self._adopts = path, query, adopts
        self._property = f"spark-eos.{query}.checkpoint"
        self._floor: Mapping[Place, int] | None = None

    def ends(self, spark: SparkSession) -> dict[Place, int]:
        """See `ends_of`; nothing of a table that is not there yet."""
        if not DeltaTable.isDeltaTable(spark, self._path):
            return {}
        return ends_of(spark.read.format("delta").load(self._path))

    def append(self, rows: DataFrame, batch: int) -> None:
        """Write a batch, unless it is there already. New columns are added to the table.

        Raises:
            TableRefused: the table belongs to another checkpoint, or has lost what this one had written.
        """
        checkpoint = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        self._own(rows, checkpoint, batch)
        if self._floor is None:
            self._floor = self.ends(rows.sparkSession)
        writer = self._beyond(self._floor, rows).write.format("delta").mode("append").option("mergeSchema", "true")
        writer.option("txnAppId", f"{self._query}/{checkpoint}").option("txnVersion", batch).save(self._path)

    def _own(self, rows: DataFrame, checkpoint: str, batch: int) -> None:
        spark = rows.sparkSession
        if self._floor is None:
            DeltaTable.createIfNotExists(spark).location(self._path).addColumns(rows.schema).execute()
        owner = dict(spark.sql(f"SHOW TBLPROPERTIES delta.`{self._path}`").collect()).get(self._property)
        if owner == checkpoint:
            return
        self._refuse(owner, checkpoint, batch)
        spark.sql(f"ALTER TABLE delta.`{self._path}` SET TBLPROPERTIES ('{self._property}' = '{checkpoint}')")

    def _refuse(self, owner: str | None, checkpoint: str, batch: int) -> None:
        """Unless it may be written: it is new to the query and the query to it, or a run of it takes over."""
        what = f"batch {batch} of query {self._query}: nothing was written to table {self._path}."
        if owner is None and batch > 0:
            raise TableRefused(
                f"{what} It knows nothing of the batches before this one: it was made anew, or restored from before "
                "them. What to do: give the query a new checkpoint, and it fills the table from starting_offsets on."
            )
        if owner is not None and (self._floor is not None or not self._adopts):
            raise TableRefused(
                f"{what} It is written from checkpoint {owner}, and this run's is {checkpoint}. What to do: if the "
                "other one is at work, end one of them. If its checkpoint is lost, start this query with "
                "on_other_checkpoint = 'adopt': it goes on after the table's last rows of its topic."
            )

    @staticmethod
    def _beyond(floor: Mapping[Place, int], rows: DataFrame) -> DataFrame:
        if not floor:
            return rows
        last = offset_of(floor, F.col(TOPIC), F.col(PARTITION))
        return rows.where(last.isNull() | (F.col(OFFSET) > last))
