"""What a cell of the fault matrix is, what its runs tell, and how they are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline import Pipeline, World

from spark_eos.checker import Findings


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
        examples: a few places for each label.
    """

    what: str
    hit: bool
    recovery_s: float | None
    limit_s: float
    anomalies: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, list[str]] = field(default_factory=dict)


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
        examples: places of anomalies, label to a few; runs of those that are slow or stuck.
    """

    runs: int
    hit: int
    anomalies: Mapping[str, int]
    slowest_s: float
    missed: Sequence[str]
    examples: Mapping[str, list[str]]


def judge(results: Sequence[RunResult], in_time: bool = True) -> Verdict:
    """Sum up a cell's runs.

    Args:
        results: of the runs.
        in_time: whether a batch that is committed too late is an anomaly. On a machine that is busy with other tests
            it says nothing.
    """
    anomalies: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for result in results:
        anomalies.update(result.anomalies)
        for label, found in result.examples.items():
            examples.setdefault(label, []).extend(found)
        late = _late(result)
        if late and (in_time or late != "slow"):
            anomalies[late] += 1
            examples.setdefault(late, []).append(result.what)
    missed = [result.what for result in results if not result.hit]
    slowest = max((result.recovery_s or 0.0 for result in results), default=0.0)
    return Verdict(len(results), len(results) - len(missed), dict(anomalies), slowest, missed, examples)


def _late(result: RunResult) -> str | None:
    if not result.hit:
        return None
    if result.recovery_s is None:
        return "stuck"
    return "slow" if result.recovery_s > result.limit_s else None


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


def with_findings(results: Sequence[RunResult], findings: Findings) -> list[RunResult]:
    """Runs that shared a pipeline, with what the checker found in it."""
    last = replace(results[-1], anomalies=findings.anomalies, examples=findings.examples)
    return [*results[:-1], last]
