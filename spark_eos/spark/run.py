"""One run of one query on the driver, for every way in: its clients, its lease, its lanes' jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from spark_eos.kafka.admin import AT_WORK_TIMEOUT_S, Cluster
from spark_eos.kafka.ledger import KafkaLedger
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.options import SinkOptions
from spark_eos.protocol.driver import BatchPlan, Policy, QueryRun
from spark_eos.protocol.names import Run
from spark_eos.protocol.ports import BeforeStep
from spark_eos.protocol.positions import Offsets
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.lanes import LaneJob
from spark_eos.spark.logged import LoggedBatch


class SinkRun:
    """Opens batches, and seals them; the lanes are run by whoever knows how Spark runs tasks there.

    Args:
        run: whose.
        options: the sink's.
        single: the run is one batch (see `QueryRun`).

    Raises:
        ClusterError: Kafka can't be reached, or a topic that the options name does not exist.
    """

    def __init__(self, run: Run, options: SinkOptions, *, single: bool = False) -> None:
        self.run, self._options = run, options
        client, topic = options.client, options.ledger_topic
        self._cluster = Cluster(client)
        brokers = self._cluster.brokers()
        self._topics = self._option("topic", options.topic)
        self._topics |= self._option("deadletter.topic", options.deadletter_topic)
        self._group = options.group_id or run.query
        self._ledger = KafkaLedger(self._cluster, client, brokers, topic, self._group)
        self._factory = ProducerFactory(client, brokers, topic, self._ledger.group_metadata())
        policy = Policy(options.on_missing_ledger == "start", options.adopts)
        self._cluster.timeout_s = AT_WORK_TIMEOUT_S
        self.protocol = QueryRun(run, self._ledger, self._factory.open, policy, _now, single=single)

    def _option(self, name: str, topic: str | None) -> dict[str, int]:
        """The topic that an option names, with its number of partitions."""
        return self._cluster.require([topic] if topic else [], f"the sink's option {name}")

    def open(self, batch: int, lanes: int | None, logged: LoggedBatch) -> BatchPlan:
        """Decide what becomes of a batch; errors as of `QueryRun.open`."""
        return self.protocol.open(batch, lanes, lambda: self._in_cluster(logged.offsets), logged.content)

    def job(
        self, batch: int, lanes: int | None, logged: LoggedBatch, plan: BatchPlan, before_step: BeforeStep | None = None
    ) -> LaneJob:
        """What the tasks of an opened batch get."""
        return LaneJob(
            run=self.run,
            batch=batch,
            lanes=lanes,
            content=logged.content,
            floor=plan.floor,
            factory=self._factory,
            group=self._group,
            ledger_partitions=self._ledger.partitions,
            topic=self._options.topic,
            topics=self._topics,
            deadletter_topic=self._options.deadletter_topic,
            stage=self._options.stage_rows == "disk",
            before_step=before_step,
        )

    def seal(self, batch: int, reports: Sequence[LaneReport], lanes: int, logged: LoggedBatch) -> None:
        """Note that a batch is whole; errors as of `QueryRun.seal`."""
        self.protocol.seal(batch, lanes, reports, self._in_cluster(logged.offsets), logged.content)

    def close(self) -> None:
        """End the clients."""
        self.protocol.close()
        self._ledger.close()

    def _in_cluster(self, offsets: Offsets) -> Offsets:
        """Offsets of topics that this cluster has: a query may read from another one."""
        counts = self._cluster.partitions({topic for topic, _ in offsets})
        return {key: offset for key, offset in offsets.items() if key[1] < (counts[key[0]] or 0)}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
