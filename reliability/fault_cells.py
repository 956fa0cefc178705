"""What a cell of the fault matrix is, what its runs tell, and how they are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline import Pipeline, World


@dataclass(frozen=True)
class RunResult:
    """One fault, and what came of it.

    Args:
        what: which fault, for a reader of the results.
        hit: whether it really happened. One that did not is an error of the harness, never a pass.
        recovery_s: from the fault (where it is a pause of the broker: from its end) to the commit of the batch that
            was hit, in seconds; None if that was never committed.
        limit_s: what `recovery_s` may be.
        anomalies: what the checker found, label to count. Where many runs share a pipeline, the last one has them.
    """

    what: str
    hit: bool
    recovery_s: float | None
    limit_s: float
    anomalies: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One kind of fault.

    Args:
        name: as `--only` takes it.
        what: a short description.
        runs: how many the full matrix has, at --runs 25; in proportion at others.
        run: does so many runs, planned from a seed.
        brokers: of the cluster it needs.
    """

    name: str
    what: str
    runs: int
    run: Callable[[World, int, int], list[RunResult]]
    brokers: int = 1


@dataclass(frozen=True)
class Verdict:
    """What a cell's runs come to.

    Args:
        runs, hit: how many faults were planned, and how many happened.
        anomalies: label to count; "slow" and "stuck" are batches that were committed too late or never.
        slowest_s: the slowest recovery, in seconds.
        missed: the faults that did not happen.
    """

    runs: int
    hit: int
    anomalies: Mapping[str, int]
    slowest_s: float
    missed: Sequence[str]


def judge(results: Sequence[RunResult]) -> Verdict:
    """Sum up a cell's runs."""
    anomalies: Counter[str] = Counter()
    for result in results:
        anomalies.update(result.anomalies)
        if result.hit and result.recovery_s is None:
            anomalies["stuck"] += 1
        elif result.hit and result.recovery_s > result.limit_s:
            anomalies["slow"] += 1
    missed = [result.what for result in results if not result.hit]
    slowest = max((result.recovery_s or 0.0 for result in results), default=0.0)
    found = {label: count for label, count in anomalies.items() if count}
    return Verdict(len(results), len(results) - len(missed), found, slowest, missed)


def marked(pipeline: Pipeline, name: str, batch: int, what: str, evidence: Sequence[str] = ()) -> RunResult:
    """The result of a fault that leaves a mark.

    Args:
        pipeline: where it was planned.
        name: of its mark.
        batch: the batch that it hits.
        what: for a reader.
        evidence: ends of the names of further marks, without which it was not the fault that was meant.
    """
    mark, done = pipeline.marks.read(name), pipeline.committed_at(batch)
    hit = mark is not None and all(pipeline.marks.read(name + each) for each in evidence)
    recovery_s = None if mark is None or done is None else done - mark["at"]
    return RunResult(f"batch {batch}: {what}", hit, recovery_s, pipeline.limit_s)


def with_anomalies(results: Sequence[RunResult], anomalies: Mapping[str, int]) -> list[RunResult]:
    """Runs that shared a pipeline, with what the checker found in it."""
    return [*results[:-1], replace(results[-1], anomalies=dict(anomalies))]
