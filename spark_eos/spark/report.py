"""What a batch did, told on the driver once it is sealed: one log line, and a call of whoever wants to know."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.protocol.names import Run
from spark_eos.protocol.transaction import LaneReport, Outcome

log = logging.getLogger("spark_eos.sink")


@dataclass(frozen=True)
class BatchReport:
    """A batch that this run has sealed.

    Args:
        query: query id.
        batch: micro-batch id, from 0.
        run: id of the query's run.
        lanes: each lane's report.
        seconds: "open", "lanes" (Spark's job) and "seal", in seconds.
        sealed_at: when it was sealed, seconds since 1970 by the driver's clock.
        planned_at: when Spark fixed which rows are in the batch, seconds since 1970: the time in the query's offset
            log, which a batch keeps when it is done again after a restart. None where the log can't be seen.
    """

    query: str
    batch: int
    run: str
    lanes: tuple[LaneReport, ...]
    seconds: Mapping[str, float]
    sealed_at: float
    planned_at: float | None = None

    @property
    def rows(self) -> int:
        """Rows written by this run's tasks: none of skipped lanes, and none that were dropped."""
        return sum(lane.stats.rows for lane in self.lanes)

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values of `rows`, before compression."""
        return sum(lane.stats.bytes for lane in self.lanes)

    @property
    def skipped(self) -> int:
        """Rows of lanes that an earlier attempt, in this run or one before, had committed."""
        return sum(lane.fingerprint.rows for lane in self.lanes if lane.outcome is Outcome.SKIPPED)

    @property
    def dropped(self) -> int:
        """Rows that were processed before the checkpoint was adopted."""
        return sum(lane.dropped for lane in self.lanes)

    @property
    def dead(self) -> int:
        """Rows that went to the dead letter topic."""
        return sum(lane.dead for lane in self.lanes)

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome to number of lanes, those that occur."""
        return dict(Counter(lane.outcome.value for lane in self.lanes))

    @property
    def retries(self) -> int:
        """Attempts that failed before the ones that report here, in this run of the query."""
        return sum(lane.stats.attempt for lane in self.lanes)

    @property
    def total_seconds(self) -> float:
        """From opening the batch to its seal."""
        return round(sum(self.seconds.values()), 6)

    @property
    def age(self) -> float | None:
        """Seconds from `planned_at` to the seal: the delay by planning, failures and restarts is in it."""
        return None if self.planned_at is None else round(self.sealed_at - self.planned_at, 3)

    def fields(self) -> dict[str, Any]:
        """As log formatters get it: plain values, the lanes counted only."""
        return {
            "query": self.query,
            "batch": self.batch,
            "run": self.run,
            "rows": self.rows,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "dropped": self.dropped,
            "dead": self.dead,
            "lanes": self.outcomes,
            "retries": self.retries,
            "seconds": {**self.seconds, "total": self.total_seconds},
            "age": self.age,
        }

    def __str__(self) -> str:
        lanes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())) or "none"
        counts = {
            "rows skipped": self.skipped,
            "rows dropped": self.dropped,
            "dead letters": self.dead,
            "task retries": self.retries,
        }
        more = "".join(f", {count} {what}" for what, count in counts.items() if count)
        parts = ", ".join(f"{part} {seconds:.3f}" for part, seconds in self.seconds.items())
        return (
            f"query {self.query}, batch {self.batch}: {self.rows} rows ({self.bytes} bytes){more}; lanes: {lanes}; "
            f"{self.total_seconds:.3f} s ({parts})"
        )


OnBatch = Callable[[BatchReport], object]
"""Called on the driver with each batch that was sealed; what it returns is ignored."""


def batch_report(
    run: Run, batch: int, lanes: Iterable[LaneReport], seconds: Mapping[str, float], planned_at: float | None
) -> BatchReport:
    """The report of a batch that was sealed just now; arguments as of `BatchReport`."""
    ordered = tuple(sorted(lanes, key=lambda lane: lane.lane))
    return BatchReport(run.query, batch, run.run, ordered, seconds, time.time(), planned_at)


def tell(report: BatchReport, on_batch: OnBatch | None) -> None:
    """Log a sealed batch, then call the user's callback.

    The batch is written whatever the callback does: an error of it would make Spark do the batch again for nothing,
    so it is logged and goes no further.
    """
    log.info("%s", report, extra={"spark_eos": report.fields()})
    for lane in report.lanes:
        log.debug("%s", _lane_text(report, lane), extra={"spark_eos": _lane_fields(report, lane)})
    if on_batch is None:
        return
    try:
        on_batch(report)
    except Exception:
        log.exception("query %s, batch %d is written; on_batch failed and is passed over", report.query, report.batch)


def _lane_fields(report: BatchReport, lane: LaneReport) -> dict[str, Any]:
    return {
        "query": report.query,
        "batch": report.batch,
        "run": report.run,
        "lane": lane.lane,
        "outcome": lane.outcome.value,
        "dropped": lane.dropped,
        "dead": lane.dead,
        "transaction_seconds": lane.stats.transaction_seconds,
        **lane.stats.to_json(),
    }


def _lane_text(report: BatchReport, lane: LaneReport) -> str:
    stats = lane.stats
    steps = ", ".join(f"{step} {seconds:.3f}" for step, seconds in stats.seconds.items())
    return (
        f"query {report.query}, batch {report.batch}, lane {lane.lane}: {lane.outcome.value}, {stats.rows} rows "
        f"({stats.bytes} bytes), attempt {stats.attempt}, {stats.queue_waits} waits for a full queue; seconds: {steps}"
    )
