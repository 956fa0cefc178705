"""EmbeddedKafka: a real Apache Kafka, one broker or three, for tests and for trying things out."""

from __future__ import annotations

import atexit
import base64
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from spark_eos.errors import EmbeddedKafkaError
from spark_eos.testing.broker import DUMP_TOOL, Broker, add_listener, run_tool, settings
from spark_eos.testing.jars import kafka_jars
from spark_eos.testing.ports import free_ports, ports_from

READY_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60  # as long as the client tries
# Refused connections are normal while a broker starts: the client shall not print them.
CLIENT = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


class _NotReady(Exception):
    """What is waited for is not there yet."""


class EmbeddedKafka:
    """A Kafka cluster of this process, on loopback; it ends with the process, whatever ends that.

    Use it as a context manager, or call `start()` and `stop()`. The first use downloads Kafka.

    Args:
        brokers: 1 or 3. Topics, also Kafka's own, get as many replicas.
        config: broker settings that win over the ones made here, such as
            `{"transaction.max.timeout.ms": "60000"}`.
        data_dir: folder for data and logs, kept by `stop()` and used again by the next start. Default: a temporary
            folder that `stop()` removes.
        port: port of the first broker, the others following. Default: free ones. They stay the same over restarts.
        second_listener: security protocol of a further listener, such as `SASL_PLAINTEXT`, which is also its name in
            `config` (`listener.name.sasl_plaintext.plain.sasl.jaas.config`). The first one stays open to everyone.

    Raises:
        EmbeddedKafkaError: Kafka could not be installed, started or reached; with the end of the broker's log.
    """

    def __init__(
        self,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: str | Path | None = None,
        port: int | None = None,
        second_listener: str | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise EmbeddedKafkaError(f"a cluster of {brokers} brokers was asked for", do="use 1 or 3.")
        self._count = brokers
        self._config = dict(config or {})
        self._kept = Path(data_dir).absolute() if data_dir else None
        self._first_port = port
        self._second_listener = second_listener
        self._folder = Path()
        self._ports: list[int] = []
        self._second_ports: list[int] = []
        self._brokers: list[Broker] = []

    def __enter__(self) -> EmbeddedKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, one for each broker, with commas between; empty before the first start."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def second_servers(self) -> str:
        """As `bootstrap_servers`, of the second listener; empty without one."""
        return ",".join(f"127.0.0.1:{port}" for port in self._second_ports)

    def start(self) -> None:
        """Start all brokers, and wait until they take transactions."""
        if self._brokers:
            raise EmbeddedKafkaError("this cluster runs already", do="call stop() before start().")
        kafka_jars()
        self._ports = self._ports or self._choose_ports()
        if self._second_listener:
            self._second_ports = self._second_ports or self._further_ports()
        self._folder = self._kept or Path(tempfile.mkdtemp(prefix="spark-eos-kafka-"))
        atexit.register(self.stop)
        try:
            self._create_brokers()
            self.restart(*range(self._count))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all brokers; remove the folder unless it was given as `data_dir`. Does nothing when stopped."""
        atexit.unregister(self.stop)
        # Without a folder to keep, nobody will read the data again. All at once: the last one of three, alone, would
        # wait for a majority to allow it to stop.
        end = Broker.stop if self._kept else Broker.kill
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(end, self._brokers))
        if self._brokers and not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._brokers = []

    def check(self) -> None:
        """Make sure that no broker has ended by itself.

        Raises:
            EmbeddedKafkaError: one has; with the end of its log.
        """
        for broker in self._brokers:
            broker.check()

    def kill(self, broker: int) -> None:
        """SIGKILL one broker (from 0). After 3 s the others take over what it led."""
        self._broker(broker).kill()

    def stop_broker(self, broker: int) -> None:
        """Stop one broker (from 0) in an orderly way: it hands over what it leads first."""
        self._broker(broker).stop()

    def restart(self, *brokers: int) -> None:
        """Start brokers (from 0) again, stopping them first if they run, with the same data and ports.

        Returns when they answer and are in sync on every partition they have a replica of. Where all three were
        killed, name two or three: one alone is no majority and would wait for another.
        """
        nodes = [self._broker(index) for index in brokers]
        for node in nodes:
            node.stop()
        for node in nodes:
            node.start()
        self._wait_for("all brokers", self._require_members)
        self._wait_for("the transaction coordinator", self._require_transactions)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic with min(3, brokers) replicas and wait until every partition answers.

        Args:
            name: topic.
            partitions: how many, at least 1.
            config: topic settings, such as `{"retention.ms": "60000"}`.
            exist_ok: leave a topic of that name as it is.

        Raises:
            EmbeddedKafkaError: a broker refused, or the topic exists.
        """
        topic = NewTopic(name, partitions, self._count, config=dict(config or {}))
        allowed = KafkaError.TOPIC_ALREADY_EXISTS if exist_ok else None
        self._ask(f"create topic {name}", lambda admin: admin.create_topics([topic])[name], allowed)
        self._wait_for(f"topic {name}", lambda: self._require_topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker lists it.

        Raises:
            EmbeddedKafkaError: a broker refused, or there is no such topic.
        """
        self._ask(f"delete topic {name}", lambda admin: admin.delete_topics([name])[name])
        self._wait_for(f"the end of topic {name}", lambda: self._require_no_topic(name))

    def dump_log(self, topic: str, partition: int = 0, *, print_data: bool = False) -> str:
        """What the log of a partition holds, as `kafka-dump-log` prints it, with `endTxnMarker: COMMIT` or `ABORT`.

        Args:
            topic: topic.
            partition: partition, from 0.
            print_data: also keys and values.

        Raises:
            EmbeddedKafkaError: there is no such partition.
        """
        folders = (node.data / f"{topic}-{partition}" for node in self._brokers)
        replicas = [sorted(folder.glob("*.log")) for folder in folders if folder.is_dir()]
        if not replicas:
            raise EmbeddedKafkaError(f"no broker has a log of {topic}-{partition}", do="create the topic first.")
        # A follower, or a broker that was killed, may lag behind.
        longest = max(replicas, key=lambda segments: sum(file.stat().st_size for file in segments))
        arguments = ["--print-data-log" if print_data else "--deep-iteration"]
        arguments += ["--files", ",".join(map(str, longest))]
        return run_tool(DUMP_TOOL, arguments)

    def _choose_ports(self) -> list[int]:
        return ports_from(self._first_port, self._count) if self._first_port else free_ports(self._count)

    def _further_ports(self) -> list[int]:
        """One for each broker, and none of those that this cluster has already."""
        taken = {*self._ports, *self._second_ports}
        return [port for port in free_ports(3 * self._count) if port not in taken][: self._count]

    def _create_brokers(self) -> None:
        controllers = self._further_ports()
        temporary = None if self._kept else self._folder
        folders = [self._folder / f"broker-{i}" for i in range(self._count)]
        made = [settings(i, folder, self._ports, controllers, self._config) for i, folder in enumerate(folders)]
        if self._second_listener:
            for properties, port in zip(made, self._second_ports, strict=True):
                add_listener(properties, self._second_listener, port)
        self._brokers = [Broker(*each, temporary) for each in zip(folders, made, strict=True)]
        formatted = sum((broker.data / "meta.properties").exists() for broker in self._brokers)
        if formatted not in (0, self._count):
            raise EmbeddedKafkaError(
                f"{self._folder} holds the data of {formatted} of {self._count} brokers",
                do="use as many brokers as when it was made, or an empty folder.",
            )
        # 22 letters, the first of which may not look like an option of the format tool
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22].replace("-", "_")
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(lambda broker: broker.write(cluster_id), self._brokers))

    def _broker(self, index: int) -> Broker:
        if not 0 <= index < len(self._brokers):
            raise EmbeddedKafkaError(
                f"there is no broker {index}; this cluster runs {len(self._brokers)}",
                do="call start() first, and count from 0.",
            )
        return self._brokers[index]

    def _admin(self) -> AdminClient:
        """A fresh client (2 ms). One that lives over a restart remembers old leader epochs, and `list_offsets` fails
        with FENCED_LEADER_EPOCH until something else makes it ask for metadata (measured, librdkafka 2.16)."""
        if not self._brokers:
            raise EmbeddedKafkaError("this cluster does not run", do="call start() first.")
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **CLIENT})

    def _views(self) -> list[ClusterMetadata]:
        """The cluster as each running broker sees it, from fresh clients that know no other broker."""
        self.check()
        clients = [AdminClient({"bootstrap.servers": n.address, **CLIENT}) for n in self._brokers if n.running]
        # All topics: to ask for one by name would create it.
        return [client.list_topics(timeout=1) for client in clients]

    def _require_members(self) -> None:
        alive = {i for i, node in enumerate(self._brokers) if node.running}
        for view in self._views():
            if set(view.brokers) != alive:
                raise _NotReady(f"a broker sees {sorted(view.brokers)} of {sorted(alive)}")
            for topic in view.topics.values():
                for part in topic.partitions.values():
                    if part.leader < 0 or set(part.replicas) & alive != set(part.isrs):
                        raise _NotReady(f"{topic.topic}-{part.id} is not in sync")

    def _require_transactions(self) -> None:
        config = {"bootstrap.servers": self.bootstrap_servers, "transactional.id": "spark-eos-probe", **CLIENT}
        # A client that asks too early looks again after 500 ms; a fresh one after 200 ms is quicker.
        Producer({**config, "enable.sparse.connections": "false"}).init_transactions(0.2)

    def _require_topic(self, name: str) -> None:
        views = self._views()
        if not all(name in view.topics for view in views):
            raise _NotReady("a broker does not list it")
        ends = {TopicPartition(name, i): OffsetSpec.latest() for i in views[0].topics[name].partitions}
        admin = self._admin()
        for future in admin.list_offsets(ends, request_timeout=5).values():
            future.result(10)

    def _require_no_topic(self, name: str) -> None:
        if any(name in view.topics for view in self._views()):
            raise _NotReady("a broker still lists it")

    def _ask(self, what: str, request: Callable[[AdminClient], Future[None]], allowed: int | None = None) -> None:
        admin = self._admin()  # must outlive its answer
        try:
            request(admin).result(ANSWER_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != allowed:
                why = error.args[0].str().rstrip(".")
                raise EmbeddedKafkaError(
                    f"could not {what}: {why}", do="check its name and settings, and that the brokers run."
                ) from error

    def _wait_for(self, what: str, ready: Callable[[], None]) -> None:
        retry = retry_if_exception_type((KafkaException, _NotReady))
        try:
            Retrying(stop=stop_after_delay(READY_TIMEOUT_S), wait=wait_fixed(0.05), retry=retry)(ready)
        except RetryError as error:
            last = error.last_attempt.exception()
            logs = "\n".join(f"broker {i}:\n{node.log_tail()}" for i, node in enumerate(self._brokers))
            raise EmbeddedKafkaError(
                f"waited {READY_TIMEOUT_S} s for {what}: {last}. The brokers' last lines:\n{logs}\n",
                do="see the brokers' last lines; is a majority of the brokers running?",
            ) from last
