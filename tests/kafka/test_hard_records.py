"""Records that are hard to write, and queues and brokers that are slow: written right, or refused by name."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta, timezone
from functools import partial
from threading import Timer

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from frozen import broker_process, freeze
from spark_pipe import wait_for
from tests_support import Query, committed_messages, rows_of

from spark_eos.errors import BrokerUnreachable, RecordRefused, RecordTooLarge
from spark_eos.protocol.transaction import Outcome, Step
from spark_eos.testing import EmbeddedKafka

US = pa.timestamp("us", tz="UTC")
TEN_MB = 10_000_000


def written(query, *stream) -> list:
    """What a plain reader finds after a lane wrote these rows."""
    run = query.run()
    run.open(0, 1)
    assert query.lane(run, 0, stream).outcome is Outcome.COMMITTED
    return committed_messages(query.bootstrap, query.topic)


def refused(query, kind, says, *stream) -> None:
    run = query.run()
    run.open(0, 1)
    with pytest.raises(kind, match=says) as raised:
        query.lane(run, 0, stream)
    assert raised.value.do
    assert query.values() == []


@pytest.fixture
def one(query, topic) -> Query:
    """A query that writes to a topic with one partition, so that the order tells which record is which."""
    return query.but(topic=topic())


def test_null_is_not_empty_in_keys_values_and_headers(one):
    headers = pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b""}], [], None, None])
    rows = rows_of(
        [None, "", None, ""],
        key=pa.array([b"tombstone", None, b"", b"k"], pa.binary()),
        headers=headers,
    )
    found = [(message.key(), message.value(), message.headers()) for message in written(one, rows)]
    assert found == [
        (b"tombstone", None, [("h", None), ("h", b"")]),
        (None, b"", None),
        (b"", None, None),
        (b"k", b"", None),
    ]


def test_text_is_written_as_utf8_and_what_spark_cast_from_other_bytes_stays_those_bytes(one):
    strange = pa.array([b"\xff\x00\xc3", "łódź 🚀".encode()])
    as_text = pa.Array.from_buffers(pa.string(), len(strange), strange.buffers())
    large = pa.array(["ß"], pa.large_string())
    found = written(one, rows_of("xx", key=as_text, value=as_text), rows_of("x", key=large, value=large))
    assert [m.key() for m in found] == [m.value() for m in found] == [*strange.to_pylist(), "ß".encode()]


def test_timestamps_are_kept_to_the_millisecond_and_null_is_now(one):
    now = datetime.now(timezone.utc)
    then = [datetime(1969, 7, 20, tzinfo=timezone.utc), datetime(2001, 9, 9, 1, 46, 40, 999000, timezone.utc), None]
    times = [message.timestamp()[1] for message in written(one, rows_of("abc", timestamp=pa.array(then, US)))]
    assert times[:2] == [round(each.timestamp() * 1000) for each in then[:2]]
    assert times[2] >= int(now.timestamp() * 1000)


def test_a_record_that_a_broker_finds_not_valid_is_refused_with_what_to_look_at(one, query, topic):
    ahead = datetime.now(timezone.utc) + timedelta(days=2)
    refused(one, RecordRefused, "INVALID_TIMESTAMP", rows_of("ab", timestamp=pa.array([None, ahead], US)))
    compacted = query.but(topic=topic(config={"cleanup.policy": "compact"}), query=query.query + "-compacted")
    refused(compacted, RecordRefused, "INVALID_RECORD", rows_of("ab", key=pa.array([b"k", None])))


def test_ten_megabytes_are_written_where_client_and_topic_allow_them_and_else_refused_by_name(query, topic):
    rows = rows_of(["x" * TEN_MB, "y" * TEN_MB], key=pa.array([b"k1", b"k2"]))
    wide = {"message.max.bytes": str(TEN_MB + 1000)}
    large = topic(config={"max.message.bytes": str(TEN_MB + 1000)})
    found = written(query.but(topic=large, client=wide), rows)
    assert [(m.key(), m.value()[:1], len(m.value())) for m in found] == [(b"k1", b"x", TEN_MB), (b"k2", b"y", TEN_MB)]
    says = rf"key 'k1' has {TEN_MB + 2} bytes"
    for number, each in enumerate((query.but(topic=topic()), query.but(topic=topic(), client=wide))):
        refused(each.but(query=f"{query.query}-{number}"), RecordTooLarge, says, rows)


def test_a_batch_too_large_for_its_topic_is_told_from_a_record_that_is(query, topic):
    small = query.but(topic=topic(config={"max.message.bytes": "2000"}))
    rows = rows_of("x" * 50 for _ in range(200))
    refused(small, RecordTooLarge, r"a batch of records for .* is larger than 2000 bytes", rows)
    assert len(written(small.but(client={"batch.size": "2000"}), rows)) == 200


def hundred_topics(query, name: str) -> list[str]:
    topics = [f"{query.query}-{name}-{number:02}" for number in range(100)]
    for made in query.cluster.admin.create_topics([NewTopic(name, 1) for name in topics]).values():
        made.result()
    return topics


def test_a_hundred_topics_are_one_transaction(query):
    topics = hundred_topics(query, "t")
    seen_before = []

    def look(step: Step) -> None:
        if step is Step.COMMIT:
            seen_before.append(stable_ends(query, topics))

    run = query.run()
    run.open(0, 1)
    query.lane(run, 0, [rows_of(topics * 2, topic=pa.array(topics * 2))], before_step=look)
    assert seen_before == [[0] * 100]
    reader = Consumer({"bootstrap.servers": query.bootstrap, "group.id": "test", "isolation.level": "read_committed"})
    reader.assign([TopicPartition(name, 0, 0) for name in topics])
    found = [(message.topic(), message.value().decode()) for message in reader.consume(200, 30)]
    reader.close()
    assert sorted(found) == sorted(zip(topics * 2, topics * 2, strict=True))


def stable_ends(query, topics) -> list[int]:
    """Up to which offset a read_committed reader sees each of these topics now."""
    asked = {TopicPartition(name, 0): OffsetSpec.latest() for name in topics}
    found = query.cluster.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    return [each.result().offset for each in found.values()]


def test_no_row_is_lost_while_partitions_find_their_leaders(query):
    """Brokers refuse some of the first batches for topics that were just made, and more are on their way.

    With several requests in flight librdkafka took the refused ones for written: 2 of 3 runs of this test lost a row.
    """
    run = query.run()
    for batch in range(5):
        topics = hundred_topics(query, str(batch))
        query.batch(run, batch, [[rows_of(topics * 2, topic=pa.array(topics * 2))]])
        wait_for(partial(all_are_stable, query, topics), 15)


def all_are_stable(query, topics) -> bool:
    """Whether each topic has its two rows and their marker."""
    return stable_ends(query, topics) == [3] * len(topics)


def test_a_queue_that_is_always_full_delays_rows_and_loses_none(query):
    for number, tiny in enumerate(({"queue.buffering.max.messages": "2"}, {"queue.buffering.max.kbytes": "1"})):
        narrow = query.but(client=tiny, topic=query.topic, query=f"{query.query}-{number}")
        written(narrow, rows_of(f"{number}-{i:03}".ljust(400) for i in range(100)))
    assert query.values() == [f"{number}-{i:03}".ljust(400) for number in range(2) for i in range(100)]


@pytest.fixture(scope="module")
def own_kafka():
    with EmbeddedKafka() as broker:
        broker.create_topic("out")
        yield broker


def test_a_broker_that_pauses_holds_the_rows_up_before_they_fill_memory(own_kafka, query_id):
    query = Query(own_kafka.bootstrap_servers, query_id, "out", client={"queue.buffering.max.messages": "50"})
    broker, pulled = broker_process(own_kafka), []
    at_the_end = []

    def go_on() -> None:
        at_the_end.append(len(pulled))
        broker.send_signal(signal.SIGCONT)

    def stream():
        for number in range(500):
            if number == 100:
                freeze(broker)
                Timer(1, go_on).start()
            pulled.append(number)
            yield rows_of([number])

    run = query.run()
    run.open(0, 1)
    query.lane(run, 0, stream())
    # What was taken from Spark while nothing could be delivered: a full queue, and the row that waits for room.
    assert 100 < at_the_end[0] <= 100 + 50 + 1
    assert sorted(map(int, query.values())) == list(range(500))


def test_rows_that_cannot_be_delivered_in_time_say_which_time_and_what_to_raise(own_kafka, query_id):
    client = {"queue.buffering.max.messages": "50", "transaction.timeout.ms": "2000"}
    query = Query(own_kafka.bootstrap_servers, query_id, "out", client=client, call_timeout_s=2)
    broker, run, before = broker_process(own_kafka), query.run(), query.values()
    run.open(0, 1)

    def stream():
        yield rows_of("a")
        freeze(broker)
        yield rows_of(range(500))

    try:
        with pytest.raises(BrokerUnreachable, match=r"not delivered within 2000 ms.*message\.timeout\.ms") as told:
            query.lane(run, 0, stream())
    finally:
        broker.send_signal(signal.SIGCONT)
    assert "raise kafka.transaction.timeout.ms" in told.value.do
    assert query.but(call_timeout_s=30).lane(run, 0, [rows_of("ab")]).outcome is Outcome.COMMITTED
    assert query.values() == sorted([*before, "a", "b"])
