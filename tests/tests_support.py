"""A query on the real broker, without Spark: what the tests of the protocol run against."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.ledger import KafkaLedger
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.options import ClientSettings
from spark_eos.protocol.batch import BatchLog, BatchPlan
from spark_eos.protocol.decide import Policy
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.ports import LanePorts, OpenTransaction, QueryLedger, Transaction
from spark_eos.protocol.positions import offsets_after
from spark_eos.protocol.replay import fingerprint_of
from spark_eos.protocol.transaction import LaneReport, run_lane
from spark_eos.spark.rows import ArrowRows
from spark_eos.testing import wait_for_markers

SOURCE_TYPE = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def rows_of(values: Iterable[object], source: tuple[str, int, int] | None = None, **columns) -> ArrowRows:
    """Rows with these values, `source` being where the first one came from."""
    values = list(values)
    arrays = {"value": pa.array([None if v is None else str(v).encode() for v in values], pa.binary())}
    if source is not None:
        topic, partition, first = source
        places = [{"topic": topic, "partition": partition, "offset": first + i} for i in range(len(values))]
        arrays["source"] = pa.array(places, SOURCE_TYPE)
    arrays |= columns
    return ArrowRows(pa.RecordBatch.from_pydict(arrays), None)


def committed_values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Every value in a topic, as a plain consumer reads it, partition by partition."""
    return [message.value() for message in committed_messages(bootstrap, topic, isolation)]


def committed_messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Everything in a topic, as a plain consumer reads it, partition by partition."""
    if isolation == "read_committed":
        wait_for_markers(bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": isolation, "log_level": 0}
    settings |= {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
    consumer = Consumer(settings)
    try:
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[Message] = []
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(10)
            assert message is not None, "the reader is held back"
            if message.error():
                ended += 1
            else:
                found.append(message)
        return found
    finally:
        consumer.close()


def before_commits(open_transaction: OpenTransaction, call: Callable[[], object]) -> OpenTransaction:
    """The same producers; before each of their commits, something is called."""

    @contextmanager
    def opened(transactional_id: str) -> Iterator[Transaction]:
        with open_transaction(transactional_id) as transaction:
            commit = transaction.commit

            def called_and_committed() -> None:
                call()
                commit()

            transaction.commit = called_and_committed
            yield transaction

    return opened


class QueryCalls:
    """`run()` starts runs of a query, `lane()` writes a lane as a Spark task would; whatever brokers there are."""

    query: str
    topic: str
    ledger: QueryLedger
    fencing: dict[str, object] = {}  # noqa: RUF012
    """How a run fences lanes, where it is not as usual."""

    @property
    def ports(self) -> LanePorts:
        raise NotImplementedError

    def open(self, transactional_id: str) -> AbstractContextManager[Transaction]:
        """A fresh producer."""
        return self.ports.open_transaction(transactional_id)

    def run(self, run: str | None = None, checkpoint: str = "checkpoint", single=False, **policy: bool) -> QueryRun:
        identity = Run(self.query, checkpoint, run or f"run-{uuid.uuid4().hex[:6]}")
        kept = {"single": single, **self.fencing}
        return QueryRun(identity, self.ledger, self.open, Policy(**policy), lambda: "2026-01-01T00:00:00Z", **kept)

    def lane(
        self,
        run: QueryRun,
        batch: int,
        stream: Iterable[ArrowRows],
        lane=0,
        lanes=1,
        plan=None,
        before_step=None,
        content=None,
    ) -> LaneReport:
        task = LaneTask(run.run, batch, lane, lanes, 0, content)
        pieces: Iterator[ArrowRows] = (self.to_topic(rows) for rows in stream)
        plan = plan or BatchPlan()
        kept = {"floor": plan.floor, "known": plan.known, "keep": plan.keep}
        return run_lane(task, pieces, self.ports, before_step=before_step or (lambda step: None), **kept)

    def to_topic(self, rows: ArrowRows) -> ArrowRows:
        has_topic = "topic" in rows._batch.schema.names
        return ArrowRows(rows._batch, None if has_topic else self.topic)

    def batch(
        self,
        run: QueryRun,
        batch: int,
        lanes: list[list[ArrowRows]],
        sources=(),
        content: str | None = "content",
        log_offsets=None,
        **log,
    ) -> list[LaneReport] | None:
        """Open, write every lane, seal; None where the batch was sealed before.

        Of `sources` the batch ends behind its rows, in the offset log.
        """
        reached = offsets_after((each for lane in lanes for rows in lane for each in rows.ranges()), {})
        ends = {key: reached.get(key, 0) for key in sources} | (log_offsets or {})
        logged = BatchLog(content, ends=ends, **log)
        plan = run.open(batch, len(lanes), logged)
        if plan.skip:
            return None
        if plan.sealed or plan.committed:
            run.compare(batch, plan, {lane: fingerprint_of(map(self.to_topic, r)) for lane, r in enumerate(lanes)})
            if plan.sealed:
                return None
        count = len(lanes)
        reports = [self.lane(run, batch, r, i, count, plan, content=content) for i, r in enumerate(lanes)]
        run.seal(batch, count, reports, logged, plan)
        return reports

    def but(self, **changes):
        return replace(self, **changes)


@dataclass
class Query(QueryCalls):
    """One query id on one real cluster."""

    bootstrap: str
    query: str
    topic: str
    client: dict[str, str] = field(default_factory=dict)
    ledger_topic: str = "spark-eos-ledger"
    call_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        settings = ClientSettings({"bootstrap.servers": self.bootstrap, **self.client})
        self.cluster = Cluster(settings)
        self.ledger = KafkaLedger(self.cluster, settings, 1, self.ledger_topic, self.query)
        metadata = self.ledger.group_metadata()
        self.factory = ProducerFactory(settings, 1, self.ledger_topic, metadata, self.call_timeout_s)

    @property
    def ports(self) -> LanePorts:
        return LanePorts(self.ledger, self.factory.open, self.factory.transaction_timeout_s)

    def values(self, topic: str | None = None) -> list[str]:
        return sorted(value.decode() for value in committed_values(self.bootstrap, topic or self.topic))

    def uncommitted(self) -> list[str]:
        return [v.decode() for v in committed_values(self.bootstrap, self.topic, "read_uncommitted")]
