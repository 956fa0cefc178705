"""The command `spark-eos`: what it refuses, without a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_eos.cli import app
from spark_eos.cli.broker import parse_topic
from spark_eos.errors import OptionError
from spark_eos.kafka import ledger
from spark_eos.protocol import refusals
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.names import Run

runner = CliRunner()


def test_broker_is_a_sub_command_and_help_names_its_options():
    # Wide enough that no option is cut, and no colours between the dashes.
    result = runner.invoke(app, ["broker", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    for option in ("--brokers", "--port", "--data-dir", "--topic"):
        assert option in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--brokers", "2"], "a cluster of 2 brokers was asked for. What to do: use 1 or 3."),
        (["--topic", "orders"], "--topic orders is not NAME:PARTITIONS. What to do:"),
        (["--topic", "a:1", "--topic", "orders:0"], "--topic orders:0 is not NAME:PARTITIONS"),
    ],
)
def test_a_wrong_value_ends_with_1_and_one_line_on_stderr(arguments, says):
    result = runner.invoke(app, ["broker", *arguments])
    assert result.exit_code == 1
    assert says in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [["--port", "65536"], ["--brokers", "many"], ["--nonsense"]])
def test_what_cannot_be_parsed_ends_with_2_and_the_usage(arguments):
    result = runner.invoke(app, ["broker", *arguments])
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert result.stdout == ""


def test_a_topic_name_may_hold_dots_and_dashes():
    assert parse_topic("shop.orders-v2:12") == ("shop.orders-v2", 12)


@pytest.mark.parametrize("text", ["", ":", ":3", "orders:", "orders:-1", "orders:x", "orders"])
def test_other_forms_of_topic_are_refused(text):
    with pytest.raises(OptionError, match="NAME:PARTITIONS"):
        parse_topic(text)


def test_errors_name_commands_that_there_are():
    run = Run("refunds", "checkpoint", "run")
    texts = [
        refusals.taken_over(run, QueryRow(1, "checkpoint", "other", "now", 1)).do,
        refusals.abandoned(3).do,
        refusals.split_changed({2}, 3).do,
        Path(ledger.__file__).read_text(encoding="utf-8"),  # of a transaction that stays open
    ]
    named = [set(re.findall(r"`spark-eos (\w+)`", text)) for text in texts]
    assert named == [{"lanes"}, {"lanes"}, {"lanes"}, {"lanes", "fence"}]
    commands = runner.invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).stdout
    assert all(name in commands for name in set.union(*named))
