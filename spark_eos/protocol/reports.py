"""What the reports of all lanes of a batch say together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_eos.errors import SparkEosError
from spark_eos.protocol.ledger import LaneRow
from spark_eos.protocol.positions import TopicPartition, is_aligned
from spark_eos.protocol.replay import check_replay
from spark_eos.protocol.transaction import LaneReport, Outcome


def aligned_after(before: bool | None, reports: Sequence[LaneReport]) -> bool | None:
    """Whether the lanes' own offset commits tell what was processed, in all batches so far (see `QueryRow`)."""
    rows = sum(report.fingerprint.rows for report in reports)
    if not rows:
        return before
    ranges = [report.ranges for report in reports]
    placed = sum(each.rows for ranges_of_lane in ranges for each in ranges_of_lane)
    return before is not False and placed == rows and is_aligned(ranges)


def went_back(reports: Iterable[LaneReport], starts: Mapping[TopicPartition, int]) -> bool:
    """Whether a row carries a position from before its batch, as a window's may that is closed now."""
    return any(each.first < starts.get(each.key, 0) for report in reports for each in report.ranges)


def check_present(committed: Mapping[int, LaneRow], reports: Iterable[LaneReport], *, keep: bool) -> None:
    """Hold that each lane that has committed the batch had rows: a lane without any does not look into the ledger.

    Raises:
        ReplayDiffers: one came back empty, or there is no such lane any more.
    """
    present = {report.lane for report in reports if report.outcome is not Outcome.EMPTY}
    check_replay({lane: row for lane, row in committed.items() if lane not in present}, {}, keep=keep)


def check_reports(batch: int, lanes: int, reports: Iterable[LaneReport]) -> None:
    """Hold that every lane of the batch has reported once, and nothing else has.

    Raises:
        SparkEosError: Spark did not run the lanes as planned; the batch stays unsealed.
    """
    listed = list(reports)
    wrong = [r for r in listed if r.batch != batch]
    if wrong or sorted(r.lane for r in listed) != list(range(lanes)):
        told = ", ".join(f"{r.batch}/{r.lane}" for r in listed) or "none"
        raise SparkEosError(
            f"{lanes} lanes were started, and the reports (batch/lane) are: {told}",
            do="Restart the query: what is committed is skipped. Report this; it is a bug in spark-eos or in Spark.",
            batch=batch,
        )
