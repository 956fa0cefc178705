"""Options: known names only, case does not matter, secrets never show."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import KafkaException, Producer

from spark_eos.errors import OptionError
from spark_eos.options import JAVA_ONLY, RESERVED_IN_SINK, SINK_OPTIONS, SinkOptions
from spark_eos.source_options import RESERVED_IN_SOURCE, SourceOptions

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9"}


def test_defaults():
    options = SinkOptions.of(BASE)
    assert options.ledger_topic == "spark-eos-ledger"
    assert (options.query_id, options.group_id, options.topic) == (None, None, None)
    assert (options.on_other_checkpoint, options.on_missing_ledger) == ("fail", "fail")
    assert options.stage_rows == "none"
    assert options.client == {"bootstrap.servers": "127.0.0.1:9"}


def test_names_are_matched_without_regard_to_case_and_values_become_text():
    options = SinkOptions.of(BASE | {"Query.ID": "q", "kafka.Linger.ms": 5, "kafka.log.thread.name": True})
    assert options.query_id == "q"
    assert options.client["linger.ms"] == "5"
    assert options.client["log.thread.name"] == "true"


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(OptionError, match=r"query\.idd is not known.*Did you mean query\.id\?"):
        SinkOptions.of(BASE | {"query.idd": "q"})
    with pytest.raises(OptionError, match=r"Did you mean kafka\.bootstrap\.servers"):
        SinkOptions.of({"bootstrap.servers": "x"})


@pytest.mark.parametrize("name", sorted(RESERVED_IN_SINK))
def test_reserved_client_settings_are_refused_with_the_reason(name):
    with pytest.raises(OptionError, match=r"is reserved: \w"):
        SinkOptions.of(BASE | {f"kafka.{name}": "x"})


@pytest.mark.parametrize("name", sorted(JAVA_ONLY))
def test_settings_of_the_java_client_are_refused_with_what_to_do_and_without_their_value(name):
    with pytest.raises(OptionError, match=f"option kafka.{name} is a setting of the Java client") as raised:
        SinkOptions.of(BASE | {f"kafka.{name}": 'PlainLoginModule required password="hunter2";'})
    assert raised.value.do == JAVA_ONLY[name]
    assert "hunter2" not in repr(raised.value) + str(raised.value)
    with pytest.raises(OptionError, match=f"option kafka.{name} is a setting of the Java client"):
        SourceOptions.of(BASE | {"subscribe": "a", f"kafka.{name}": "hunter2"})


@pytest.mark.parametrize("name", sorted(JAVA_ONLY))
def test_librdkafka_knows_no_setting_of_the_java_client_and_each_that_is_named_instead(name):
    assert not known_to_librdkafka(name)
    for instead in re.findall(r"kafka\.([a-z.]*[a-z])", JAVA_ONLY[name]):
        assert known_to_librdkafka(instead)
        assert instead not in RESERVED_IN_SINK.keys() | RESERVED_IN_SOURCE.keys()


def known_to_librdkafka(name: str) -> bool:
    """Whether it has such a setting; a value that no setting has is refused in other words."""
    try:
        Producer({"bootstrap.servers": "127.0.0.1:9", "log_level": 0, name: "\n"})
    except KafkaException as exception:
        unknown = "No such configuration property", "Java JAAS configuration", "Java TrustStores"
        return not exception.args[0].str().startswith(unknown)
    return True


@pytest.mark.parametrize(
    "wrong",
    [
        {"query.id": ""},
        {"query.id": "a b"},
        {"query.id": "x" * 201},
        {"group.id": "ä"},
        {"ledger.topic": "a/b"},
        {"on.other.checkpoint": "maybe"},
        {"on.missing.ledger": "true"},
        {"stage.rows": "memory"},
    ],
)
def test_wrong_values_are_refused_by_name_with_what_is_right(wrong):
    (name,) = wrong
    with pytest.raises(OptionError, match=f"option {name} is .*it must be"):
        SinkOptions.of(BASE | wrong)


@pytest.mark.parametrize("given", [{}, {"kafka.bootstrap.servers": " "}])
def test_bootstrap_servers_are_required(given):
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        SinkOptions.of(given)


def test_no_client_setting_shows_its_value():
    options = SinkOptions.of(BASE | {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "me"})
    for text in (repr(options), str(options), repr(options.client), str(options.client), f"{options.client}"):
        assert "hunter2" not in text
        assert "sasl.password" in text


def test_every_option_is_documented():
    assert all(option.doc.endswith(".") and len(option.doc) > 20 for option in SINK_OPTIONS)
