"""`spark-eos lanes`, `lag`, `fence` and `verify` as a user runs them: processes, against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests_support import committed_values, rows_of

from spark_eos.protocol.transaction import Step


class Crash(BaseException):
    """The task is gone."""


def command(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "spark_eos.cli", *words]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60, input=given)


def asked(query, name: str, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
    return command(name, "--bootstrap-servers", query.bootstrap, "--query-id", query.query, *words, **given)


def answered(query, name: str, *words: str) -> Any:
    done = asked(query, name, "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture
def source(topic):
    return topic(2, name="in")


@pytest.fixture
def half_written(query, source):
    """Batch 0 is sealed; of batch 1 lane 0 is committed, and lane 1 died in its transaction."""

    def crash(step):
        if step is Step.COMMIT:
            raise Crash

    run = query.run("run-1")
    query.batch(run, 0, [[rows_of("ab", (source, 0, 0))], [rows_of("c", (source, 1, 0))]])
    run.open(1, 2)
    query.lane(run, 1, [rows_of("d", (source, 0, 2))], 0, 2)
    with pytest.raises(Crash):
        query.lane(run, 1, [rows_of("e", (source, 1, 1))], 1, 2, before_step=crash)
    return query


def test_lanes_shows_the_ledger_and_what_is_open(half_written):
    found = answered(half_written, "lanes")
    assert (found["query"]["next_batch"], found["query"]["run"], found["query"]["lanes"]) == (1, "run-1", 2)
    assert found["members"] == 0
    shown = [(each["lane"], each["batch"], each["rows"], each["state"], each["open"]) for each in found["lanes"]]
    assert shown == [(0, 1, 1, "committed, batch not sealed", False), (1, 0, 1, "sealed", True)]
    table = asked(half_written, "lanes").stdout
    assert "\x1b" not in table  # no colours in a pipe
    assert f"query {half_written.query}: next batch 1, begun" in table
    assert "transaction open" in table


def test_lanes_says_of_a_query_between_two_batches_that_the_next_is_not_begun(query, source):
    query.batch(query.run(), 0, [[rows_of("ab", (source, 0, 0))]])
    assert f"query {query.query}: next batch 1, not begun" in asked(query, "lanes").stdout


def test_lag_shows_how_far_a_group_is_and_what_holds_readers_back(half_written, source):
    words = ["--bootstrap-servers", half_written.bootstrap, "--group", half_written.query, "--json"]
    done = command("lag", *words, "--topic", half_written.topic)
    assert (done.returncode, done.stderr) == (0, "")
    partitions = json.loads(done.stdout)["partitions"]
    assert sum(each["held_back"] for each in partitions) > 0
    assert {each["committed"] for each in partitions} == {None}
    done = command("lag", *words, "--topic", source)
    # Partition 0 was committed up to 3, of a topic that is empty: nobody is behind.
    assert [(each["committed"], each["lag"]) for each in json.loads(done.stdout)["partitions"]] == [(3, 0), (1, 0)]


def test_fence_aborts_what_a_dead_query_left_open_and_first_only_shows_it(half_written):
    shown = answered(half_written, "fence", "--dry-run")
    names = [f"{half_written.query}-{who}" for who in ("driver", 0, 1)]
    assert (shown["dry_run"], shown["transactional_ids"]) == (True, names)
    refused = asked(half_written, "fence", given="n\n")
    assert refused.returncode == 1
    assert [each["open"] for each in answered(half_written, "lanes")["lanes"]] == [False, True]

    assert answered(half_written, "fence", "--yes")["transactional_ids"] == names
    assert [each["open"] for each in answered(half_written, "lanes")["lanes"]] == [False, False]
    assert sorted(committed_values(half_written.bootstrap, half_written.topic)) == [b"a", b"b", b"c", b"d"]


def test_verify_is_the_independent_check(half_written, source):
    answered(half_written, "fence", "--yes")
    words = ["--bootstrap-servers", half_written.bootstrap, "--input", source, "--output", half_written.topic, "--json"]
    done = command("verify", *words)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["anomalies"]  # the rows of these tests come from nowhere


@pytest.mark.parametrize("name", ["lanes", "fence"])
def test_an_unknown_query_is_told_in_one_line(half_written, name):
    done = asked(half_written.but(query="no-such-query"), name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: the ledger has no row of query no-such-query in group no-such-query")
    assert done.stderr.count("\n") == 1


def test_settings_come_from_a_file_and_its_secrets_are_not_told(half_written, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("# mine\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\n")
    with config.open("a") as file:
        file.write("sasl.password=hunter2\n")
    done = asked(half_written, "lanes", "--command-config", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "hunter2" not in done.stdout + done.stderr
    config.write_text("security.protocol\n")
    done = asked(half_written, "lanes", "--command-config", str(config))
    assert done.stderr == f"Error: {config}, line 1, is no setting. What to do: write it as NAME=VALUE.\n"
