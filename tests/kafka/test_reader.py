"""The source's Kafka side on a real broker: what partitions hold, and ranges with every kind of tail."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from spark_eos.errors import BrokerUnreachable, DataLoss, OptionError, TopicMissing
from spark_eos.kafka.offsets import Bounds, OffsetRange
from spark_eos.kafka.reader import (
    FIRST_ASK_ROWS,
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    Listing,
    _RangeReader,
    arrow_schema,
    read_range,
)

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "1000"}
SOMETHING = OffsetRange("a", 0, 0, 1)


@dataclass
class Log:
    """One partition, written to record by record, as the tests need it."""

    bootstrap: str
    topic: str
    patience_ms: str = "10000"

    @property
    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": self.patience_ms}

    def plain(self, *values: str | None, **columns: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(self.topic, value, partition=0, **columns)
        assert producer.flush(10) == 0

    @contextmanager
    def transaction(self, *values: str) -> Iterator[Producer]:
        """An open transaction with these records in the log; aborted at the end if it is still open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(10) == 0
        yield producer

    def committed(self, *values: str) -> None:
        with self.transaction(*values) as producer:
            producer.commit_transaction(10)
        self.settle()

    def aborted(self, *values: str) -> None:
        with self.transaction(*values) as producer:
            producer.abort_transaction(10)
        self.settle()

    def settle(self) -> None:
        """Wait for the marker: a coordinator answers before it has written the markers to the partitions."""
        _until(lambda: self.bounds().end == self.high_watermark())

    def high_watermark(self) -> int:
        partition = TopicPartition(self.topic, 0)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(10).offset

    def delete_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = admin.delete_records([TopicPartition(self.topic, 0, offset)])
        assert [future.result(10).low_watermark for future in asked.values()] == [offset]

    def bounds(self) -> Bounds:
        return Listing(self.client, [self.topic]).bounds({})[self.topic, 0]

    def batches(self, start: int, end: int, *, headers: bool = False, fail: bool = True) -> list[pa.RecordBatch]:
        wanted = OffsetRange(self.topic, 0, start, end)
        return list(read_range(self.client, wanted, headers=headers, fail_on_data_loss=fail))

    def read(self, start: int, end: int, *, fail: bool = True) -> list[str]:
        return [v.decode() for batch in self.batches(start, end, fail=fail) for v in batch.column("value").to_pylist()]


@pytest.fixture
def log(kafka, topic: Callable[..., str]) -> Log:
    return Log(kafka.bootstrap_servers, topic())


def test_bounds_end_at_the_last_stable_offset(log: Log) -> None:
    log.committed("a", "b")  # offsets 0, 1; 2 is the commit marker
    with log.transaction("c") as producer:
        log.plain("d")
        assert log.bounds() == Bounds(0, 3)
        producer.abort_transaction(10)
    log.settle()
    assert log.bounds() == Bounds(0, 6)


def test_bounds_start_where_records_are_left(log: Log) -> None:
    log.plain("a", "b", "c")
    log.delete_before(2)
    assert log.bounds() == Bounds(2, 3)


def test_bounds_of_all_partitions_of_all_topics(kafka, topic: Callable[..., str]) -> None:
    names = sorted([topic(2), topic(1)])
    listing = Listing({"bootstrap.servers": kafka.bootstrap_servers}, names)
    found = listing.bounds({})
    assert len(found) == 3
    assert sorted(found) == list(found)
    assert set(found.values()) == {Bounds(0, 0)}


def test_a_topic_that_is_missing_is_said_so_and_never_created(kafka) -> None:
    name = f"missing-{uuid.uuid4().hex[:8]}"
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    for _ in range(2):
        with pytest.raises(TopicMissing, match=f"topic {name} does not exist"):
            Listing(client, [name]).bounds({})
    assert name not in AdminClient(client).list_topics(timeout=10).topics
    # Known to the checkpoint: it is for the caller to call that data loss.
    assert Listing(client, [name]).bounds({(name, 0): 3}) == {}


def test_no_broker_is_said_so() -> None:
    with pytest.raises(BrokerUnreachable, match="topic a, partition 0, offsets 0 to 1"):
        list(read_range(NOWHERE, SOMETHING, headers=False, fail_on_data_loss=True))


def test_a_setting_that_the_client_does_not_know_is_named() -> None:
    wrong = NOWHERE | {"no.such.setting": "1"}
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        Listing(wrong, ["a"]).bounds({})
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        list(read_range(wrong, SOMETHING, headers=False, fail_on_data_loss=True))


def test_a_range_is_read_from_its_start_to_before_its_end(log: Log) -> None:
    log.plain("a", "b", "c", "d")
    assert log.read(0, 4) == ["a", "b", "c", "d"]
    assert log.read(1, 3) == ["b", "c"]
    assert log.read(3, 4) == ["d"]


def test_columns(log: Log) -> None:
    log.plain("v", key="k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    log.plain(None)
    batches = log.batches(0, 2, headers=True)
    assert batches[0].schema == arrow_schema(headers=True)
    first, second = pa.Table.from_batches(batches).to_pylist()
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert {k: first[k] for k in first if k != "timestamp"} == {
        "key": b"k",
        "value": b"v",
        "topic": log.topic,
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)
    assert log.batches(0, 2)[0].schema == arrow_schema(headers=False)


def test_the_time_of_the_broker_is_told_apart(kafka, topic: Callable[..., str]) -> None:
    log = Log(kafka.bootstrap_servers, topic(config={"message.timestamp.type": "LogAppendTime"}))
    log.plain("a")
    assert log.batches(0, 1)[0].column("timestampType").to_pylist() == [1]


@pytest.mark.parametrize("end", [3, 4, 7, 8, 9])
def test_aborted_and_control_records_at_the_tail_are_passed_over(log: Log, end: int) -> None:
    log.committed("a", "b")  # 0, 1; 2 is the marker
    log.aborted("x", "y", "z")  # 3 to 5; 6 is the marker
    log.committed("c")  # 7; 8 is the marker
    assert log.read(0, end) == ["a", "b", "c"][: 2 if end <= 7 else 3]


def test_a_range_of_nothing_but_aborted_records(log: Log) -> None:
    log.aborted("x", "y", "z")
    assert log.read(0, 4) == []
    assert log.read(1, 2) == []
    assert log.read(3, 4) == []


@pytest.mark.parametrize("end", [3, 4, 6, 7])
def test_a_tail_below_an_open_transaction(log: Log, end: int) -> None:
    """No record at or beyond the end can show while the transaction is open: the end of what is stable has to do."""
    log.committed("a", "b")  # 0, 1; 2 is the marker
    log.aborted("x", "y", "z")  # 3 to 5; 6 is the marker
    with log.transaction("open") as producer:
        log.plain("beyond")
        assert log.bounds().end == 7
        assert log.read(0, end) == ["a", "b"]
        assert log.read(2, end) == []
        producer.abort_transaction(10)


def test_a_transaction_within_the_range_that_was_aborted_later(log: Log) -> None:
    with log.transaction("x") as producer:
        log.plain("a")
        producer.abort_transaction(10)
    log.settle()
    assert log.read(0, log.bounds().end) == ["a"]


def test_a_range_that_starts_within_an_aborted_transaction(log: Log) -> None:
    log.aborted("x", "y", "z")
    log.committed("a")
    assert log.read(1, 6) == ["a"]


def test_a_tail_that_was_compacted_away(kafka, topic: Callable[..., str]) -> None:
    """The last offset of a range may be no record any more, and no marker either."""
    log = Log(kafka.bootstrap_servers, topic(config=COMPACT_SOON))
    look_often(kafka.bootstrap_servers)
    log.plain("a0", "a1", "a2", key="a")  # 0 to 2
    log.plain("b0", "b1", "b2", key="b")  # 3 to 5

    def compacted() -> bool:
        log.plain("roll", key="roll")  # the segment that is written to is never compacted
        return log.read(0, 6) == ["a2", "b2"]

    _until(compacted)
    assert log.read(0, 5) == ["a2"]
    assert log.read(0, 2) == []
    assert log.read(3, 5) == []


COMPACT_SOON = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0001", "segment.ms": "100"}


def look_often(bootstrap: str) -> None:
    """Let the broker look every 200 ms, not every 15 s, whether there is something to compact."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    node = admin.describe_cluster().result(10).nodes[0]
    broker = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(10)


def test_batches_are_bounded_in_rows(log: Log) -> None:
    log.plain(*[str(i) for i in range(3 * MAX_BATCH_ROWS)])
    batches = log.batches(0, 3 * MAX_BATCH_ROWS)
    assert max(batch.num_rows for batch in batches) <= MAX_BATCH_ROWS
    assert batches[0].num_rows <= FIRST_ASK_ROWS
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(3 * MAX_BATCH_ROWS))


def test_batches_are_bounded_in_bytes(log: Log) -> None:
    values = ["x" * 500_000] * 120
    log.plain(*values)
    batches = log.batches(0, len(values))
    assert sum(batch.num_rows for batch in batches) == len(values)
    assert all(batch.nbytes <= 1.1 * MAX_BATCH_BYTES for batch in batches[1:])


def test_the_head_of_a_range_that_is_gone_is_data_loss(log: Log) -> None:
    log.plain("a", "b", "c", "d")
    log.delete_before(2)
    with pytest.raises(DataLoss, match=f"topic {log.topic}, partition 0, offsets 1 to 4: offset 1 is not there"):
        log.read(1, 4)
    assert log.read(1, 4, fail=False) == ["c", "d"]
    assert log.read(2, 4) == ["c", "d"]


def test_a_range_that_is_all_gone(log: Log) -> None:
    log.plain("a", "b", "c", "d")
    log.delete_before(3)
    with pytest.raises(DataLoss, match="offset 0 is not there"):
        log.read(0, 2)
    assert log.read(0, 2, fail=False) == []
    # Beyond what the topic (created again) holds.
    with pytest.raises(DataLoss, match="offset 10 is not there"):
        log.read(10, 12)
    assert log.read(10, 12, fail=False) == []


def test_a_range_that_ends_beyond_what_is_there(log: Log) -> None:
    log.plain("a", "b")
    log.patience_ms = "1500"
    with pytest.raises(DataLoss, match="the partition ends at 2"):
        log.read(0, 4)
    assert log.read(0, 4, fail=False) == ["a", "b"]


def test_a_range_is_waited_for_while_its_end_is_not_stable_yet(log: Log) -> None:
    """As after a change of leaders: the new one learns a moment later how far everything is stable."""
    with log.transaction("a", "b") as producer:
        later = threading.Timer(0.5, producer.commit_transaction, [10])
        later.start()
        assert log.read(0, 2) == ["a", "b"]
        later.join()


def test_a_long_stretch_of_aborted_records_counts_as_progress(log: Log) -> None:
    """Nothing of it reaches the reader but the client's statistics."""
    log.aborted("x", "y", "z")
    reader = _RangeReader(log.client, OffsetRange(log.topic, 0, 0, 9), fail_on_data_loss=True)
    try:
        _until(lambda: reader.next(10) == [] and reader._fetched == 4)
    finally:
        reader.close()


def test_looking_up_outlives_a_restart_of_the_broker(kafka, log: Log) -> None:
    log.plain("a")
    listing = Listing(log.client, [log.topic])
    assert listing.bounds({}) == {(log.topic, 0): Bounds(0, 1)}
    kafka.stop_broker(0)
    coming = threading.Thread(target=kafka.restart, args=[0])
    coming.start()
    try:
        assert listing.bounds({}) == {(log.topic, 0): Bounds(0, 1)}
    finally:
        coming.join()


def test_a_second_look_before_data_loss(log: Log) -> None:
    """The checkpoint's offset is above the end that is stable now, and below the one of a moment later."""
    with log.transaction("a", "b") as producer:
        later = threading.Timer(0.3, producer.commit_transaction, [10])
        later.start()
        assert Listing(log.client, [log.topic]).bounds({(log.topic, 0): 2}) == {(log.topic, 0): Bounds(0, 3)}
        later.join()


def test_a_reader_that_is_given_up_half_way_closes(log: Log) -> None:
    log.plain(*[str(i) for i in range(2 * FIRST_ASK_ROWS)])
    wanted = OffsetRange(log.topic, 0, 0, 2 * FIRST_ASK_ROWS)
    reading = read_range(log.client, wanted, headers=False, fail_on_data_loss=True)
    threads = threading.active_count()
    next(reading)
    reading.close()
    assert threading.active_count() == threads
    with pytest.raises(StopIteration):
        next(reading)


def _until(holds: Callable[[], bool], limit_s: float = 60) -> None:
    pause = threading.Event()
    for _ in range(int(limit_s / 0.1)):
        if holds():
            return
        pause.wait(0.1)
    pytest.fail("it never came to that")
