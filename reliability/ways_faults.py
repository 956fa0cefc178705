"""Faults of a batch that are made in its own processes: before, between and after the commits of its lanes.

Each is done once, and leaves a mark. What it raises is a `WaysFault`, to be told from the sink's errors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from faulty_format import faulty_format
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from ways_life import Fault

from spark_eos import KafkaSink
from spark_eos.protocol.transaction import LaneReport, Outcome
from spark_eos.spark.run import SinkRun
from spark_eos.spark.source import KafkaEosDataSource
from spark_eos.spark.writer import KafkaEosStreamWriter, KafkaEosWriter

BEFORE, BETWEEN, AFTER, SEALED = "before", "between", "after", "sealed"
"""Of no lane's commit; of one lane's and the others'; of all lanes', not sealed; sealed, not in Spark's commit log."""
POINTS = (BEFORE, BETWEEN, AFTER, SEALED)
STEPS = {"fence": 3, "check": 2, "write": 3, "flush": 1, "offsets": 1}
"""Before which lanes fail, of BEFORE and BETWEEN; and how often each is drawn. Lanes that are killed beside one that
fails at one of the last two hold readers back until their transactions' timeout."""
HIT = "hit"
WAIT_S = 10.0
LOOK_EVERY_S = 0.005


class WaysFault(Exception):
    """What was planned to happen."""


@dataclass(frozen=True)
class Marks:
    """Files in a folder: who was first, and what happened."""

    folder: str

    def take(self, name: str, text: str = "") -> bool:
        """Whether this is the first to come."""
        try:
            file = os.open(Path(self.folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(file, "w") as opened:
            opened.write(text)
        return True

    def read(self, name: str) -> str | None:
        with suppress(FileNotFoundError):
            return Path(self.folder, name).read_text()
        return None


@dataclass(frozen=True)
class LaneFault:
    """For `before_step`: lanes of one batch fail, the batch that comes to it first."""

    fault: Fault

    def __call__(self, step: str, task: Any) -> None:
        marks = Marks(self.fault.folder)
        if marks.read(HIT) not in (None, "", str(task.batch)):
            return
        if step == self.fault.step and self.fault.point == BEFORE:
            self._act(marks, task)
        if step == self.fault.step and self.fault.point == BETWEEN and not marks.take(f"first-{task.batch}"):
            _wait(lambda: marks.read(f"committed-{task.batch}") is not None)
            self._act(marks, task)
        if self.fault.point == BETWEEN and step == "report":
            marks.take(f"committed-{task.batch}")

    def _act(self, marks: Marks, task: Any) -> None:
        marks.take(HIT, str(task.batch))
        raise WaysFault(f"WaysFault: lane {task.lane} of batch {task.batch} fails, {self.fault.point} the commits")


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not until() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)


def sealing(fault: Fault, batch: int, wrote: bool, seal: Callable[[], Any]) -> None:
    """Seal a batch, and fail before or after it if that is planned.

    Args:
        fault: the plan.
        batch: which one.
        wrote: whether a lane of it has committed now; only such a batch is hit.
        seal: what seals it.
    """
    hit = wrote and fault.point in (AFTER, SEALED) and Marks(fault.folder).take(HIT, str(batch))
    if not (hit and fault.point == AFTER):
        seal()
    if hit:
        raise WaysFault(f"WaysFault: batch {batch} fails, {fault.point}")


def _committed(reports: Iterable[LaneReport | None]) -> bool:
    return any(report is not None and report.outcome is Outcome.COMMITTED for report in reports)


class FaultySink:
    """A KafkaSink with faults."""

    def __init__(self, options: dict[str, str], fault: Fault) -> None:
        self._fault = fault
        self._sink = KafkaSink(options, before_step=LaneFault(fault))

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        real = SinkRun.seal

        def seal(run: SinkRun, batch: int, reports: Sequence[Any], *given: Any, **named: Any) -> None:
            sealing(self._fault, batch, _committed(reports), partial(real, run, batch, reports, *given, **named))

        SinkRun.seal = seal  # type: ignore[method-assign]
        try:
            self._sink(df, batch_id)
        finally:
            SinkRun.seal = real  # type: ignore[method-assign]


def faulty_ways_format(fault: Fault) -> type[KafkaEosDataSource]:
    """The data source `kafka-eos-faulty`, to be registered: faults in its tasks, and around its seals."""

    class FaultyStreamWriter(KafkaEosStreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:
            seal = partial(super().commit, messages, batchId)
            sealing(fault, batchId, _committed(map(_report, messages)), seal)

    class FaultyWriter(KafkaEosWriter):
        def commit(self, messages: list[Any]) -> None:
            sealing(fault, 0, _committed(map(_report, messages)), partial(super().commit, messages))

    class FaultyFormat(faulty_format(LaneFault(fault))):  # type: ignore[misc]
        def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaEosStreamWriter:
            writer = super().streamWriter(schema, overwrite)
            writer.__class__ = FaultyStreamWriter
            return writer

        def writer(self, schema: StructType, overwrite: bool) -> KafkaEosWriter:
            writer = super().writer(schema, overwrite)
            opened = writer._opened
            writer._opened = replace(opened, job=replace(opened.job, before_step=LaneFault(fault)))
            writer.__class__ = FaultyWriter
            return writer

    return FaultyFormat


def _report(message: Any) -> LaneReport | None:
    return getattr(message, "report", None)
