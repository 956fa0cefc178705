"""The checker's second reader, Kafka's own client: it reads what librdkafka reads. Where it does not, that is found."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from copy_program import Copy

from spark_eos.checker import CannotCheck, JavaReader
from spark_eos.checker.rows import Place, Rows, rows_of
from spark_eos.checker.topic_log import Topics

PATIENCE_S = 20


def test_every_byte_of_a_record_is_read(kafka, topic) -> None:
    log = topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    hard = [None, b"", b"\x00\xff\n\t", b"null", "ü€".encode(), b"x" * 200_000]
    for number, part in enumerate(hard):
        producer.produce(log, part, b"key", 0, timestamp=1_760_000_000_000 + number)
        producer.produce(log, b"value", part, 1, headers=[("ü:,\n", part), ("", b""), ("again", part), ("again", b"2")])
    assert producer.flush(10) == 0
    topics = Topics(kafka.bootstrap_servers, (log,))
    starts, ends = topics.starts(), topics.stable_ends()
    read = JavaReader(kafka.bootstrap_servers).read(starts, ends, PATIENCE_S)
    assert read == rows_of(topics.messages())
    assert [len(read[log, partition]) for partition in (0, 1)] == [len(hard)] * 2
    assert JavaReader(kafka.bootstrap_servers).read(ends, ends, PATIENCE_S) == {}


def test_rows_of_aborted_transactions_are_not_read(copy: Copy) -> None:
    copy.write(copy.rows[:3], commit=False)
    copy.write(copy.rows)
    copy.done()
    reader = JavaReader(copy.bootstrap)
    findings = copy.check(java_reader=reader)
    assert findings.anomalies == {}
    assert findings.figures["rows read by Java's client"] == 2 * len(copy.rows)
    reader._settings["isolation.level"] = "read_uncommitted"
    assert copy.check(java_reader=reader).anomalies == {"readers-differ": 6}


def other_content(rows: Rows) -> None:
    rows.digests[3] ^= 1


def one_less(rows: Rows) -> None:
    rows.offsets.pop(), rows.digests.pop()


def one_more(rows: Rows) -> None:
    rows.add(rows.offsets[-1] + 7, 1)


def elsewhere(rows: Rows) -> None:
    rows.offsets[-1] += 1


class Tampered(JavaReader):
    """Of a partition it tells something else than Java did."""

    def __init__(self, copy: Copy, tamper: Callable[[Rows], None]) -> None:
        super().__init__(copy.bootstrap)
        self.place, self.tamper = (copy.outputs[1], 0), tamper

    def read(self, *asked: Mapping[Place, int] | float) -> dict[Place, Rows]:
        found = super().read(*asked)
        self.tamper(found[self.place])
        return found


@pytest.mark.parametrize(("tamper", "times"), [(other_content, 1), (one_less, 1), (one_more, 1), (elsewhere, 2)])
def test_a_difference_between_the_readers_is_found(copy: Copy, tamper: Callable[[Rows], None], times: int) -> None:
    copy.write(copy.rows)
    copy.done()
    findings = copy.check(java_reader=Tampered(copy, tamper))
    assert findings.anomalies == {"readers-differ": times}
    assert all(example.startswith(f"{copy.outputs[1]}[0]@") for example in findings.examples["readers-differ"])


def test_a_partition_that_only_one_reader_read_is_found(copy: Copy) -> None:
    copy.write(copy.rows)
    copy.done()
    reader = Tampered(copy, lambda rows: None)
    reader.read = lambda *asked: {}
    assert copy.check(java_reader=reader).anomalies == {"readers-differ": 2 * len(copy.rows)}


def test_a_reader_that_can_not_go_on_says_why(copy: Copy) -> None:
    copy.write(copy.rows)
    place = copy.outputs[0], 0
    reader = JavaReader(copy.bootstrap)
    for start in (0, 999):  # there, and out of range
        with pytest.raises(CannotCheck, match=r"Java's client could not read: nothing came for 0.5 s"):
            reader.read({place: start}, {place: 1000}, 0.5)
    reader._settings["security.protocol"] = "NONE"
    with pytest.raises(CannotCheck, match=r"Java's client could not read: .*security\.protocol"):
        reader.read({place: 0}, {place: 1}, 1)


def test_a_reader_that_dies_in_the_middle_is_an_error(copy: Copy) -> None:
    place = copy.outputs[0], 0
    reader = JavaReader(copy.bootstrap)
    record = struct.pack(">iqqi", 0, 0, 0, 100) + b"the first bytes of a hundred"
    dies = "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(%r); sys.exit('out of memory')"
    for answer in (b"", record):
        reader._command = [sys.executable, "-c", dies % answer]
        with pytest.raises(CannotCheck, match="Java's client could not read: out of memory"):
            reader.read({place: 0}, {place: 1}, 1)


def test_the_command_has_both_readers_or_none(copy: Copy, tmp_path) -> None:
    copy.write(copy.rows)
    asked = ["--bootstrap-servers", copy.bootstrap, "--input", copy.source, "--json", "--java-reader"]
    asked += [part for output in copy.outputs for part in ("--output", output)]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spark_eos.checker", *asked, *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    done = run("--timestamps")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert found["anomalies"] == {"lost": len(copy.rows), "foreign": 2 * len(copy.rows)}
    assert found["figures"]["readers-differ"] == 0
    file = tmp_path / "client.properties"
    file.write_text("socket.timeout.ms=1000\n")
    refused = run("--command-config", str(file), "--watch", "1000")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "can't check: the reader in Java can't be given socket.timeout.ms\n"
