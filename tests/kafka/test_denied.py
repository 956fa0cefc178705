"""The source, where a broker can't be reached, does not let the client in, or has no ACL for it: errors that say so.
And the checker's command, with settings to log in with.

Tasks wait for records for 60 s here, as is the default, and tests only for 45 s: none of this is a wait for time to be
up.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType
from kafka_log import Log
from secured_kafka import WRONG_PASSWORD, SecuredKafka, no_secret_in, secured_kafka

from spark_eos.errors import AccessDenied, BrokerUnreachable, OptionError, SparkEosError, TopicMissing
from spark_eos.kafka.ledger import LaneLedger
from spark_eos.kafka.offsets import OffsetRange
from spark_eos.kafka.reader import read_ranges
from spark_eos.source_options import SourceOptions
from spark_eos.spark.batch_reader import KafkaEosReader
from spark_eos.spark.stream_reader import KafkaEosStreamReader

pytestmark = pytest.mark.timeout(45)

DESCRIBE, READ = AclOperation.DESCRIBE, AclOperation.READ
SCRAM = "SCRAM-SHA-256"

Options = dict[str, str]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with secured_kafka() as broker:
        yield broker


@pytest.fixture
def log(secured: SecuredKafka) -> Log:
    return secured.topic()


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def stream(options: Options) -> object:
    """What the driver does first for a stream."""
    return KafkaEosStreamReader(SourceOptions.of(options | {"startingOffsets": "earliest"})).initialOffset()


def batch(options: Options) -> object:
    """What the driver does for a batch query."""
    return KafkaEosReader(SourceOptions.of(options, "batch")).partitions()


def task(options: Options, end: int = 1) -> list[bytes]:
    """What a task does, with the first records of partition 0."""
    wanted = OffsetRange(options["subscribe"], 0, 0, end)
    return [
        value for each in read_ranges(SourceOptions.of(options), [wanted]) for value in each.column("value").to_pylist()
    ]


def raised(call: Callable[[Options], object], options: Options) -> SparkEosError:
    with pytest.raises(SparkEosError) as caught:
        call(options)
    return caught.value


def all_at_once(cases: list[tuple[Callable[[Options], object], Options]]) -> list[SparkEosError]:
    """What each raises: those that wait do it together."""
    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(lambda case: raised(*case), cases))


@pytest.mark.parametrize("call", [stream, batch, task])
def test_who_is_not_let_in_is_told_so(secured: SecuredKafka, caplog: pytest.LogCaptureFixture, call) -> None:
    subscribe = {"subscribe": "a"}
    wrong_password = secured.login("reader", sasl_password=WRONG_PASSWORD)
    wrong_mechanism = secured.login("reader", sasl_mechanism=SCRAM)
    no_sasl_there = secured.login("reader", bootstrap_servers=secured.kafka.bootstrap_servers)
    found = all_at_once([(call, each | subscribe) for each in (wrong_password, wrong_mechanism, no_sasl_there)])
    words = "Invalid username or password", f"SASL {SCRAM} mechanism handshake failed", "SASL PLAIN mechanism handshake"
    for error, told in zip(found, words, strict=True):
        assert type(error) is AccessDenied
        assert told in error.what
        assert "topic a" in error.what
        assert "kafka.sasl.mechanism" in error.do
        no_secret_in(error, caplog.text)


def test_a_mechanism_that_the_client_was_built_without_is_a_wrong_option(secured: SecuredKafka) -> None:
    """The Java client's default, too."""
    for call in (stream, task):
        error = raised(call, secured.login("reader", sasl_mechanism="GSSAPI") | {"subscribe": "a"})
        assert type(error) is OptionError
        assert "No provider for SASL mechanism GSSAPI" in error.what
        no_secret_in(error)


def test_who_can_not_be_reached_and_why(secured: SecuredKafka, caplog: pytest.LogCaptureFixture) -> None:
    subscribe = {"subscribe": "a"}
    opened, closed = secured.kafka.bootstrap_servers, secured.kafka.second_servers
    cases = {
        "Connection refused": {"kafka.bootstrap.servers": "127.0.0.1:1"},
        "Failed to resolve 'no-such-host.invalid:9092'": {"kafka.bootstrap.servers": "no-such-host.invalid:9092"},
        "another kafka.security.protocol is expected": {"kafka.bootstrap.servers": closed},
        "SSL connection closed by peer": {"kafka.bootstrap.servers": opened, "kafka.security.protocol": "SSL"},
        "sasl_ssl://": secured.login("reader", security_protocol="SASL_SSL"),
    }
    soon = {"kafkaConsumer.pollTimeoutMs": "2000"}
    driver = [(stream, each | subscribe) for each in cases.values()]
    tasks = [(task, each | subscribe | soon) for each in cases.values()]
    by_pattern = secured.login("reader", sasl_password=WRONG_PASSWORD) | {"subscribePattern": "topic.*"}
    *found, not_let_in = all_at_once([*driver, *tasks, (stream, by_pattern)])
    assert type(not_let_in) is AccessDenied  # late, since listing all topics can't be cut short
    for error, told in zip(found, [*cases, *cases], strict=True):
        assert type(error) is BrokerUnreachable
        assert told in error.what
        assert "topic a" in error.what
        assert "kafka.security.protocol" in error.do
        no_secret_in(error, caplog.text)


@pytest.mark.parametrize("call", [stream, batch, task])
def test_a_topic_that_may_not_be_described(secured: SecuredKafka, log: Log, call) -> None:
    error = raised(call, secured.login("stranger") | {"subscribe": log.topic})
    assert type(error) is AccessDenied
    assert f"topic {log.topic}" in error.what
    assert "TOPIC_AUTHORIZATION_FAILED" in error.what
    assert "source needs Describe and Read on its topics" in error.do
    no_secret_in(error)


def test_a_topic_that_does_not_exist_looks_the_same_to_who_may_not_describe_it(secured: SecuredKafka) -> None:
    subscribe = {"subscribe": "no-such-topic"}
    error = raised(stream, secured.login("stranger") | subscribe)
    assert type(error) is AccessDenied
    assert "a topic that does not exist looks the same" in error.do
    assert type(raised(stream, secured.login("admin") | subscribe)) is TopicMissing


def test_a_topic_that_may_be_described_and_not_read(secured: SecuredKafka, log: Log) -> None:
    secured.allow("reader", ResourceType.TOPIC, log.topic, DESCRIBE)
    options = secured.login("reader") | {"subscribe": log.topic}
    assert stream(options)
    error = raised(task, options)
    assert type(error) is AccessDenied
    assert f"reading topic {log.topic}, partition 0, offsets 0 to 1" in error.what
    assert "TOPIC_AUTHORIZATION_FAILED" in error.what
    no_secret_in(error)


def test_a_source_needs_no_right_on_any_group(secured: SecuredKafka, log: Log) -> None:
    secured.allow("reader", ResourceType.TOPIC, log.topic, DESCRIBE, READ)
    options = secured.login("reader") | {"subscribe": log.topic}
    later = threading.Timer(1, log.plain, ["b"])
    later.start()
    # The second one comes after the client was told that it may not see its group, which is no record.
    assert task(options, end=2) == [b"a", b"b"]
    assert task(options | {"kafka.group.id": "not-mine"}) == [b"a"]
    later.join()


def test_the_offsets_of_a_group_that_may_not_be_described(secured: SecuredKafka, log: Log) -> None:
    secured.allow("reader", ResourceType.TOPIC, log.topic, DESCRIBE)
    group = f"group-of-{log.topic}"
    commit(log, group)
    at_group = {"subscribe": log.topic, "startingOffsets": "group", "kafka.group.id": group}
    reader = KafkaEosStreamReader(SourceOptions.of(secured.login("reader") | at_group))
    with pytest.raises(AccessDenied, match=f"committed offsets of group {group}.*Describe on the group") as caught:
        reader.initialOffset()
    no_secret_in(caught.value)
    secured.allow("reader", ResourceType.GROUP, group, DESCRIBE)
    assert reader.initialOffset()[log.topic]["0"] == 1


def test_the_ledger_of_a_group_that_may_not_be_described(secured: SecuredKafka, log: Log) -> None:
    secured.allow("reader", ResourceType.TOPIC, log.topic, DESCRIBE)
    group = f"group-of-{log.topic}"
    commit(log, group)
    client = SourceOptions.of(secured.login("reader") | {"subscribe": log.topic}).client
    ledger = LaneLedger(client, 1, log.topic, group)
    try:
        with pytest.raises(AccessDenied, match=f"committed offsets of group {group}") as caught:
            ledger.query()
    finally:
        ledger.close()
    no_secret_in(caught.value)


def commit(log: Log, group: str) -> None:
    consumer = Consumer({**log.client, "group.id": group})
    consumer.commit(offsets=[TopicPartition(log.topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_a_pattern_matches_what_may_be_described(secured: SecuredKafka, log: Log) -> None:
    hidden = secured.topic()
    secured.allow("reader", ResourceType.TOPIC, log.topic, DESCRIBE)
    pattern = {"subscribePattern": f"{log.topic}|{hidden.topic}"}
    reader = KafkaEosStreamReader(SourceOptions.of(secured.login("reader") | pattern))
    assert log.topic in reader.initialOffset()
    assert hidden.topic not in reader.initialOffset()
    error = raised(stream, secured.login("stranger") | pattern)
    assert type(error) is TopicMissing
    assert "among those that the client may describe" in error.what


def verify(secured: SecuredKafka, settings: Options, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`spark-eos verify` as a process, with its settings in a file."""
    names = {name.removeprefix("kafka."): value for name, value in settings.items()}
    del names["bootstrap.servers"]  # as options, this comes from the command line
    file.write_text("".join(f"{name}={value}\n" for name, value in names.items()))
    command = [sys.executable, "-m", "spark_eos.cli", "verify", "--command-config", str(file), "--json", *words]
    command += ["--bootstrap-servers", secured.kafka.second_servers]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=40)


def test_the_check_logs_in_with_the_settings_of_a_file(secured: SecuredKafka, log: Log, tmp_path: Path) -> None:
    copied, file = ["--input", log.topic, "--output", secured.topic().topic], tmp_path / "client.properties"
    more = ["--group", "no-group", "--watch", "0.5", "--java-reader"]
    done = verify(secured, secured.login("admin"), file, *copied, *more)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["anomalies"] == {"uncovered": 1}
    figures = json.loads(done.stdout)["figures"]
    assert [figures["rows seen by the live reader"], figures["rows read by Java's client"]] == [1, 1]

    done = verify(secured, secured.login("admin", sasl_password=WRONG_PASSWORD), file, *copied)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("can't check: ")
    assert "Invalid username or password" in done.stderr
    assert done.stderr.count("\n") == 1
    no_secret_in(None, done.stderr)

    done = verify(secured, secured.login("admin", sasl_mechansim="PLAIN"), file, *copied)
    assert done.returncode == 2
    assert 'No such configuration property: "sasl.mechansim"' in done.stderr
    no_secret_in(None, done.stderr)
