"""One broker process: its settings, its folder, its life."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_eos.errors import EmbeddedKafkaError
from spark_eos.testing import leash
from spark_eos.testing.jars import KAFKA_VERSION, java, kafka_jars

STOP_TIMEOUT_S = 20
DUMP_TOOL = "kafka.tools.DumpLogSegments"
if tuple(map(int, KAFKA_VERSION.split(".")[:2])) >= (4, 3):
    DUMP_TOOL = f"org.apache.{DUMP_TOOL}"  # it moved
JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
# Without the shutdown hook of Log4j, which would be quicker than Kafka's own and cut off the end of the log.
LOG4J = """\
status = error
shutdownHook = disable
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:broker.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def settings(
    index: int, folder: Path, ports: list[int], controllers: list[int], config: Mapping[str, str]
) -> dict[str, str]:
    """`server.properties` of broker `index`: broker and controller in one process, on loopback only.

    Args:
        index: broker, from 0; its `node.id` is the same.
        folder: where its data goes.
        ports: the brokers' ports, in the order of the brokers.
        controllers: the controllers' ports.
        config: settings that win over those made here.
    """
    replicas = str(min(3, len(ports)))
    in_sync = str(min(2, len(ports)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(index),
        "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(controllers)),
        "listeners": f"BROKER://127.0.0.1:{ports[index]},CONTROLLER://127.0.0.1:{controllers[index]}",
        "advertised.listeners": f"BROKER://127.0.0.1:{ports[index]}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        # A killed broker is missed after 3 s instead of 9. No restart after a kill can be quicker than this: until
        # then the controller takes the new process for an impostor of the old one.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        # The log cleaner otherwise claims 128 MB of the heap.
        "log.cleaner.dedupe.buffer.size": "2097152",
        **config,
    }


def add_listener(made: dict[str, str], protocol: str, port: int) -> None:
    """Give a broker a further listener, on loopback and named as its security protocol.

    Args:
        made: as `settings` made them.
        protocol: such as `SASL_PLAINTEXT`.
        port: where it listens.
    """
    made["listeners"] += f",{protocol}://127.0.0.1:{port}"
    made["advertised.listeners"] += f",{protocol}://127.0.0.1:{port}"
    made["listener.security.protocol.map"] += f",{protocol}:{protocol}"


class Broker:
    """One broker, started and ended by its owner only.

    Args:
        folder: its data and logs.
        properties: its `server.properties`.
        temporary: folder to remove where this process dies before it can.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str], temporary: Path | None = None) -> None:
        self.folder = folder
        self.properties = dict(properties)
        self._temporary = str(temporary or "")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What clients connect to."""
        return self.properties["advertised.listeners"].split(",")[0].removeprefix("BROKER://")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def data(self) -> Path:
        """The folder with one sub-folder per partition."""
        return Path(self.properties["log.dirs"])

    def write(self, cluster_id: str) -> None:
        """Write the settings and, unless there is data already, format the folder.

        Raises:
            EmbeddedKafkaError: Kafka refused the settings.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{key}={value}\n" for key, value in self.properties.items())
        (self.folder / "server.properties").write_text("".join(lines))
        (self.folder / "log4j2.properties").write_text(LOG4J)
        if not (self.data / "meta.properties").exists():
            arguments = ["format", "-t", cluster_id, "-c", str(self.folder / "server.properties")]
            run_tool("kafka.tools.StorageTool", arguments)

    def start(self) -> None:
        """Start the process; it is not ready yet when this returns."""
        command = [*_jvm(), f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        command += [f"-Dbroker.log={self.folder / 'server.log'}", "-cp", f"{kafka_jars()}/*"]
        command += ["kafka.Kafka", str(self.folder / "server.properties")]
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), self._temporary]
        with (self.folder / "stdout.log").open("ab") as output:
            # A session of its own: Ctrl+C in the terminal reaches the owner first, which then stops it in order.
            self._process = subprocess.Popen(
                leashed + command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL, as a crash would; its port is free when this returns."""
        self._end(signal.SIGUSR1)

    def stop(self) -> None:
        """SIGTERM; SIGKILL if it has not ended within 20 s."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def check(self) -> None:
        """Raises EmbeddedKafkaError with the end of the log if the process ended though nobody asked it to."""
        if self._process is not None and not self.running:
            raise EmbeddedKafkaError(
                f"the broker in {self.folder} has ended. Its last lines:\n{self.log_tail()}\n",
                do="see its last lines; most often a setting in `config` is wrong or its port is taken.",
            )

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of what the broker printed and logged."""
        logs = (self.folder / name for name in ("stdout.log", "server.log"))
        text = "".join(log.read_text(errors="replace") for log in logs if log.exists())
        return "\n".join(text.splitlines()[-lines:])


def _jvm() -> list[str]:
    """With KAFKA_OPTS, as Kafka's own scripts."""
    return [java(), *JVM, *shlex.split(os.environ.get("KAFKA_OPTS", ""))]


def run_tool(main_class: str, arguments: Iterable[str]) -> str:
    """Run one of Kafka's command-line tools and return what it printed.

    Raises:
        EmbeddedKafkaError: it failed; the error has its last lines.
    """
    # No logger is set up for it: what counts is printed.
    command = [*_jvm(), "-Dlog4j2.level=OFF", "-cp", f"{kafka_jars()}/*", main_class, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if ran.returncode != 0:
        tail = "\n".join((ran.stdout + ran.stderr).splitlines()[-20:])
        raise EmbeddedKafkaError(
            f"{main_class} failed with exit code {ran.returncode}. Its last lines:\n{tail}\n",
            do="check the settings given as `config`.",
        )
    return ran.stdout
