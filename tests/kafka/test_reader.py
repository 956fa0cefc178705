"""Reading ranges from a real broker: every kind of tail, every kind of loss."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka_log import Log, until

from spark_eos.errors import BrokerUnreachable, DataLoss, OptionError
from spark_eos.kafka.arrow import arrow_schema
from spark_eos.kafka.listing import Listing
from spark_eos.kafka.offsets import OffsetRange
from spark_eos.kafka.reader import FIRST_ASK_ROWS, MAX_BATCH_BYTES, MAX_BATCH_ROWS, _RangeReader, read_ranges

NOWHERE = Log("127.0.0.1:1", "a", patience_s=1)
SOMETHING = OffsetRange("a", 0, 0, 1)


def test_no_broker_is_said_so() -> None:
    with pytest.raises(BrokerUnreachable, match="topic a, partition 0, offsets 0 to 1"):
        list(read_ranges(NOWHERE.options(), [SOMETHING]))


def test_a_setting_that_the_client_does_not_know_is_named() -> None:
    wrong = NOWHERE.options(**{"kafka.no.such.setting": "1"})
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        Listing(wrong.client, wrong.subscription).holdings()
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        list(read_ranges(wrong, [SOMETHING]))


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

    until(compacted)
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
    log.patience_s = 1.5
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
    reader = _RangeReader(log.options())
    reader.begin(OffsetRange(log.topic, 0, 0, 9))
    try:
        until(lambda: reader.next(10) == [] and reader._fetched == 4)
    finally:
        reader.close()


def test_a_reader_that_is_given_up_half_way_closes(log: Log) -> None:
    log.plain(*[str(i) for i in range(2 * FIRST_ASK_ROWS)])
    wanted = OffsetRange(log.topic, 0, 0, 2 * FIRST_ASK_ROWS)
    batches = read_ranges(log.options(), [wanted])
    threads = threading.active_count()
    next(batches)
    batches.close()
    assert threading.active_count() == threads
    with pytest.raises(StopIteration):
        next(batches)
