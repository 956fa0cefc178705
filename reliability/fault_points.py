"""Faults that a process of Spark does to itself: at a point of a lane in a worker, or of a batch in the driver.

Nothing is replaced: methods of the sink's own client are wrapped, so that the real one runs before or while the fault
happens. Each fault happens once. It leaves a mark, `marks/<batch>-<lane>` or `marks/<batch>-driver`, before it does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from spark_eos.kafka.producer import KafkaTransaction
from spark_eos.spark.run import SinkRun

STEPS = ("fence", "check", "write", "flush", "offsets", "commit", "report")
"""Points that are steps of the lane: the fault comes before them."""
BEGUN, HALF, COMMITTING = "begun", "half", "committing"
"""After begin; when some rows are in the log and some are not; and up to 5 ms into commit."""

KILL, EXECUTOR, STOP, CUT, HOLD = "kill", "executor", "stop", "cut", "hold"
"""SIGKILL of the worker; of its executor too; SIGSTOP and later SIGCONT; cut off from Spark, which starts another; and
for a harness that does the fault itself: the mark, and a wait for as long as there is a mark `hold-<lane>`."""

PLANNED, WRITTEN, SEALED = "planned", "written", "sealed"
"""Of the driver: the batch is in the offset log, not opened; its lanes are committed; sealed, not in the commit log."""

NEVER_S = 20
LONG_ENOUGH_S = 1.0
"""For a second attempt to come to a step, if it does."""


@dataclass(frozen=True)
class LaneFault:
    """One fault of one lane.

    Args:
        lane: which one.
        point: one of STEPS, or BEGUN, HALF, COMMITTING.
        action: KILL, EXECUTOR, STOP, CUT or HOLD.
        seconds: how long a STOP lasts; how long a CUT waits once the second attempt is at `meet`.
        meet: step of the second attempt that a CUT waits for, if it is ever reached.
    """

    lane: int
    point: str
    action: str = KILL
    seconds: float = 0.0
    meet: str = "fence"


@dataclass(frozen=True)
class Marks:
    """What happened, as files that outlive whoever wrote them."""

    folder: str

    def write(self, name: str, **facts: Any) -> None:
        """Appear at once and whole."""
        path = Path(self.folder, name)
        draft = path.with_name(f".{name}-{os.getpid()}-{threading.get_ident()}")
        draft.write_text(json.dumps({"at": time.time(), "pid": os.getpid(), **facts}))
        draft.rename(path)

    def read(self, name: str) -> dict[str, Any] | None:
        path = Path(self.folder, name)
        with suppress(FileNotFoundError):
            return dict(json.loads(path.read_text()))
        return None

    def remove(self, name: str) -> None:
        Path(self.folder, name).unlink()


@dataclass(frozen=True)
class WorkerFaults:
    """For `before_step`: does the planned faults of each lane, once.

    Args:
        plan: batch to faults.
        folder: of the marks.
    """

    plan: Mapping[int, Sequence[LaneFault]]
    folder: str

    def __call__(self, step: str, task: Any) -> None:
        for fault in self.plan.get(task.batch, ()):
            if fault.lane == task.lane:
                _Attempt(fault, Marks(self.folder), f"{task.batch}-{task.lane}").comes_to(step)


@dataclass(frozen=True)
class _Attempt:
    fault: LaneFault
    marks: Marks
    name: str

    def comes_to(self, step: str) -> None:
        done = self.marks.read(self.name)
        if done is None:
            if step == self.fault.point:
                self._act()
            elif step == "peek" and self.fault.point in ARMS:
                ARMS[self.fault.point](self)
        elif done["pid"] != os.getpid():
            self.marks.write(f"{self.name}.second-{step}")

    def _act(self) -> None:
        self.marks.write(self.name, point=self.fault.point, action=self.fault.action)
        ACTIONS[self.fault.action](self)

    # --- points that are no steps ------------------------------------------------------------------------------

    def arm_begun(self) -> None:
        def begun(transaction: KafkaTransaction, real: Callable[..., Any]) -> None:
            real(transaction)
            self._act()

        _wrap("begin", begun)

    def arm_half(self) -> None:
        calls = []

        def half(transaction: KafkaTransaction, real: Callable[..., Any], rows: Any) -> Any:
            if calls:
                transaction.flush()  # what was written so far is in the log
                self._act()
            calls.append(1)
            return real(transaction, rows)

        _wrap("write", half)

    def arm_committing(self) -> None:
        def committing(transaction: KafkaTransaction, real: Callable[..., Any]) -> None:
            delay = random.uniform(0, 0.005)
            threading.Timer(delay, self._act).start()
            real(transaction)
            time.sleep(NEVER_S)

        _wrap("commit", committing)

    # --- actions ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def executor(self) -> None:
        """The executor's JVM, then the processes between it and this one."""
        parents = psutil.Process().parents()
        place = next(i for i, each in enumerate(parents) if "CoarseGrainedExecutorBackend" in str(each.cmdline()))
        for process in reversed(parents[: place + 1]):
            process.kill()
        self.kill()

    def stop(self) -> None:
        _stop(os.getpid(), self.fault.seconds)
        self.marks.write(f"{self.name}.resumed")

    def cut(self) -> None:
        """Spark takes the task for failed and would end this process; it stays, and goes on beside the second one."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        port = int(os.environ["PYTHON_WORKER_FACTORY_PORT"])  # with spark.python.use.daemon=false
        for connection in psutil.Process().net_connections("inet"):
            if connection.raddr and connection.raddr.port == port:
                with socket.socket(fileno=os.dup(connection.fd)) as to_spark:
                    to_spark.shutdown(socket.SHUT_RDWR)
        self._wait_for("second-peek", NEVER_S)
        self._wait_for(f"second-{self.fault.meet}", LONG_ENOUGH_S)
        time.sleep(self.fault.seconds)
        self.marks.write(f"{self.name}.resumed")

    def hold(self) -> None:
        _wait(lambda: self.marks.read(f"{HOLD}-{self.fault.lane}") is None, NEVER_S)

    def _wait_for(self, mark: str, limit_s: float) -> None:
        _wait(lambda: self.marks.read(f"{self.name}.{mark}") is not None, limit_s)


ARMS: dict[str, Callable[[_Attempt], None]] = {
    BEGUN: _Attempt.arm_begun,
    HALF: _Attempt.arm_half,
    COMMITTING: _Attempt.arm_committing,
}
ACTIONS: dict[str, Callable[[_Attempt], None]] = {
    KILL: _Attempt.kill,
    EXECUTOR: _Attempt.executor,
    STOP: _Attempt.stop,
    CUT: _Attempt.cut,
    HOLD: _Attempt.hold,
}


def _wrap(method: str, around: Callable[..., Any]) -> None:
    real = getattr(KafkaTransaction, method)
    setattr(KafkaTransaction, method, lambda transaction, *given: around(transaction, real, *given))


def _wait(until: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not until() and time.monotonic() < deadline:
        time.sleep(0.002)


def _stop(pid: int, seconds: float) -> None:
    """SIGSTOP; SIGCONT comes from a process of its own, so that it comes whatever becomes of this one."""
    subprocess.Popen(["/bin/sh", "-c", f"sleep {seconds}; kill -CONT {pid}"], start_new_session=True)
    os.kill(pid, signal.SIGSTOP)


@dataclass(frozen=True)
class DriverFaults:
    """SIGKILL of driver and JVM, once at the planned point of a batch; Python workers are left to themselves.

    Args:
        plan: batch to PLANNED, WRITTEN or SEALED.
        folder: of the marks.
    """

    plan: Mapping[int, str]
    folder: str

    def around(self, sink: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """The sink, with the points before it opens a batch and before it seals one."""
        real = SinkRun.seal

        def seal(run: SinkRun, batch: int, *given: Any) -> None:
            self._come_to(WRITTEN, batch)
            real(run, batch, *given)

        SinkRun.seal = seal  # type: ignore[method-assign]

        def write(df: Any, batch: int) -> None:
            self._come_to(PLANNED, batch)
            sink(df, batch)

        return write

    def sealed(self, batch: int) -> None:
        """To be called once a batch is sealed, before Spark notes that it is done."""
        self._come_to(SEALED, batch)

    def _come_to(self, point: str, batch: int) -> None:
        marks, name = Marks(self.folder), f"{batch}-driver"
        if self.plan.get(batch) == point and marks.read(name) is None:
            marks.write(name, point=point)
            os.killpg(0, signal.SIGKILL)
