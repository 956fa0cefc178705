"""Options of the source: what is understood, what is refused, and that nothing secret is shown."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from spark_eos.errors import OptionError
from spark_eos.source_options import REFUSED_IN_SOURCE, RESERVED_IN_SOURCE, SourceOptions

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "refunds"}


def test_defaults_are_those_of_sparks_stream_source() -> None:
    options = SourceOptions.of(LEAST)
    assert options.topics == ("refunds",)
    assert options.starting_offsets == "latest"
    assert options.max_offsets is None
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.client == {"bootstrap.servers": "localhost:9092"}


def test_names_are_read_in_any_case() -> None:
    servers = {"KAFKA.Bootstrap.Servers": "b:1"}
    options = SourceOptions.of(servers | {"SUBSCRIBE": "a", "startingoffsets": "Earliest", "IncludeHeaders": "TRUE"})
    assert (options.topics, options.starting_offsets, options.include_headers) == (("a",), "earliest", True)


def test_topics_are_sorted_and_named_once() -> None:
    assert SourceOptions.of(LEAST | {"subscribe": " b, a ,b,"}).topics == ("a", "b")


def test_values_may_be_no_strings() -> None:
    options = SourceOptions.of(LEAST | {"maxOffsetsPerTrigger": 5, "failOnDataLoss": False})
    assert (options.max_offsets, options.fail_on_data_loss) == (5, False)


def test_starting_offsets_by_partition() -> None:
    options = SourceOptions.of(LEAST | {"startingOffsets": '{"a": {"0": 23, "1": -1}, "b.C": {"10": -2}}'})
    assert options.starting_offsets == {("a", 0): 23, ("a", 1): -1, ("b.C", 10): -2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", ""),
        ("subscribe", "a,b c"),
        ("subscribe", "x" * 250),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxOffsetsPerTrigger", "many"),
        ("failOnDataLoss", "perhaps"),
        ("includeHeaders", "1"),
        ("startingOffsets", "soonest"),
        ("startingOffsets", "{}"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"a": 1}'),
        ("startingOffsets", '{"a": {}}'),
        ("startingOffsets", '{"a": {"x": 1}}'),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("startingOffsets", '{"a": {"0": "1"}}'),
        ("startingOffsets", '{"a": {"0": true}}'),
        ("startingOffsets", '{"a": {"0": 1.5}}'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(LEAST | {name: value})
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert caught.value.do


@pytest.mark.parametrize("name", ["subscribe", "kafka.bootstrap.servers"])
def test_what_must_be_set(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is missing"):
        SourceOptions.of({k: v for k, v in LEAST.items() if k != name})


@pytest.mark.parametrize("name", sorted(RESERVED_IN_SOURCE))
def test_reserved_client_settings_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(LEAST | {f"kafka.{name}": "value"})
    assert f"kafka.{name} is reserved: {RESERVED_IN_SOURCE[name]}" in str(caught.value)


@pytest.mark.parametrize("name", sorted(REFUSED_IN_SOURCE))
def test_options_of_sparks_source_that_are_not_supported_are_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(LEAST | {name: "value"})
    assert name in str(caught.value)
    assert REFUSED_IN_SOURCE[name] in str(caught.value)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"maxOffsetPerTriger is not known.*maxoffsetspertrigger"):
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
