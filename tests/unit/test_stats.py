"""What a lane measures, and how long its transaction may be open: `run_lane` on ports without Kafka, and a clock that
moves only when a port or a row says so."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from spark_eos.errors import TransactionTooLong
from spark_eos.protocol.ledger import QueryRow
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.ports import LanePorts
from spark_eos.protocol.transaction import LaneReport, Outcome, run_lane

TASK = LaneTask(Run("q", "checkpoint", "run"), batch=7, lane=3, lanes=4, attempt=2)


class Rows(list):
    """Values without source positions."""

    def ranges(self):
        return ()

    def digests(self):
        return bytes(8 * len(self))

    def payload_bytes(self):
        return sum(map(len, self))


@dataclass
class World:
    """Both ports and the clock; `takes` says how many seconds each call takes, `calls` which there were."""

    takes: dict[str, float] = field(default_factory=dict)
    now: float = 1000.0
    calls: list[str] = field(default_factory=list)
    queue_waits: int = 0

    def _call(self, name):
        self.calls.append(name)
        self.now += self.takes.get(name, 0)

    def query(self):
        self._call("query")
        return QueryRow(TASK.batch, "checkpoint", "run", "then", 4)

    def lane(self, _):
        return self.query(), None

    def offsets(self, keys, stable=True):  # noqa: ARG002
        return dict.fromkeys(keys, 0)

    @contextmanager
    def open_transaction(self, _):
        yield self
        self._call("drop")

    def fence(self):
        self._call("fence")

    def begin(self):
        self._call("begin")

    def write(self, _):
        self.queue_waits += 1
        self._call("write")
        return 0

    def flush(self):
        self._call("flush")

    def commit_offsets(self, *_):
        self._call("offsets")

    def commit(self):
        self._call("commit")

    def abort(self):
        self._call("abort")

    def stream(self, pieces):
        """These rows; Spark takes `rows` seconds for each piece, and `end` to say that there are no more."""
        for piece in pieces:
            self.now += self.takes.get("rows", 0)
            yield Rows(piece)
        self.now += self.takes.get("end", 0)

    def run(self, *pieces, timeout_s=60.0):
        ports = LanePorts(self, self.open_transaction, timeout_s, lambda: self.now)
        return run_lane(TASK, self.stream(pieces), ports, before_step=lambda step: None)


def test_each_step_has_its_seconds_and_the_transaction_is_from_begin_to_the_commits_answer():
    takes = {"rows": 3, "query": 0.5, "fence": 0.25, "begin": 0.125, "write": 1, "end": 2, "flush": 4}
    stats = World(takes | {"offsets": 0.0625, "commit": 8, "drop": 100}).run(["a", "bc"], ["def"]).stats
    assert stats.seconds == {
        "peek": 3 + 0.5,
        "fence": 0.25,
        "check": 0.5,
        "write": 0.125 + 1 + 3 + 1 + 2,
        "flush": 4,
        "offsets": 0.0625,
        "commit": 8,
    }
    assert stats.transaction_seconds == 7.125 + 4 + 0.0625 + 8
    assert (stats.rows, stats.bytes, stats.attempt, stats.queue_waits) == (3, 6, 2, 2)


def test_a_lane_without_rows_has_no_transaction_to_tell_of():
    report = World({"end": 3}).run()
    assert (report.outcome, report.stats.seconds) == (Outcome.EMPTY, {"peek": 3})
    assert (report.stats.rows, report.stats.transaction_seconds) == (0, None)


def test_what_was_measured_survives_the_way_to_the_driver():
    report = World({"flush": 1 / 3}).run(["a"])
    assert report.stats.seconds["flush"] == 0.333333
    assert LaneReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("slow", ["rows", "write", "end", "flush", "offsets"])
def test_a_transaction_is_aborted_before_the_broker_would_end_it_wherever_the_time_went(slow):
    world = World({slow: 54})
    with pytest.raises(TransactionTooLong) as raised:
        # The first rows are computed before the transaction is opened.
        world.run(["a"], ["b"])
    told = str(raised.value)
    assert told.startswith(f"[query q, batch 7, lane 3] the transaction was open for 54.0 s while {raised_rows(slow)} ")
    for way_out in ("60 s (kafka.transaction.timeout.ms)", "maxOffsetsPerTrigger", "stage.rows=disk"):
        assert way_out in told
    assert world.calls[-1] == "abort"
    assert "commit" not in world.calls
    assert World({slow: 26}).run(["a"], ["b"]).outcome is Outcome.COMMITTED


def raised_rows(slow: str) -> str:
    return "1 rows" if slow in ("rows", "write") else "2 rows"


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.told, self.came = [], threading.Event()

    def emit(self, record):
        self.told.append(record.getMessage())
        self.came.set()


@pytest.fixture
def warnings():
    handler, logger = Warnings(), logging.getLogger("spark_eos.sink")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_warning_comes_at_half_of_the_timeout_while_the_task_still_waits_for_rows(warnings):
    world = World()

    def late():
        yield Rows("a")
        assert warnings.came.wait(30)
        yield Rows("b")

    world.stream = lambda pieces: late()
    assert world.run(timeout_s=0.2).outcome is Outcome.COMMITTED
    (told,) = warnings.told
    assert "[query q, batch 7, lane 3] the transaction has been open for 0.1 s, half of kafka.transaction." in told
    assert "At 0.18 s the lane fails" in told
    assert "stage.rows=disk" in told


@pytest.mark.parametrize("takes", [{}, {"rows": 54}])
def test_no_timer_outlives_its_transaction(takes):
    try:
        World(takes).run(["a"], ["b"])
    except TransactionTooLong:
        assert takes
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(30)
            assert not thread.is_alive()


# --- The extra ---

WITHOUT_EXTRA = """
import sys
sys.modules["prometheus_client"] = None
from spark_eos.errors import UsageError
try:
    import spark_eos.metrics
except UsageError as error:
    print(error)
"""


def output_of(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_metrics_without_the_extra_say_what_to_install_and_the_package_does_without():
    assert "pip install spark-eos[metrics]" in output_of(WITHOUT_EXTRA)
    assert output_of("import sys, spark_eos; print('prometheus_client' in sys.modules)") == "False"
