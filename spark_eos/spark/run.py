"""One run of one query on the driver, for every way in: its clients, its lease, its lanes' jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone

from spark_eos.kafka.admin import AT_WORK_TIMEOUT_S, Cluster
from spark_eos.kafka.home import hold_home
from spark_eos.kafka.ledger import KafkaLedger
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.options import SinkOptions
from spark_eos.protocol.batch import BatchLog, BatchPlan
from spark_eos.protocol.decide import Policy
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import Run
from spark_eos.protocol.ports import BeforeStep, Transaction
from spark_eos.protocol.positions import mark_of
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
        self._source_topics: dict[str, int] = {}
        self._at_home = False
        self._group = options.group_id or run.query
        mark = mark_of(run.query)
        self._ledger = KafkaLedger(self._cluster, client, brokers, topic, self._group, mark=mark)
        self._factory = ProducerFactory(client, brokers, topic, self._ledger.group_metadata(), mark=mark)
        policy = policy_of(options)
        self._cluster.timeout_s = AT_WORK_TIMEOUT_S
        self.protocol = QueryRun(run, self._ledger, self._open, policy, _now, single=single)

    def _open(self, transactional_id: str) -> AbstractContextManager[Transaction]:
        return self._factory.open(transactional_id, self._topics | self._source_topics)

    def _option(self, name: str, topic: str | None) -> dict[str, int]:
        """The topic that an option names, with its number of partitions."""
        return self._cluster.require([topic] if topic else [], f"the sink's option {name}")

    def open(self, batch: int, lanes: int | None, logged: LoggedBatch) -> BatchPlan:
        """Decide what becomes of a batch; errors as of `QueryRun.open`, and `OtherQuery`."""
        self._hold_home()
        return self.protocol.open(batch, lanes, self.log_of(logged))

    def _hold_home(self) -> None:
        """Once in the life of a query that has a group of another name."""
        if self._at_home or self._group == self.run.query:
            return
        self._ledger.ensure(1)
        if self._ledger.view(stable=False, lanes=0).query is None:
            options, brokers = self._options, self._factory.brokers
            moves = options.on_missing_ledger == "start"
            hold_home(options.client, brokers, options.ledger_topic, self._group, self.run, moves=moves)
        self._at_home = True

    def job(
        self, batch: int, lanes: int | None, logged: LoggedBatch, plan: BatchPlan, before_step: BeforeStep | None = None
    ) -> LaneJob:
        """What the tasks of an opened batch get."""
        return LaneJob(
            run=self.run,
            batch=batch,
            lanes=lanes,
            content=logged.content,
            plan=plan,
            factory=self._factory,
            group=self._group,
            ledger_partitions=self._ledger.partitions,
            topic=self._options.topic,
            topics=self._topics | self._source_topics,
            deadletter_topic=self._options.deadletter_topic,
            stage=self._options.stage_rows == "disk",
            before_step=before_step,
        )

    def seal(self, batch: int, reports: Sequence[LaneReport], lanes: int, logged: LoggedBatch, plan: BatchPlan) -> None:
        """Note that a batch is whole; errors as of `QueryRun.seal`."""
        self.protocol.seal(batch, lanes, reports, self.log_of(logged), plan)

    def log_of(self, logged: LoggedBatch) -> BatchLog:
        """What the protocol needs of a batch's log."""
        found = self._cluster.partitions(logged.topics)
        self._source_topics = {topic: count for topic, count in found.items() if count is not None}
        return logged.in_cluster(self._source_topics)

    def close(self) -> None:
        """End the clients."""
        self.protocol.close()
        self._ledger.close()


def policy_of(options: SinkOptions) -> Policy:
    """What the options allow where the ledger and a batch disagree."""
    return Policy(
        may_start=options.on_missing_ledger == "start",
        may_adopt=options.adopts,
        may_pass=options.on_skipped_batch == "pass",
        may_keep=options.on_replay_differs == "keep",
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
