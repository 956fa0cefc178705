"""Cells of the fault matrix that share a pipeline: its faults in one life of the job, the verdict for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fault_cells import RunResult

Results = dict[str, list[RunResult]]
"""Of each cell, by its name."""


def by_cell(cells: Sequence[str], results: Sequence[RunResult]) -> Results:
    """What the checker found in a shared pipeline counts for each cell.

    Args:
        cells: the cell that each fault is of.
        results: of the faults, in that order; the last one has what the checker found.
    """
    found: Results = {}
    for cell, result in zip(cells, results, strict=True):
        told = replace(result, anomalies=results[-1].anomalies, examples=results[-1].examples)
        found.setdefault(cell, []).append(told)
    return found
