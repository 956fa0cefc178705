"""EmbeddedKafka is a real broker: it keeps data over a kill, shows its log, and never outlives its owner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from spark_eos.errors import EmbeddedKafkaError
from spark_eos.testing import EmbeddedKafka, jars, wait_for_markers
from spark_eos.testing.broker import settings
from spark_eos.testing.ports import PORTS, free_ports, ports_from

QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 100}
OWNER = """
import time
from spark_eos.testing import EmbeddedKafka
kafka = EmbeddedKafka()
kafka.start()
print(kafka._folder, flush=True)
time.sleep(600)
"""


def produce(kafka: EmbeddedKafka, topic: str, *values: bytes, commit: bool = True) -> None:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "test", **QUIET}
    producer = Producer(config)
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def consume(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes]:
    """At least `count` values: a commit is acknowledged before its markers are in the partitions."""
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.partition.eof": True, "fetch.wait.max.ms": 20, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                if len(values) >= count:
                    return values
            else:
                values.append(message.value())
    finally:
        consumer.close()
    raise AssertionError(f"no end of the partition after {values}")


def broker_processes(owner: int, kafka: EmbeddedKafka | None = None) -> list[psutil.Process]:
    """The JVMs that `owner` started, of this cluster only where one is given."""
    javas = [child for child in psutil.Process(owner).children(recursive=True) if child.name() == "java"]
    return [java for java in javas if kafka is None or str(kafka._folder) in " ".join(java.cmdline())]


@pytest.fixture(scope="module")
def one() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(config={"transaction.max.timeout.ms": "61000"}) as kafka:
        yield kafka


def test_data_and_address_survive_a_kill_and_the_log_shows_how_transactions_ended(one):
    one.create_topic("t", partitions=2)
    produce(one, "t", b"kept", b"too")
    produce(one, "t", b"dropped", commit=False)
    servers = one.bootstrap_servers
    one.kill(0)
    one.check()  # asked for: no error
    one.restart(0)

    assert one.bootstrap_servers == servers
    assert consume(one, "t", 2) == [b"kept", b"too"]
    wait_for_markers(servers, "t")
    lines = one.dump_log("t", 0).splitlines()
    markers = [line.split("endTxnMarker: ")[1].split()[0] for line in lines if "endTxnMarker" in line]
    # A coordinator killed before it noted that a marker is written writes it again when it is back.
    assert markers[0] == "COMMIT"
    assert set(markers[1:]) == {"ABORT"}
    assert "payload: dropped" in one.dump_log("t", 0, print_data=True)


def test_settings_of_broker_and_topic_arrive(one):
    one.create_topic("settings", config={"retention.ms": "86400000"})
    admin = AdminClient({"bootstrap.servers": one.bootstrap_servers, **QUIET})
    resources = [ConfigResource(ResourceType.BROKER, "0"), ConfigResource(ResourceType.TOPIC, "settings")]
    broker, topic = (future.result(10) for future in admin.describe_configs(resources).values())
    assert broker["transaction.max.timeout.ms"].value == "61000"
    assert broker["auto.create.topics.enable"].value == "true"
    assert topic["retention.ms"].value == "86400000"


def test_a_topic_can_be_made_once_and_deleted(one):
    one.create_topic("once")
    with pytest.raises(EmbeddedKafkaError, match=r"could not create topic once: .*already exists\. What"):
        one.create_topic("once")
    one.create_topic("once", exist_ok=True)
    one.delete_topic("once")
    admin = AdminClient({"bootstrap.servers": one.bootstrap_servers, **QUIET})
    assert "once" not in admin.list_topics(timeout=5).topics
    with pytest.raises(EmbeddedKafkaError, match="could not delete topic once"):
        one.delete_topic("once")
    with pytest.raises(EmbeddedKafkaError, match="no broker has a log of once-0"):
        one.dump_log("once")


def test_nothing_listens_beyond_loopback(one):
    [java] = broker_processes(os.getpid(), one)
    places = {place.laddr.ip.removeprefix("::ffff:") for place in java.net_connections("inet")}
    assert places == {"127.0.0.1"}


# The last one to use `one`.
def test_without_its_leash_a_broker_ends_and_check_says_so(one):
    [java] = broker_processes(os.getpid(), one)
    leash = java.parent()
    leash.kill()
    gone, _ = psutil.wait_procs([java, leash], timeout=10)
    assert len(gone) == 2
    with pytest.raises(EmbeddedKafkaError, match=r"broker-0 has ended\. Its last lines:(?s:.*)INFO"):
        one.check()
    folder = one._folder
    one.stop()
    assert not folder.exists()
    one.stop()  # once more: nothing happens


@pytest.mark.large
@pytest.mark.timeout(120)
def test_three_brokers_go_on_without_one():
    with EmbeddedKafka(brokers=3) as kafka:
        kafka.create_topic("t", partitions=3)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
        listed = admin.list_topics(timeout=10)
        assert len(listed.brokers) == 3
        assert all(len(part.isrs) == 3 for part in listed.topics["t"].partitions.values())
        kafka.kill(listed.topics["t"].partitions[0].leader)
        produce(kafka, "t", b"written by two")
        assert consume(kafka, "t", 1) == [b"written by two"]


def test_the_broker_and_its_folder_go_when_the_owner_is_killed():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    try:
        folder = Path(owner.stdout.readline().strip())
        [java] = broker_processes(owner.pid)
        leash = java.parent()
        owner.kill()
        gone, _ = psutil.wait_procs([java, leash], timeout=10)
        assert len(gone) == 2
        assert not folder.exists()
    finally:
        owner.kill()
        owner.communicate(timeout=10)


def test_the_command_prints_the_servers_keeps_data_and_stops_in_order(tmp_path):
    command = [sys.executable, "-m", "spark_eos.cli", "broker", "--data-dir", str(tmp_path), "--topic", "orders:2"]
    port = str(free_ports(1)[0])
    running = subprocess.Popen([*command, "--port", port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout.readline() == f"127.0.0.1:{port}\n"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **QUIET})
        assert len(admin.list_topics(timeout=10).topics["orders"].partitions) == 2
        taken = subprocess.run([*command, "--port", port], capture_output=True, text=True, check=False)
        assert (taken.returncode, taken.stdout) == (1, "")
        assert taken.stderr == f"Error: port {port} is taken or can't be used. What to do: choose another port.\n"
    finally:
        running.terminate()
        rest = running.communicate(timeout=30)
    assert running.returncode == 0
    assert rest == ("", "")
    assert "BrokerServer: [BrokerServer id=0] shut down completed" in (tmp_path / "broker-0" / "server.log").read_text()
    assert (tmp_path / "broker-0" / "data" / "orders-1").is_dir()


def test_a_broker_that_cannot_start_shows_its_log():
    kafka = EmbeddedKafka(config={"num.io.threads": "none"})
    with pytest.raises(EmbeddedKafkaError, match=r"(?s)Invalid value none for configuration num.io.threads"):
        kafka.start()
    with pytest.raises(EmbeddedKafkaError, match="does not run"):
        kafka.create_topic("t")
    with pytest.raises(EmbeddedKafkaError, match="there is no broker 0"):
        kafka.kill(0)


def test_kafka_opts_reach_the_jvm(monkeypatch):
    monkeypatch.setenv("KAFKA_OPTS", "-XX:NoSuchOption '-Dwith=a space'")
    with pytest.raises(EmbeddedKafkaError, match="Unrecognized VM option 'NoSuchOption'"):
        EmbeddedKafka().start()


def test_without_java_the_error_says_what_to_install(monkeypatch, tmp_path):
    jars.java.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError, match=r"no java was found in JAVA_HOME(?s:.*)install a JDK 17"):
        jars.java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    with pytest.raises(EmbeddedKafkaError, match=r"is no JDK 17 or newer: it says \['openjdk version \"11"):
        jars.java()


def test_a_failed_download_shows_what_ivy_said_and_leaves_nothing_half_done(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_EOS_CACHE", str(tmp_path))
    # Where nobody listens; and nothing leaves this machine.
    proxy = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", proxy)
    with pytest.raises(EmbeddedKafkaError, match=r"(?s)Ivy could not download.*Connection refused.*SPARK_EOS_CACHE"):
        jars.kafka_jars()
    assert not (tmp_path / f"kafka-{jars.KAFKA_VERSION}").exists()
    assert not list(tmp_path.glob("download-*"))


def test_config_wins_over_the_settings_made_here(tmp_path):
    made = settings(0, tmp_path, [1], [2], {"offsets.topic.num.partitions": "9", "compression.type": "zstd"})
    assert made["offsets.topic.num.partitions"] == "9"
    assert made["compression.type"] == "zstd"


def test_ports_are_free_different_and_never_outgoing_ones():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert set(ports) <= set(PORTS)
    with pytest.raises(EmbeddedKafkaError, match="port 65536"):
        ports_from(65_535, 3)


def test_two_brokers_are_refused():
    with pytest.raises(EmbeddedKafkaError, match="use 1 or 3"):
        EmbeddedKafka(brokers=2)
