"""The checker finds each seeded bug, and calls it by its name; it finds nothing where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
import pytest
from copy_program import EACH, KEYS, Copy
from kafka_log import until
from tests_support import Query, rows_of

from spark_eos.checker import CannotCheck, JavaReader, Watch, check
from spark_eos.checker.reader import Reader
from spark_eos.protocol.transaction import Step
from spark_eos.spark.rows import ArrowRows
from spark_eos.testing import EmbeddedKafka

READ = ("rows aborted or open", "rows seen by the live reader", "rows read by Java's client")


def seen(watch: Watch) -> int:
    return sum(map(len, watch.reader.rows.values()))


def test_a_right_program_is_clean_with_aborts_in_between(copy: Copy) -> None:
    with copy.watch() as watch:
        for start in range(0, len(copy.rows), 10):
            copy.write(copy.rows[start : start + 10], commit=False)
            copy.write(copy.rows[start : start + 10])
            copy.done(start // 2)
        copy.done()
        until(lambda: seen(watch) == 2 * len(copy.rows))
        findings = copy.check(watch, java_reader=JavaReader(copy.bootstrap))
    assert findings.anomalies == {}
    assert None not in findings.figures.values(), "all was looked at"
    assert findings.figures["input records"] == len(copy.rows)
    counted = [findings.figures[label] for label in READ]
    assert counted == [2 * len(copy.rows)] * 3


def lost(copy: Copy) -> None:
    copy.write(copy.rows[:7] + copy.rows[8:])


def duplicated(copy: Copy) -> None:
    copy.write(copy.rows)
    copy.write(copy.rows[3:5], copy.outputs[1])


def duplicated_elsewhere(copy: Copy) -> None:
    copy.write(copy.rows)
    copy.write([(1 - p, key, value) for p, key, value in copy.rows[3:5]])


def foreign(copy: Copy) -> None:
    copy.write([*copy.rows, (0, "k0", "k0:99")])


def other_key(copy: Copy) -> None:
    copy.write([(p, "k0" if value == "k2:3" else key, value) for p, key, value in copy.rows])


def torn(copy: Copy) -> None:
    copy.write(copy.rows[1:], copy.outputs[0])
    copy.write(copy.rows, copy.outputs[1])


def swapped(copy: Copy) -> None:
    rows = copy.rows
    rows[0], rows[KEYS] = rows[KEYS], rows[0]
    copy.write(rows)


def strayed(copy: Copy) -> None:
    copy.write([(1 - p if value == "k0:4" else p, key, value) for p, key, value in copy.rows])


@pytest.mark.parametrize(
    ("bug", "anomalies"),
    [
        (lost, {"lost": 1}),
        (duplicated, {"duplicated": 2}),
        (duplicated_elsewhere, {"duplicated": 4}),
        (foreign, {"foreign": 2}),
        (other_key, {"foreign": 2, "lost": 1}),
        (torn, {"torn": 1}),
        (swapped, {"disordered": 2}),
        (strayed, {"disordered": 2}),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_a_bug_of_the_copy_is_found(copy: Copy, bug: Callable[[Copy], None], anomalies: dict[str, int]) -> None:
    bug(copy)
    copy.done()
    findings = copy.check()
    assert findings.anomalies == anomalies
    assert findings.examples.keys() == anomalies.keys()
    assert findings.figures["early"] is None, "nobody watched"


def test_a_reader_that_sees_aborted_rows_is_found(copy: Copy) -> None:
    copy.write(copy.rows[:3], commit=False)
    copy.write(copy.rows)
    copy.done()
    with copy.watch(isolation="read_uncommitted") as watch:
        until(lambda: seen(watch) == 2 * (len(copy.rows) + 3))
    assert copy.check(watch).anomalies == {"aborted-seen": 6}


def test_rows_seen_before_their_commit_are_found(copy: Copy) -> None:
    copy.done()
    with copy.watch(isolation="read_uncommitted") as watch, copy.transaction() as producer:
        copy.send(producer, copy.rows)
        until(lambda: seen(watch) == 2 * len(copy.rows))
        producer.commit_transaction(10)
    assert copy.check(watch).anomalies == {"early": 2 * len(copy.rows)}


@pytest.mark.parametrize("steps", [(9, 7), (7, None)], ids=["back", "gone"])
def test_offsets_that_move_back_are_found(copy: Copy, steps) -> None:
    copy.write(copy.rows)
    with copy.watch(ledger=copy.outputs[0]) as watch:
        for step in steps:
            copy.done(step) if step else copy.forget()
            looked = watch.offsets.samples
            until(lambda looked=looked: watch.offsets.samples > looked + 1)
        copy.done()
    assert copy.check(watch).anomalies == {"moved-back": 2}


def test_input_records_that_the_offsets_do_not_cover_are_found(copy: Copy) -> None:
    copy.write(copy.rows)
    assert copy.check().anomalies == {"uncovered": len(copy.rows)}, "nothing was ever committed"
    copy.done(KEYS * EACH // 2 - 1)
    assert copy.check().anomalies == {"uncovered": 2}


def test_an_open_transaction_is_found(copy: Copy) -> None:
    copy.write(copy.rows)
    copy.done()
    with copy.transaction() as producer:
        copy.send(producer, copy.rows[:1], copy.outputs[1])
        findings = copy.check(wait_s=0.5)
        producer.abort_transaction(10)
    assert findings.anomalies == {"hanging": 1}
    assert findings.examples == {"hanging": [f"{copy.outputs[1]}[0]"]}


def test_a_watcher_that_died_is_an_error(copy: Copy) -> None:
    with copy.watch() as watch:
        watch.reader.rows = None
        copy.write(copy.rows)
        until(lambda: not watch.reader._thread.is_alive())
        with pytest.raises(CannotCheck, match="live reader died while it watched"):
            copy.check(watch)


class Killed(BaseException):
    """Ends an attempt whose rows are written and not committed."""


def die_before_offsets(step: Step) -> None:
    if step is Step.OFFSETS:
        raise Killed


def copied(copy: Copy, partition: int, start: int, end: int, output: str) -> ArrowRows:
    rows = [row for row in copy.rows if row[0] == partition][start:end]
    columns = {"topic": [output] * len(rows), "key": [key.encode() for _, key, _ in rows]}
    places = {"partition": pa.array([partition] * len(rows), pa.int32())}
    values = [value for _, _, value in rows]
    return rows_of(values, (copy.source, partition, start), **{n: pa.array(c) for n, c in columns.items()}, **places)


def test_the_sink_is_clean(copy: Copy) -> None:
    query = Query(copy.bootstrap, copy.group, copy.source)
    with copy.watch() as watch:
        for batch, (start, end) in enumerate([(0, 5), (5, 15)]):
            lanes = [[copied(copy, p, start, end, output) for output in copy.outputs] for p in (0, 1)]
            dead, alive = query.run(), query.run()
            dead.open(batch, 2)
            with pytest.raises(Killed):
                query.lane(dead, batch, lanes[0], 0, 2, before_step=die_before_offsets)
            query.batch(alive, batch, lanes)
        findings = copy.check(watch)
    assert findings.anomalies == {}
    assert findings.figures["rows aborted or open"] > 0
    assert findings.figures["samples of committed offsets"] > 0


COMMAND = [sys.executable, "-m", "spark_eos.checker"]


def test_the_command(copy: Copy) -> None:
    asked = ["--bootstrap-servers", copy.bootstrap, "--input", copy.source, "--group", copy.group, "--watch", "1"]
    asked += [part for output in copy.outputs for part in ("--output", output)]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *asked, *more], capture_output=True, text=True, check=False, timeout=60)

    copy.write(copy.rows[1:])
    copy.done()
    wrong = run()
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "1 ✗" in wrong.stdout
    assert f"{copy.source}[0]@0" in wrong.stdout
    assert "\x1b" not in wrong.stdout, "no colours in a pipe"
    copy.write(copy.rows[:1])
    mended = json.loads(run("--json").stdout)
    assert mended["anomalies"] == {"disordered": 2}
    missing = run("--output", "nowhere")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == f"can't check: there is no topic nowhere on {copy.bootstrap}\n"


@pytest.mark.large
def test_a_watch_goes_on_when_the_broker_is_killed_and_comes_back() -> None:
    with EmbeddedKafka() as kafka:
        copy = Copy(kafka.bootstrap_servers, "in", ("a", "b"))
        for name in (copy.source, *copy.outputs):
            kafka.create_topic(name, partitions=2)
        copy.write(copy.rows, copy.source)
        with copy.watch() as watch:
            copy.write(copy.rows[:10])
            copy.done(5)
            until(lambda: seen(watch) == 20)
            kafka.kill(0)
            until(lambda: watch.offsets.interruptions > 0)
            kafka.restart(0)
            copy.write(copy.rows[10:])
            copy.done()
            until(lambda: seen(watch) == 2 * len(copy.rows))
            findings = copy.check(watch)
    assert findings.anomalies == {}
    assert findings.figures["samples that failed"] > 0


def test_a_reader_goes_on_where_it_was_when_its_offset_was_out_of_range(copy: Copy) -> None:
    """A new leader does not know for a moment what the one before it has given out."""
    output = copy.outputs[0]
    copy.write(copy.rows[:4], output)  # two rows in partition 0, and a control record
    with closing(Reader({"bootstrap.servers": copy.bootstrap}, "read_committed", {(output, 0): 4})) as reader:
        until(lambda: not reader.poll(0.1) and reader.interruptions > 0)
        copy.write(copy.rows[4:10], output)
        found = [message.offset() for part in reader.read_to({(output, 0): 6}, 20) for message in part]
    assert found == [4, 5]


def test_nobody_answers() -> None:
    with pytest.raises(CannotCheck, match="did not answer for 1 s"):
        check("127.0.0.1:1", ("in",), ("out",), wait_s=1)
