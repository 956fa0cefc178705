"""Options of the source: what is understood, what is refused, and that nothing secret is shown."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from spark_eos.errors import OptionError
from spark_eos.source_options import (
    REFUSED_IN_SOURCE,
    RESERVED_IN_SOURCE,
    SOURCE_OPTIONS,
    SUBSCRIPTIONS,
    SourceOptions,
)
from spark_eos.source_values import ByOffset, ByTime, Pace, Split, Subscription

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "refunds"}


def test_defaults_are_those_of_sparks_source() -> None:
    stream, batch = (SourceOptions.of(LEAST, queries) for queries in ("stream", "batch"))
    assert stream.subscription == Subscription(topics=("refunds",))
    assert stream.start == ByOffset("startingOffsets", "latest")
    assert (batch.start, batch.end) == (ByOffset("startingOffsets", "earliest"), ByOffset("endingOffsets", "latest"))
    assert stream.pace == Pace(least=None, most=None, patience_ms=15 * 60_000)
    assert stream.split == Split()
    assert (stream.fail_on_data_loss, stream.include_headers) == (True, False)
    assert (stream.group, stream.placeholder_group, stream.poll_timeout_s) == (None, "spark-eos-source", 60)
    assert stream.client == {"bootstrap.servers": "localhost:9092"}


def test_names_are_read_in_any_case() -> None:
    servers = {"KAFKA.Bootstrap.Servers": "b:1"}
    options = SourceOptions.of(servers | {"SUBSCRIBE": "a", "startingoffsets": "Earliest", "IncludeHeaders": "TRUE"})
    assert (options.subscription.topics, options.include_headers) == (("a",), True)
    assert options.start.where == "earliest"


def test_values_may_be_no_strings() -> None:
    options = SourceOptions.of(LEAST | {"maxOffsetsPerTrigger": 5, "failOnDataLoss": False})
    assert (options.pace.most, options.fail_on_data_loss) == (5, False)


def test_what_is_read() -> None:
    def of(name: str, value: str) -> Subscription:
        return SourceOptions.of({"kafka.bootstrap.servers": "b:1", name: value}).subscription

    assert of("subscribe", " b, a ,b,") == Subscription(topics=("a", "b"))
    assert of("subscribePattern", " ref.* ") == Subscription(pattern="ref.*")
    assert of("assign", '{"b": [1, 0, 1], "a": [2]}') == Subscription(partitions=(("a", 2), ("b", 0), ("b", 1)))


def test_places() -> None:
    json = '{"a": {"0": 23, "1": -1}, "b.C": {"10": -2}}'
    offsets = SourceOptions.of(LEAST | {"startingOffsets": json}).start
    assert offsets == ByOffset("startingOffsets", {("a", 0): 23, ("a", 1): -1, ("b.C", 10): -2})
    time = SourceOptions.of(LEAST | {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "LATEST"}).start
    assert time == ByTime("startingTimestamp", 7, or_latest=True)
    each = SourceOptions.of(LEAST | {"startingOffsetsByTimestamp": '{"a": {"0": 23}}'}).start
    assert each == ByTime("startingOffsetsByTimestamp", {("a", 0): 23}, or_latest=False)
    end = SourceOptions.of(LEAST | {"endingOffsetsByTimestamp": '{"a": {"0": 23}}'}).end
    assert end == ByTime("endingOffsetsByTimestamp", {("a", 0): 23}, or_latest=True)


def test_pace_split_and_group() -> None:
    given = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7", "maxTriggerDelay": "10s", "minPartitions": "3"}
    options = SourceOptions.of(LEAST | given | {"maxPartitions": "4", "groupIdPrefix": "team"})
    assert options.pace == Pace(5, 7, 10_000)
    assert options.split == Split(least=3, most=4)
    assert SourceOptions.of(LEAST | {"maxRecordsPerPartition": "9"}).split == Split(records=9)
    assert (options.group, options.placeholder_group) == (None, "team-source")
    named = SourceOptions.of(LEAST | {"kafka.group.id": "g"})
    assert (named.group, named.placeholder_group) == ("g", "g")
    assert "group.id" not in named.client
    assert SourceOptions.of(LEAST | {"kafka.group.id": " "}).group is None


@pytest.mark.parametrize(
    ("text", "millis"),
    [("15m", 900_000), ("1 h", 3_600_000), ("10S", 10_000), ("250", 250), ("3ms", 3), ("1d", 86_400_000)],
)
def test_durations(text: str, millis: int) -> None:
    assert SourceOptions.of(LEAST | {"maxTriggerDelay": text}).pace.patience_ms == millis


JSON_OF_OFFSETS = ["{}", "[1]", '{"a": 1}', '{"a": {}}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}']
NUMBERS = ["0", "-1", "1.5", "many", ""]
WRONG = {
    "subscribe": ["", "a,b c", "x" * 250],
    "subscribePattern": ["", "a("],
    "assign": ["a", "{}", "[]", '{"a": 1}', '{"a": []}', '{"a": ["0"]}', '{"a": [-1]}', '{"a b": [0]}'],
    "startingOffsets": ["soonest", *JSON_OF_OFFSETS, '{"a": {"0": -3}}', '{"a": {"0": 1.5}}', '{"a b": {"0": 1}}'],
    "endingOffsets": ["earliest", "group", *JSON_OF_OFFSETS, '{"a": {"0": -2}}'],
    "startingOffsetsByTimestamp": ["latest", *JSON_OF_OFFSETS, '{"a": {"0": -1}}'],
    "endingOffsetsByTimestamp": [*JSON_OF_OFFSETS],
    "startingTimestamp": ["-1", "yesterday", "1.5", ""],
    "endingTimestamp": ["2026-01-01"],
    "startingOffsetsByTimestampStrategy": ["earliest"],
    "maxOffsetsPerTrigger": NUMBERS,
    "minOffsetsPerTrigger": NUMBERS,
    "minPartitions": NUMBERS,
    "maxPartitions": NUMBERS,
    "maxRecordsPerPartition": NUMBERS,
    "kafkaConsumer.pollTimeoutMs": NUMBERS,
    "maxTriggerDelay": ["soon", "15 weeks", "-1s", ""],
    "failOnDataLoss": ["perhaps"],
    "includeHeaders": ["1"],
    "groupIdPrefix": ["", "a b"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    given = {k: v for k, v in LEAST.items() if not (k == "subscribe" and name in SUBSCRIPTIONS)}
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(given | {name: value})
    assert f"option {name} is {value!r}: " in str(caught.value)
    assert caught.value.do


def test_every_option_has_a_test_of_its_wrong_values() -> None:
    assert WRONG.keys() == {option.name for option in SOURCE_OPTIONS}


EACH = '{"a": {"0": %d}}'


@pytest.mark.parametrize(
    ("queries", "given", "told"),
    [
        ("both", {"assign": '{"a": [0]}'}, "options subscribe and assign are both given"),
        ("both", {"subscribePattern": "a", "assign": '{"a": [0]}'}, "subscribe and subscribePattern and assign"),
        ("both", {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, r"minOffsetsPerTrigger \(3\) is above"),
        ("both", {"minPartitions": "3", "maxPartitions": "2"}, r"minPartitions \(3\) is above maxPartitions"),
        ("both", {"maxRecordsPerPartition": "3", "maxPartitions": "2"}, "contradict"),
        ("both", {"startingOffsets": "group"}, "kafka.group.id is missing"),
        ("both", {"startingTimestamp": "3", "endingTimestamp": "2"}, r"startingTimestamp \(3\) is after"),
        ("both", {"startingOffsets": EACH % 3, "endingOffsets": EACH % 2}, r"a, partition 0: startingOffsets \(3\) is"),
        ("both", {"startingOffsets": '{"b": {"0": 1}}', "endingOffsets": EACH % 2}, "name different partitions"),
        ("batch", {"startingOffsets": "latest"}, "can't start at latest"),
        ("batch", {"startingOffsets": EACH % -1}, "can't start at latest"),
        ("batch", {"maxOffsetsPerTrigger": "3"}, "it is for streams, and this is a batch query"),
        ("batch", {"minoffsetspertrigger": "3"}, "minOffsetsPerTrigger can't be used: it is for streams"),
        ("batch", {"maxTriggerDelay": "3s"}, "it is for streams"),
        ("stream", {"endingOffsets": "latest"}, "it is for batch queries, and this is a stream"),
        ("stream", {"endingTimestamp": "3"}, "it is for batch queries"),
        ("stream", {"endingOffsetsByTimestamp": EACH % 3}, "it is for batch queries"),
    ],
)
def test_options_that_contradict_each_other(queries: str, given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told) as caught:
        SourceOptions.of(LEAST | given, queries)
    assert caught.value.do


def test_ranges_that_may_be_right_are_let_through() -> None:
    for first, last in ((3, 3), (-2, 0), (3, -1), (2, 3)):
        SourceOptions.of(LEAST | {"startingOffsets": EACH % first, "endingOffsets": EACH % last}, "batch")


def test_what_must_be_set() -> None:
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers is missing"):
        SourceOptions.of({"subscribe": "a"})
    with pytest.raises(OptionError, match=r"nothing says what to read.*subscribe, subscribePattern, assign"):
        SourceOptions.of({"kafka.bootstrap.servers": "b:1"})


@pytest.mark.parametrize("name", sorted(RESERVED_IN_SOURCE))
def test_reserved_client_settings_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(LEAST | {f"kafka.{name}": "value"})
    assert f"kafka.{name} is reserved: {RESERVED_IN_SOURCE[name]}" in str(caught.value)


@pytest.mark.parametrize("name", sorted(REFUSED_IN_SOURCE))
def test_options_that_are_understood_and_not_supported_are_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(LEAST | {name: "value"})
    assert name in str(caught.value)
    assert REFUSED_IN_SOURCE[name] in str(caught.value)


SPARKS = {
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "startingOffsetsByTimestampStrategy",
}
"""Options in the Kafka integration guide of Spark 4.2."""


def test_each_option_of_sparks_is_supported_or_refused_by_name() -> None:
    known = {option.name for option in SOURCE_OPTIONS} | set(REFUSED_IN_SOURCE)
    assert SPARKS - known == set()
    assert {option.name for option in SOURCE_OPTIONS} - SPARKS == {"maxPartitions"}


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"maxOffsetPerTriger is not known.*maxOffsetsPerTrigger"):
        SourceOptions.of(LEAST | {"maxOffsetPerTriger": "1"})


def test_the_isolation_level_there_is_may_be_named() -> None:
    assert "isolation.level" not in SourceOptions.of(LEAST | {"kafka.isolation.level": "read_committed"}).client
    with pytest.raises(OptionError, match="read_committed"):
        SourceOptions.of(LEAST | {"kafka.isolation.level": "read_uncommitted"})


def test_no_secret_is_shown() -> None:
    options = SourceOptions.of(LEAST | {"kafka.sasl.password": "hunter2", "kafka.ssl.key.password": "hunter2"})
    assert "sasl.password" in repr(options)
    assert "hunter2" not in f"{options!r} {options} {options.client}"
    assert options.client["sasl.password"] == "hunter2"


def test_options_travel_and_do_not_change() -> None:
    options = SourceOptions.of(LEAST | {"startingOffsets": '{"refunds": {"0": 1}}', "kafka.client.id": "me"})
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert "localhost" not in repr(again)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.include_headers = True  # type: ignore[misc]
