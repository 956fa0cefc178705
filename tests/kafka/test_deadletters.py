"""Rows that can't be written: in the dead letter topic with the reason, in the lane's transaction, and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pytest
from tests_support import Query, committed_messages, rows_of

from spark_eos.errors import RecordTooLarge
from spark_eos.kafka.deadletters import DeadLetters
from spark_eos.kafka.sizes import batch_size
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.ports import LanePorts
from spark_eos.protocol.transaction import LaneReport, Outcome, Step, run_lane

LIMIT = 20_000
"""max.message.bytes of narrow topics: above what is sent unlooked-at, below what the client takes."""


@dataclass
class Lanes:
    """Lane 0 of batch 0, attempt by attempt; its dead letters have a topic."""

    query: Query
    dead_topic: str

    def __post_init__(self) -> None:
        self.run = self.query.run()
        self.run.open(0, 1)
        self.known = self.query.cluster.require([self.query.topic, self.dead_topic], "a test")

    def write(self, *rows, before_step=lambda step: None) -> LaneReport:
        task = LaneTask(self.run.run, 0, 0, 1, attempt=0)
        letters = DeadLetters(self.dead_topic, task)
        ports = LanePorts(self.query.ledger, partial(self.query.factory.open, topics=self.known, letters=letters), 60.0)
        return run_lane(task, map(self.query.to_topic, rows), ports, before_step=before_step)

    def letters(self, isolation="read_committed"):
        return committed_messages(self.query.bootstrap, self.dead_topic, isolation)


@pytest.fixture
def lanes(query, topic) -> Lanes:
    return Lanes(query, topic(2, name="dead"))


@pytest.fixture
def narrow(query, topic):
    """Lanes that write to a topic with a limit, with settings of the client."""

    def make(dead_limit: int = 1_000_000, **client: str) -> Lanes:
        dead = topic(name="dead", config={"max.message.bytes": str(dead_limit)})
        settings = {name.replace("_", "."): value for name, value in client.items()}
        limited = topic(config={"max.message.bytes": str(LIMIT)})
        return Lanes(query.but(topic=limited, client=settings), dead)

    return make


def told(letter) -> dict[str, str]:
    """The headers that say why it is here."""
    return {name: value.decode() for name, value in letter.headers() if name.startswith("spark-eos.")}


def text(value):
    return pa.array([value], pa.string())


HEADERS = pa.array([[{"key": "trace", "value": b"7"}, {"key": "none", "value": None}]])
NO_KEY = pa.array([[{"key": "trace", "value": b"7"}, {"key": None, "value": b"x"}, {"key": "none", "value": None}]])
REASONS = [
    ("NullTopic", {"topic": text(None)}, "has no topic", {}),
    ("TopicMissing", {"topic": text("no-such")}, "topic no-such does not exist", {"spark-eos.topic": "no-such"}),
    ("TopicMissing", {"topic": text("é" * 600)}, "does not exist", {"spark-eos.topic": "é" * 249}),
    ("PartitionOutOfRange", {"partition": pa.array([3], pa.int32())}, "which has 3", {"spark-eos.partition": "3"}),
    ("PartitionOutOfRange", {"partition": pa.array([-1], pa.int32())}, "partition -1", {"spark-eos.partition": "-1"}),
    ("HeaderWithoutKey", {"headers": NO_KEY}, "header without a key", {}),
]


@pytest.mark.parametrize(("reason", "columns", "says", "asked"), REASONS)
def test_a_row_that_cannot_be_written_is_a_dead_letter_as_it_was_with_the_reason(
    lanes, topic, reason, columns, says, asked
):
    source = topic(4, name="settlements")
    bad = rows_of("b", (source, 3, 17), **({"headers": HEADERS, "key": text("schlüssel")} | columns))
    report = lanes.write(rows_of("a"), bad, rows_of("c"))
    assert (report.outcome, report.dead, report.fingerprint.rows) == (Outcome.COMMITTED, 1, 3)
    assert LaneReport.from_json(report.to_json()) == report
    assert lanes.query.values() == ["a", "c"]
    (letter,) = lanes.letters()
    assert (letter.key(), letter.value()) == ("schlüssel".encode(), b"b")
    assert letter.headers()[:2] == [("trace", b"7"), ("none", None)]
    why = told(letter)
    assert says in why.pop("spark-eos.message")
    to = {} if "topic" in columns else {"spark-eos.topic": lanes.query.topic}
    assert why == to | asked | {
        "spark-eos.reason": reason,
        "spark-eos.source": f"{source}-3@17",
        "spark-eos.query": lanes.query.query,
        "spark-eos.batch": "0",
        "spark-eos.lane": "0",
    }


def test_of_a_record_too_large_for_the_client_the_dead_letter_has_what_fits_and_says_what_it_had(lanes):
    large = pa.array([b"x" * 1_100_000])
    report = lanes.write(rows_of(["a", "b" * 1_100_000], key=pa.array([b"1", b"2"])), rows_of("c", key=large))
    assert report.dead == 2
    assert lanes.query.values() == ["a"]
    letters = lanes.letters()
    left = {(each.key(), each.value(), told(each)["spark-eos.omitted"]): told(each) for each in letters}
    assert left.keys() == {(b"2", None, "value"), (None, None, "key, value, headers")}
    assert all(why["spark-eos.reason"] == "RecordTooLarge" for why in left.values())
    assert all(why["spark-eos.size"] == "1100001" for why in left.values())


def test_a_record_larger_than_the_clients_queue_can_ever_hold_is_not_waited_for(query, topic):
    lanes = Lanes(query.but(client={"queue.buffering.max.kbytes": "4"}), topic(name="dead"))
    assert lanes.write(rows_of(["a", "b" * 5000, "c"])).dead == 1
    assert lanes.query.values() == ["a", "c"]
    (letter,) = lanes.letters()
    assert (letter.value(), told(letter)["spark-eos.omitted"]) == (None, "value")


def test_a_record_is_a_dead_letter_from_the_first_byte_that_its_topic_refuses(narrow):
    key, headers = pa.array([b"k", None]), pa.array([[{"key": "ü", "value": b"1"}, {"key": "n", "value": None}], []])
    most = [LIMIT - batch_size(b"k", b"", [("ü", b"1"), ("n", None)]) - 4, LIMIT - batch_size(None, b"", None) - 4]
    fitting = [rows_of(["x" * size], key=key[i : i + 1], headers=headers[i : i + 1]) for i, size in enumerate(most)]
    beyond = [rows_of(["y" * (s + 1)], key=key[i : i + 1], headers=headers[i : i + 1]) for i, s in enumerate(most)]
    lanes = narrow(batch_size=str(LIMIT))
    assert lanes.write(*fitting, *beyond).dead == 2
    assert sorted(map(len, lanes.query.values())) == sorted(most)
    letters = lanes.letters()
    assert sorted(len(letter.value()) for letter in letters) == sorted(size + 1 for size in most)
    assert all(f"{LIMIT} (max.message.bytes" in told(letter)["spark-eos.message"] for letter in letters)
    assert not any("spark-eos.omitted" in told(letter) for letter in letters)


def test_a_value_that_the_dead_letter_topic_would_refuse_is_left_out(narrow):
    lanes = narrow(dead_limit=LIMIT)
    assert lanes.write(rows_of(["b" * 2 * LIMIT], key=pa.array([b"k"]))).dead == 1
    (letter,) = lanes.letters()
    assert (letter.key(), letter.value(), told(letter)["spark-eos.size"]) == (b"k", None, str(2 * LIMIT + 1))


def test_with_compression_the_broker_decides_and_its_no_aborts_the_lane_by_name(narrow):
    lanes = narrow(compression_type="zstd", batch_size=str(LIMIT))
    noise, where = os.urandom(2 * LIMIT).hex(), text(lanes.query.topic)
    with pytest.raises(RecordTooLarge, match=rf"for {lanes.query.topic} with key 'noise' has {4 * LIMIT + 5} bytes"):
        lanes.write(rows_of("a", topic=text(None)), rows_of([noise], key=text("noise"), topic=where))
    assert (lanes.query.values(), lanes.letters()) == ([], [])
    assert lanes.write(rows_of(["b" * 2 * LIMIT])).dead == 0
    assert lanes.query.values() == ["b" * 2 * LIMIT]


def test_dead_letters_are_seen_once_and_only_with_the_lanes_other_rows(lanes):
    class Crash(BaseException):
        """A killed process, as near as one process can."""

    def crash(step: Step) -> None:
        if step is Step.COMMIT:
            raise Crash

    stream = rows_of("a"), rows_of("b", topic=text(None))
    with pytest.raises(Crash):
        lanes.write(*stream, before_step=crash)
    assert len(lanes.letters("read_uncommitted")) == 1
    assert (lanes.write(*stream).outcome, lanes.write(*stream).outcome) == (Outcome.COMMITTED, Outcome.SKIPPED)
    assert lanes.query.values() == ["a"]
    assert [letter.value() for letter in lanes.letters()] == [b"b"]


def test_topics_and_partitions_made_after_the_query_started_are_no_reason(lanes, topic):
    lanes.known[lanes.query.topic] = 1
    later = topic(name="later")
    report = lanes.write(rows_of("a", partition=pa.array([2], pa.int32())), rows_of("b", topic=text(later)))
    assert report.dead == 0
    assert (lanes.query.values(), lanes.query.values(later)) == (["a"], ["b"])
