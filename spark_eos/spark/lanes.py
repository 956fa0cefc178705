"""The body of a Spark task that writes: one attempt at one lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext

from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.deadletters import DeadLetters
from spark_eos.kafka.ledger import LaneLedger
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.protocol.batch import BatchPlan
from spark_eos.protocol.names import LaneTask, Run, lane_partition
from spark_eos.protocol.ports import BeforeStep, LanePorts
from spark_eos.protocol.positions import Fingerprint
from spark_eos.protocol.replay import fingerprint_of
from spark_eos.protocol.transaction import LaneReport, run_lane, traced
from spark_eos.spark.rows import ArrowRows
from spark_eos.spark.staging import staged


def drain(batches: Iterable[pa.RecordBatch]) -> None:
    """Compute a lane's rows and write none, where the batch is sealed.

    A stateful operator before the sink must see the end of its rows: Spark refuses a batch whose state was not
    committed (STATE_STORE_COMMIT_VALIDATION_FAILED, Spark 4.2).
    """
    for _ in batches:
        pass


def task_context() -> TaskContext:
    """Of the task that this process runs."""
    context = TaskContext.get()
    if context is None:
        raise AssertionError("a lane is written by a Spark task")
    return context


@dataclass(frozen=True)
class LaneJob:
    """What every task of a batch gets: plain values, pickled by Spark. Clients are made in the task only.

    Args:
        run: whose batch.
        batch, lanes, content: as of `LaneTask`.
        plan: of the batch.
        factory: makes the lane's producer.
        group: the query's consumer group.
        ledger_partitions: how many the ledger topic has.
        topic: the option topic.
        topics: topics looked up on the driver, with their number of partitions.
        deadletter_topic: the option deadletter.topic.
        stage: whether rows are computed before the transaction opens (stage.rows=disk).
        before_step: see `KafkaSink`.
    """

    run: Run
    batch: int
    lanes: int | None
    content: str | None
    plan: BatchPlan
    factory: ProducerFactory
    group: str
    ledger_partitions: int
    topic: str | None
    topics: dict[str, int]
    deadletter_topic: str | None
    stage: bool
    before_step: BeforeStep | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> LaneReport:
        """Write the lane that this task is.

        Args:
            batches: its rows, with the sink's columns in lower case.

        Raises:
            SparkEosError: see `run_lane`.
        """
        context = task_context()
        computed = staged(batches) if self.stage else batches
        return self.write_as(context.partitionId(), context.attemptNumber(), computed)

    def write_as(self, lane: int, attempt: int, batches: Iterator[pa.RecordBatch]) -> LaneReport:
        """Write a lane.

        Args:
            lane, attempt: which.
            batches: its rows.
        """
        self._make_room(lane)
        task = LaneTask(self.run, self.batch, lane, self.lanes, attempt, self.content)
        factory, plan = self.factory, self.plan
        with closing(LaneLedger(factory.client, factory.brokers, factory.ledger_topic, self.group)) as ledger:
            letters = DeadLetters(self.deadletter_topic, task) if self.deadletter_topic else None
            opens = partial(factory.open, topics=self.topics, letters=letters)
            ports = LanePorts(ledger, opens, factory.transaction_timeout_s)
            return run_lane(
                task,
                self._rows(batches),
                ports,
                before_step=traced(task, self.before_step),
                floor=plan.floor,
                known=plan.known,
                keep=plan.keep,
            )

    def compare(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, Fingerprint] | None:
        """The lane that this task is and what it has now, where it must be what is committed; else None."""
        lane = task_context().partitionId()
        if not self.plan.sealed and lane not in self.plan.committed:
            return None
        return lane, fingerprint_of(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ArrowRows]:
        return (ArrowRows(batch, self.topic) for batch in batches if batch.num_rows)

    def _make_room(self, lane: int) -> None:
        """A partition of the ledger for this lane, where the driver did not know how many lanes there are."""
        needed = lane_partition(lane) + 1
        if needed > self.ledger_partitions:
            # Doubled, so that not every lane of a large batch asks for one more.
            room = 1 << (needed - 1).bit_length()
            Cluster(self.factory.client).ensure_partitions(self.factory.ledger_topic, room)
