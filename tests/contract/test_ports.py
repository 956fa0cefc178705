"""The ports themselves, call by call: what `spark_eos.protocol` builds on."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pytest
from tests_support import rows_of

from spark_eos.errors import Fenced
from spark_eos.protocol.ledger import LaneRow, QueryRow
from spark_eos.protocol.positions import Fingerprint
from spark_eos.testing.simulated.partitioner import murmur2_partition

KEYS = ["", "a", "k1", "abc", "k123", "RFD-9001", "schlüssel", "a key that is longer than any word", "\x00\xff"]


def query_row(next_batch: int) -> QueryRow:
    return QueryRow(next_batch, "checkpoint", "run", "2026-01-01T00:00:00Z", 1)


def lane_row(next_batch: int) -> LaneRow:
    return LaneRow(0, next_batch, "checkpoint", "run", 0, 1, Fingerprint(1, ""))


@contextmanager
def began(query, id_: str = "lane-0", *values: str):
    """A fenced producer with an open transaction, and records in it."""
    with query.open(f"{query.query}-{id_}") as transaction:
        transaction.fence()
        transaction.begin()
        if values:
            transaction.write(query.to_topic(rows_of(values)))
            transaction.flush()
        yield transaction


@pytest.fixture
def one(query, topic):
    """A query that writes to a topic with one partition, and has a ledger."""
    narrow = query.but(topic=topic())
    narrow.ledger.ensure(1)
    return narrow


@pytest.fixture
def source(topic):
    return topic(name="in")


def send(transaction, rows) -> None:
    transaction.write(rows)
    transaction.flush()


@pytest.mark.parametrize("act", ["commit", "offsets", "write elsewhere"])
def test_an_older_producer_is_fenced_whatever_it_does_next(one, topic, act):
    acts = {
        "commit": lambda old: old.commit(),
        "offsets": lambda old: old.commit_offsets([lane_row(1)], {}),
        "write elsewhere": lambda old: send(old, one.but(topic=topic()).to_topic(rows_of("b"))),
    }
    with began(one, "lane-0", "a") as old:
        with began(one, "lane-0", "new") as new:
            with pytest.raises(Fenced):
                acts[act](old)
            old.abort()
            new.commit()
        assert one.values() == ["new"]
    assert one.ledger.view(stable=True).lanes == {}


def test_an_older_producer_writes_nothing_more_where_a_newer_one_has_written(one):
    with began(one, "lane-0", "a") as old, began(one, "lane-0", "new") as new:
        with pytest.raises(Fenced):
            send(old, one.to_topic(rows_of("b")))
        old.abort()
        new.commit()
    assert one.values() == ["new"]
    assert one.uncommitted() == ["a", "new"]


def test_producers_of_two_ids_do_not_disturb_each_other(one):
    with began(one, "lane-0", "a") as first, began(one, "lane-1", "b") as second:
        first.commit()
        second.commit()
    assert one.values() == ["a", "b"]


def test_a_producer_writes_one_transaction_after_another(one):
    with began(one, "lane-0", "a") as transaction:
        transaction.commit()
        transaction.begin()
        send(transaction, one.to_topic(rows_of("b")))
        transaction.abort()
        transaction.begin()
        send(transaction, one.to_topic(rows_of("c")))
        transaction.commit()
    assert one.values() == ["a", "c"]


def test_of_an_aborted_transaction_nothing_is_seen_and_no_offset_counts(one, source):
    with began(one, "lane-0", "a") as transaction:
        transaction.commit_offsets([query_row(1), lane_row(1)], {(source, 0): 5})
        transaction.abort()
    assert one.values() == []
    assert one.uncommitted() == ["a"]
    assert one.ledger.query() is None
    assert one.ledger.view(stable=True).lanes == {}
    assert one.ledger.offsets([(source, 0)]) == {(source, 0): 0}


def test_what_is_left_open_ends_at_the_next_fence(one, source, brokers):
    with began(one, "lane-0", "a") as left:
        left.commit_offsets([lane_row(1)], {(source, 0): 5})
    assert brokers.last_stable_offset(one.topic) == 0
    with began(one, "lane-0") as next_one:
        next_one.abort()
    brokers.settle(one.topic)
    assert one.ledger.offsets([(source, 0)]) == {(source, 0): 0}
    assert one.values() == []


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_stable_read_waits_for_an_open_transaction_and_an_unstable_one_sees_the_old_row(one, source, brokers, ends):
    with began(one) as first:
        first.commit_offsets([query_row(1), lane_row(1)], {(source, 0): 5})
        first.commit()
    before = one.ledger.view(stable=True)
    assert (before.query, before.lanes) == (query_row(1), {0: lane_row(1)})
    with began(one) as second:
        second.commit_offsets([query_row(2), lane_row(2)], {(source, 0): 9})
        assert one.ledger.view(stable=False) == before
        after = brokers.read_while(lambda: one.ledger.view(stable=True), getattr(second, ends))
    batch = {"commit": 2, "abort": 1}[ends]
    assert (after.query, after.lanes) == (query_row(batch), {0: lane_row(batch)})
    assert one.ledger.lane(0) == (query_row(batch), lane_row(batch))
    assert one.ledger.offsets([(source, 0)]) == {(source, 0): {"commit": 9, "abort": 5}[ends]}


def test_a_read_waits_only_for_what_it_asks_for(one, source):
    with began(one) as open_one:
        open_one.commit_offsets([lane_row(1)], {(source, 0): 5})
        assert one.ledger.query() is None
        assert one.ledger.view(stable=True, lanes=0).query is None


def test_readers_stop_where_the_first_open_transaction_begins(one, brokers):
    with began(one, "t1", "0", "1") as first:
        first.commit()
    brokers.settle(one.topic)
    with began(one, "t2", *"34567") as second:
        assert brokers.last_stable_offset(one.topic) == 3
        assert brokers.high_watermark(one.topic) == 8
        with began(one, "t3", "9") as third:
            third.commit()
        assert brokers.last_stable_offset(one.topic) == 3
        second.commit()
    brokers.settle(one.topic)
    assert brokers.last_stable_offset(one.topic) == brokers.high_watermark(one.topic) == 11
    assert [each.offset for each in brokers.records(one.topic)] == [0, 1, 3, 4, 5, 6, 7, 8]


def test_a_key_is_placed_as_javas_client_places_it(query, brokers):
    rows = query.to_topic(rows_of(KEYS, key=pa.array(KEYS)))
    with query.open(f"{query.query}-0") as transaction:
        transaction.fence()
        transaction.begin()
        send(transaction, rows)
        transaction.commit()
    placed = {each.key: each.partition for each in brokers.records(query.topic)}
    assert placed == {key.encode(): murmur2_partition(key.encode(), 3) for key in KEYS}
    assert set(placed.values()) == {0, 1, 2}


def test_a_transaction_without_anything_in_it_commits_and_aborts(one, brokers):
    with began(one) as transaction:
        transaction.commit()
        transaction.begin()
        transaction.abort()
    assert brokers.high_watermark(one.topic) == 0


def test_the_ledger_grows_with_the_lanes_and_never_shrinks(one, brokers):
    before = brokers.partitions("spark-eos-ledger")
    one.ledger.ensure(before + 1)
    one.ledger.ensure(1)
    assert brokers.partitions("spark-eos-ledger") == before + 2


@pytest.mark.parametrize("place", [("no-such-topic", 0), ("in", 7)])
def test_offsets_of_a_partition_that_is_not_there_are_left_out(one, source, place):
    """A query may read from another cluster, whose topics are not here."""
    missing = (source, 7) if place[0] == "in" else place
    with began(one, "lane-0", "a") as transaction:
        transaction.commit_offsets([lane_row(1)], {missing: 5, (source, 0): 3})
        transaction.commit()
    assert one.values() == ["a"]
    assert one.ledger.offsets([(source, 0)]) == {(source, 0): 3}
