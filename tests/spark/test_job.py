"""The refunds logic on a static DataFrame, the checker on real topics with seeded bugs, and the job as a process."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from check_refunds import Figures, check, main
from check_rules import expected
from chispa import assert_df_equality
from confluent_kafka import Producer
from generate_settlements import Event, generate, send
from job_process import exit_code, job
from refunds import output_rows

from spark_eos.checker.live import LiveReader
from spark_eos.checker.topic_log import Topics

HEADERS = "headers array<struct<key string, value binary>>"
SCHEMA = f"key binary, value binary, topic string, partition int, offset bigint, {HEADERS}"
SOURCE = "source struct<topic string, partition int, offset bigint>"
GOOD = {
    "settlement_id": "STL-1",
    "merchant": "MER-1",
    "sequence": 4,
    "amount_paise": 300_000,
    "refund_paise": 250_000,
    "reason": "order cancelled",
    "at": "2026-01-01T09:30:00Z",
}
JUNK = [
    *(b"{", b"}", b"[", b"]", b",", b'"', b":", b" ", b"\n", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"null", b"true", b"-1", b"0", b"00", b"-0", b".5", b"1.0", b"1e3", b"1e999", b"NaN", b"Infinity", b'""'),
    *(b"9223372036854775807", b"9223372036854775808", b"\\u0000", b"\\ud83d", b"'", b"//", b"{}", b'"merchant":"x",'),
]


def encoded(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


def source_rows(spark, events: Iterable[Event], headers: list[tuple[str, bytes]] | None = None):
    rows = [(key, value, "settlements", 0, offset, headers) for offset, (key, value) in enumerate(events)]
    return spark.createDataFrame(rows, SCHEMA)


def rows_for(settlements):
    return output_rows(settlements, refunds="R", audit="A", dead_letter="D")


# The logic


def test_a_refund_with_its_audit_row_and_nothing_when_none_is_due(spark) -> None:
    events = [(b"MER-1", encoded(refund_paise=0)), (b"MER-1", encoded())]
    found = rows_for(source_rows(spark, events)).selectExpr(
        "string(key) key", "string(value) value", "topic", "headers", "source"
    )
    number = '"refund_id":"RFD-bfc614aeda2fa2ac","settlement_id":"STL-1","merchant":"MER-1","sequence":4'
    refund = "{" + number + ',"amount_paise":250000,"at":"2026-01-01T09:30:00Z"}'
    audit = "{" + number + ',"actor":"refunds-job","reason":"order cancelled"}'
    position = ("settlements", 0, 1)
    wanted = spark.createDataFrame(
        [("MER-1", refund, "R", None, position), ("MER-1", audit, "A", None, position)],
        f"key string, value string, topic string, {HEADERS}, {SOURCE}",
    )
    assert_df_equality(found, wanted, ignore_nullable=True)


def test_a_dead_letter_is_the_event_as_it_came_with_the_reason(spark) -> None:
    came_with = [("trace", b"7")]
    found = rows_for(source_rows(spark, [(None, b"\xff")], came_with))
    names = ("reason", "source.topic", "source.partition", "source.offset")
    about = list(zip(names, (b"not UTF-8", b"settlements", b"0", b"0"), strict=True))
    wanted = spark.createDataFrame(
        [(None, b"\xff", "D", came_with + about, ("settlements", 0, 0))],
        f"key binary, value binary, topic string, {HEADERS}, {SOURCE}",
    )
    assert_df_equality(found, wanted, ignore_nullable=True)


def test_a_source_without_headers(spark) -> None:
    (letter,) = rows_for(source_rows(spark, [(b"k", b"")]).drop("headers")).collect()
    assert [header.key for header in letter.headers] == ["reason", "source.topic", "source.partition", "source.offset"]


def test_rows_stay_in_their_partition_and_order(spark) -> None:
    out = rows_for(source_rows(spark, generate(4, 500, 5)).repartitionByRange(3, "offset"))
    per_lane = out.rdd.glom().collect()
    offsets = [[row.source.offset for row in lane] for lane in per_lane]
    assert len(per_lane) == 3
    assert all(lane == sorted(lane) for lane in offsets)
    assert not set(offsets[0]) & set(offsets[1]) | set(offsets[1]) & set(offsets[2])


def test_the_job_and_the_checker_agree_on_damaged_events(spark) -> None:
    events = list(damaged(seed=11, count=3_000))
    found: dict[int, list[Any]] = {}
    for row in rows_for(source_rows(spark, events)).collect():
        found.setdefault(row.source.offset, []).append(row)
    differ = [
        (event, expected(*event), as_expected(found.get(offset, [])))
        for offset, event in enumerate(events)
        if expected(*event) != as_expected(found.get(offset, []))
    ]
    assert differ == []
    assert len({expected(*event) for event in events if isinstance(expected(*event), str)}) >= 12


def damaged(seed: int, count: int) -> Iterator[Event]:
    """Settlements with a few bytes replaced, mostly by things that JSON parsers disagree on."""
    rng = random.Random(seed)
    for key, value in generate(seed, count, 5):
        for _ in range(rng.choice((0, 1, 1, 2))):
            start = rng.randrange(len(value) + 1)
            value = value[:start] + rng.choice(JUNK) + value[start + rng.choice((0, 1, 5, 20)) :]  # noqa: PLW2901
        yield rng.choice((key,) * 30 + (b"", None)), _with_another_field_value(value, rng)


def _with_another_field_value(value: bytes, rng: random.Random) -> bytes:
    try:
        fields = json.loads(value)
        old = json.dumps(fields[rng.choice(sorted(fields))]).encode()
    except (ValueError, TypeError, KeyError, IndexError):
        return value
    return value.replace(old, rng.choice(JUNK), 1) if rng.random() < 0.4 else value


def as_expected(rows: list[Any]) -> Any:
    """What the job made of one event, in the checker's terms."""
    if len(rows) == 1:
        return next(bytes(header.value).decode() for header in rows[0].headers if header.key == "reason")
    return tuple(json.loads(row.value) for row in rows) or None


# The checker, on real topics


class Ledger:
    """The four topics of a job, and rows to write into them."""

    def __init__(self, bootstrap: str, topic: Callable[..., str]) -> None:
        self.bootstrap = bootstrap
        self.names = {"source": topic(2, name="settlements"), "refunds": topic(2, name="refunds")}
        self.names |= {"audit": topic(2, name="audit"), "dead_letter": topic(1, name="dead")}

    @property
    def outputs(self) -> Topics:
        return Topics(self.bootstrap, (self.names["refunds"], self.names["audit"], self.names["dead_letter"]))

    def settle(self, events: Iterable[Event]) -> None:
        send({"bootstrap.servers": self.bootstrap}, self.names["source"], events)

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Refund and audit rows that are due, in order, as topic and value."""
        settlements = Topics(self.bootstrap, (self.names["source"],)).read()
        pairs = [expected(entry.key, entry.value) for entry in settlements]
        kinds = (self.names["refunds"], self.names["audit"])
        return [row for pair in pairs if pair is not None for row in zip(kinds, pair, strict=True)]

    def write(self, rows: Iterable[tuple[str, dict[str, Any]]], commit: bool = True) -> None:
        """Rows in one transaction."""
        with self.transaction(rows) as producer:
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    @contextmanager
    def transaction(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Producer]:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.names["refunds"]}
        producer = Producer(settings | {"partitioner": "murmur2_random"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for topic, row in rows:
            producer.produce(topic, json.dumps(row).encode(), row["merchant"].encode())
        producer.flush()
        yield producer

    def check(self, **options: Any) -> Figures:
        return check(self.bootstrap, **self.names, **options)


@pytest.fixture
def ledger(kafka, topic) -> Ledger:
    ledger = Ledger(kafka.bootstrap_servers, topic)
    ledger.settle((key, value) for key, value in generate(3, 200, 2) if not isinstance(expected(key, value), str))
    return ledger


Rows = list[tuple[str, dict[str, Any]]]
BUGS: dict[str, tuple[Callable[[Rows], Rows], set[str]]] = {
    "none": (lambda rows: rows, set()),
    "lost": (lambda rows: rows[:10] + rows[12:], {"refunds lost", "audit rows lost"}),
    "duplicated": (lambda rows: [*rows, *rows[-2:]], {"refunds duplicated", "audit rows duplicated"}),
    "torn": (lambda rows: rows[:-1], {"audit rows lost", "refunds without audit row"}),
    "misordered": (lambda rows: rows[2:] + rows[:2], {"refunds out of order"}),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_checker_catches(ledger, bug, capsys) -> None:
    change, faults = BUGS[bug]
    ledger.write(change(ledger.rows()))
    assert set(ledger.check().faults) == faults
    with pytest.raises(typer.Exit) as ended:
        main(bootstrap_servers=ledger.bootstrap, **ledger.names, as_json=True)
    assert ended.value.exit_code == (1 if faults else 0)
    assert set(json.loads(capsys.readouterr().out)["faults"]) == faults


def test_aborted_rows_are_in_the_log_and_no_reader_saw_them(ledger) -> None:
    rows = ledger.rows()
    with LiveReader(ledger.outputs) as reader:
        ledger.write(rows[:20], commit=False)
        ledger.write(rows)
        seen = reader.finish()
    figures = ledger.check(seen=seen)
    assert (figures.faults, figures.aborted_rows, len(seen)) == ({}, 20, len(rows))
    uncommitted = {entry.position: 0 for entry in ledger.outputs.read("read_uncommitted")}
    assert ledger.check(seen=uncommitted).aborted_rows_seen == 20 + len(rows), "rows it saw with other values"


def test_an_open_transaction_is_reported(ledger) -> None:
    with ledger.transaction(ledger.rows()) as producer:
        figures = ledger.check(wait_s=0.5)
        assert figures.hanging_partitions == 4
        assert figures.refunds_lost == figures.refunds_expected == figures.aborted_rows / 2
        producer.abort_transaction()


# The job, as a process


def job_command(ledger: Ledger, folder: Path, trigger: str) -> list[str]:
    job = Path(__file__).parents[2] / "jobs" / "settlements_to_refunds.py"
    toml = {"bootstrap_servers": ledger.bootstrap, "query_id": ledger.names["refunds"], "max_offsets_per_trigger": 150}
    toml |= {"checkpoint": str(folder / "checkpoint"), "trigger": "1 hour"}
    topics = "\n".join(f'{name} = "{topic}"' for name, topic in ledger.names.items())
    config = folder / "job.toml"
    lines = (f"{key} = {json.dumps(value)}" for key, value in toml.items())
    config.write_text("\n".join(lines) + f"\n[topics]\n{topics}\n", encoding="utf-8")
    return [sys.executable, str(job), "--config", str(config), "--trigger", trigger]


def test_the_job_stopped_in_order_and_started_again(kafka, topic, tmp_path) -> None:
    ledger, log = Ledger(kafka.bootstrap_servers, topic), tmp_path / "job.log"
    events = list(generate(5, 1_000, 5))
    ledger.settle(events[:600])
    with LiveReader(ledger.outputs) as reader:
        with job(job_command(ledger, tmp_path, "0 seconds"), tmp_path) as process:
            _wait_for_line(log, "batch 2:")
            psutil.Process(process.pid).send_signal(signal.SIGTERM)
            assert exit_code(process, tmp_path) == 0, log.read_text(encoding="utf-8")[-3_000:]
        assert "ended" in log.read_text(encoding="utf-8")
        ledger.settle(events[600:])
        with job(job_command(ledger, tmp_path, "available-now"), tmp_path) as process:
            assert exit_code(process, tmp_path) == 0, log.read_text(encoding="utf-8")[-3_000:]
        figures = ledger.check(seen=reader.finish(), group=ledger.names["refunds"])
    assert figures.faults == {}
    assert (figures.settlements, figures.offsets_behind, figures.aborted_rows) == (1_000, 0, 0)
    assert figures.refunds_found > 300
    assert figures.dead_letters_found > 2
    assert "Traceback" not in log.read_text(encoding="utf-8")


def _wait_for_line(log: Path, text: str, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not (log.exists() and text in log.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-3_000:]
        time.sleep(0.1)


def test_the_checker_as_a_command_on_topics_that_do_not_exist(kafka) -> None:
    script = Path(__file__).parents[2] / "jobs" / "check_refunds.py"
    command = [sys.executable, str(script), "--bootstrap-servers", kafka.bootstrap_servers, "--refunds", "no-such"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no topic no-such" in done.stderr
