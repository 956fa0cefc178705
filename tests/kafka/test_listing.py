"""What partitions hold, and where times and committed offsets are, on a real broker."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_log import Log, until

from spark_eos.errors import OptionError, TopicMissing
from spark_eos.kafka.listing import Listing
from spark_eos.kafka.offsets import Bounds, Marks
from spark_eos.kafka.places import Places
from spark_eos.source_options import SourceOptions
from spark_eos.source_values import Subscription


def holdings(bootstrap: str, **subscription: object):
    return Listing({"bootstrap.servers": bootstrap}, Subscription(**subscription)).holdings()


def start(log: Log, queries: str = "stream", **options: str) -> int:
    """Where a query with these options starts in the log's only partition."""
    return _place("start", log, queries, options)


def end(log: Log, **options: str) -> int:
    return _place("end", log, "batch", options)


def _place(which: str, log: Log, queries: str, options: Mapping[str, str]) -> int:
    given = {"kafka.bootstrap.servers": log.bootstrap, "subscribe": log.topic, **options}
    options = SourceOptions.of(given, queries)
    listing = Listing(options.client, options.subscription)
    found = getattr(Places(options, listing), which)(listing.holdings().bounds)
    assert list(found) == [(log.topic, 0)]
    return found[log.topic, 0]


def commit(log: Log, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(log.topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_bounds_end_at_the_last_stable_offset(log: Log) -> None:
    log.committed("a", "b")  # offsets 0, 1; 2 is the commit marker
    with log.transaction("c") as producer:
        log.plain("d")
        assert log.bounds() == Bounds(0, 3, 5)
        producer.abort_transaction(10)
    log.settle()
    assert log.bounds() == Bounds(0, 6, 6)


def test_bounds_start_where_records_are_left(log: Log) -> None:
    log.plain("a", "b", "c")
    log.delete_before(2)
    assert log.bounds() == Bounds(2, 3, 3)


def test_all_partitions_of_all_topics(kafka, topic: Callable[..., str]) -> None:
    names = sorted([topic(2), topic(1)])
    found = holdings(kafka.bootstrap_servers, topics=tuple(names))
    assert len(found.bounds) == 3
    assert sorted(found.bounds) == list(found.bounds)
    assert set(found.bounds.values()) == {Bounds(0, 0, 0)}
    assert sorted(found.topic_ids) == names
    assert len(set(found.topic_ids.values())) == 2


def test_topics_that_match_a_pattern_as_a_whole(kafka, topic: Callable[..., str]) -> None:
    tag = uuid.uuid4().hex[:8]
    one, two, _ = (topic(name=f"{name}-{tag}") for name in ("one", "two", "other"))
    listing = Listing({"bootstrap.servers": kafka.bootstrap_servers}, Subscription(pattern=f"(one|two)-{tag}-.*"))
    assert sorted(listing.holdings().topic_ids) == sorted([one, two])
    later = topic(name=f"two-{tag}")
    until(lambda: later in listing.holdings().topic_ids)
    # Kafka's own topics match, and are left out.
    assert not any(name.startswith("__") for name in holdings(kafka.bootstrap_servers, pattern=".*").topic_ids)
    with pytest.raises(TopicMissing, match="no topic matches 'one' "):
        holdings(kafka.bootstrap_servers, pattern="one")


def test_partitions_that_are_assigned_and_no_others(kafka, topic: Callable[..., str]) -> None:
    name = topic(3)
    found = holdings(kafka.bootstrap_servers, partitions=((name, 0), (name, 2)))
    assert list(found.bounds) == [(name, 0), (name, 2)]
    with pytest.raises(TopicMissing, match=f"partition {name}-3 does not exist .option assign."):
        holdings(kafka.bootstrap_servers, partitions=((name, 0), (name, 3)))


def test_a_topic_that_is_missing_is_said_so_and_never_created(kafka) -> None:
    name = f"missing-{uuid.uuid4().hex[:8]}"
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    listing = Listing(client, Subscription(topics=(name,)))
    for _ in range(2):
        with pytest.raises(TopicMissing, match=f"topic {name} does not exist"):
            listing.holdings()
    assert name not in AdminClient(client).list_topics(timeout=10).topics
    # Known to the checkpoint: it is for the caller to call that data loss.
    assert listing.holdings(Marks({(name, 0): 3}, {})).bounds == {}


@pytest.mark.large
def test_looking_up_outlives_a_restart_of_the_broker(kafka, log: Log) -> None:
    log.plain("a")
    listing = log.listing
    assert listing.holdings().bounds == {(log.topic, 0): Bounds(0, 1, 1)}
    kafka.stop_broker(0)
    coming = threading.Thread(target=kafka.restart, args=[0])
    coming.start()
    try:
        assert listing.holdings().bounds == {(log.topic, 0): Bounds(0, 1, 1)}
    finally:
        coming.join()


def test_a_second_look_before_data_loss(log: Log) -> None:
    """The checkpoint's offset is above the end that is stable now, and below the one of a moment later."""
    with log.transaction("a", "b") as producer:
        later = threading.Timer(0.3, producer.commit_transaction, [10])
        later.start()
        known = Marks({(log.topic, 0): 2}, {})
        assert log.listing.holdings(known).bounds == {(log.topic, 0): Bounds(0, 3, 3)}
        later.join()


# --- Places: the options as offsets ---


def test_places_by_offset(log: Log) -> None:
    log.plain(*"abcd")
    log.delete_before(1)
    assert start(log) == 4
    assert start(log, "batch") == 1
    for offset, found in ((-2, 1), (-1, 4), (3, 3), (9, 9)):
        assert start(log, startingOffsets=json.dumps({log.topic: {"0": offset}})) == found
    assert (end(log), end(log, endingOffsets=json.dumps({log.topic: {"0": 2}}))) == (4, 2)
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OptionError, match=f"option {name} names the partitions {log.topic}-1, and there are"):
            _place(name.split("ing")[0], log, "batch", {name: json.dumps({log.topic: {"1": 2}})})


def test_places_by_time(log: Log) -> None:
    for value, when in (("a", 1_000), ("b", 2_000), ("c", 3_000)):
        log.plain(value, timestamp=when)
    each = {when: json.dumps({log.topic: {"0": when}}) for when in (0, 1_500, 9_000)}
    assert [start(log, startingTimestamp=str(when)) for when in (0, 1_000, 1_001, 3_000)] == [0, 0, 1, 2]
    assert [end(log, endingTimestamp=str(when)) for when in (0, 2_000, 2_001, 9_000)] == [0, 1, 2, 3]
    assert start(log, startingOffsetsByTimestamp=each[1_500]) == 1
    assert end(log, endingOffsetsByTimestamp=each[1_500]) == 1
    assert end(log, endingOffsetsByTimestamp=each[9_000]) == 3
    # Spark's order: one timestamp for all, then by partition, then offsets.
    assert start(log, startingTimestamp="2000", startingOffsetsByTimestamp=each[0], startingOffsets="latest") == 1
    assert start(log, startingOffsetsByTimestamp=each[0], startingOffsets="latest") == 0


def test_no_record_of_that_time(log: Log) -> None:
    log.plain("a", timestamp=1_000)
    with pytest.raises(OptionError, match=r"startingTimestamp: topic .*, partition 0 has no record at or after 1970-"):
        start(log, startingTimestamp="2000")
    assert start(log, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest") == 1


def test_a_time_that_only_an_open_transaction_has(log: Log) -> None:
    log.plain("a", timestamp=1_000)
    with log.transaction("b") as producer:
        assert start(log, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest") == 1
        assert end(log, endingTimestamp="2000") == 1
        producer.abort_transaction(10)


def test_a_start_where_the_group_stands(log: Log) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    options = {"startingOffsets": "group", "kafka.group.id": group}
    assert start(log, **options) == 0  # nothing was ever written
    log.plain(*"abcd")
    with pytest.raises(OptionError) as caught:
        start(log, **options)
    assert f"group {group} has no committed offset for {log.topic}-0" in str(caught.value)
    assert f'startingOffsets={{"{log.topic}": {{"0": -2}}}}' in str(caught.value)
    commit(log, group, 0)
    assert start(log, **options) == 0
    commit(log, group, 3)
    assert start(log, **options) == start(log, "batch", **options) == 3


def test_the_id_of_a_topic_that_is_created_again(kafka, log: Log) -> None:
    listing = log.listing
    before = listing.holdings()
    admin = AdminClient(log.client)
    admin.delete_topics([log.topic])[log.topic].result(10)
    until(lambda: log.topic not in admin.list_topics(timeout=10).topics)
    kafka.create_topic(log.topic)
    known = Marks({(log.topic, 0): 0}, before.topic_ids)
    assert known.replaced(listing.holdings().topic_ids) == {log.topic}
    assert known.replaced(before.topic_ids) == set()
