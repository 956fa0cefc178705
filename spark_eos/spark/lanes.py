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
from spark_eos.protocol.names import LaneTask, Run, lane_partition
from spark_eos.protocol.ports import BeforeStep, LanePorts
from spark_eos.protocol.positions import Offsets
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


@dataclass(frozen=True)
class LaneJob:
    """What every task of a batch gets: plain values, pickled by Spark. Clients are made in the task only.

    Args:
        run: whose batch.
        batch, lanes, content: as of `LaneTask`.
        floor: as of `BatchPlan`.
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
    floor: Offsets
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
        task = self._task()
        computed = staged(batches) if self.stage else batches
        stream = (ArrowRows(batch, self.topic) for batch in computed if batch.num_rows)
        factory = self.factory
        with closing(LaneLedger(factory.client, factory.brokers, factory.ledger_topic, self.group)) as ledger:
            letters = DeadLetters(self.deadletter_topic, task) if self.deadletter_topic else None
            opens = partial(factory.open, topics=self.topics, letters=letters)
            ports = LanePorts(ledger, opens, factory.transaction_timeout_s)
            return run_lane(task, stream, ports, floor=self.floor, before_step=traced(task, self.before_step))

    def _task(self) -> LaneTask:
        context = TaskContext.get()
        if context is None:
            raise AssertionError("a lane is written by a Spark task")
        lane = context.partitionId()
        self._make_room(lane)
        return LaneTask(self.run, self.batch, lane, self.lanes, context.attemptNumber(), self.content)

    def _make_room(self, lane: int) -> None:
        """A partition of the ledger for this lane, where the driver did not know how many lanes there are."""
        needed = lane_partition(lane) + 1
        if needed > self.ledger_partitions:
            # Doubled, so that not every lane of a large batch asks for one more.
            room = 1 << (needed - 1).bit_length()
            Cluster(self.factory.client).ensure_partitions(self.factory.ledger_topic, room)
