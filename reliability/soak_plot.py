"""The picture of a soak, from what it wrote as it went: also of a run that was cut off.

python reliability/soak_plot.py build/soak docs/soak.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from soak_sample import ROLES

Sample = dict[str, Any]

COLOURS = dict(zip(ROLES, ("#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd"), strict=True))
DRIVER_KILL, WORKER_KILL = "#d62728", "#9a9a9a"


def read_lines(path: Path) -> list[Sample]:
    """JSON lines; the last one may be cut off."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def plot(samples: Sequence[Sample], kills: Sequence[Sample], target: Path, title: str) -> None:
    """Draw all panels, with the kills as lines through them.

    Args:
        samples: as `soak.py` writes them.
        kills: as well.
        target: PNG to write.
        title: above it.
    """
    panels = (_memory, _files, _threads, _held_records, _held_seconds, _ids, _lag, _rows)
    figure, axes = plt.subplots(len(panels), 1, sharex=True, figsize=(12, 17), layout="constrained")
    for panel, ax in zip(panels, axes, strict=True):
        _mark_kills(ax, kills)
        panel(ax, samples)
        ax.set_ylim(0, max(1, ax.get_ylim()[1]))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.grid(axis="y", alpha=0.3)
        ax.margins(x=0.01)
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    axes[-1].set_xlabel("minutes since the start")
    figure.suptitle(title, fontsize=13)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=100)
    plt.close(figure)


def _mark_kills(ax: Axes, kills: Sequence[Sample]) -> None:
    for what, colour, style in (("worker", WORKER_KILL, ":"), ("driver", DRIVER_KILL, "--")):
        times = [kill["at"] / 60 for kill in kills if kill["what"] == what]
        for number, at in enumerate(times):
            first = number == 0 and ax.get_subplotspec().rowspan.start == 0
            ax.axvline(at, color=colour, linestyle=style, linewidth=0.9, label=f"SIGKILL: {what}" if first else None)


def _series(samples: Sequence[Sample], group: str, name: str) -> tuple[list[float], list[float]]:
    """Minutes and values. A gap where nothing was running, but not where a figure is asked for less often."""
    points = [(s["at"] / 60, s[group] and s[group][name]) for s in samples if group in s]
    return [at for at, _ in points], [float("nan") if value is None else value for _, value in points]


def _by_role(name: str, title: str, unit: str) -> Callable[[Axes, Sequence[Sample]], None]:
    def panel(ax: Axes, samples: Sequence[Sample]) -> None:
        for role in ROLES:
            ax.plot(*_series(samples, role, name), color=COLOURS[role], label=role, linewidth=1.4)
        _describe(ax, title, unit)

    return panel


def _one(group: str, name: str, title: str, unit: str, colour: str) -> Callable[[Axes, Sequence[Sample]], None]:
    def panel(ax: Axes, samples: Sequence[Sample]) -> None:
        ax.plot(*_series(samples, group, name), color=colour, linewidth=1.4)
        _describe(ax, title, unit)

    return panel


def _describe(ax: Axes, title: str, unit: str) -> None:
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_ylabel(unit)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


_memory = _by_role("memory", "Resident memory (workers: sum)", "MiB")
_files = _by_role("files", "Open files (workers: sum)", "files")
_threads = _by_role("threads", "Threads (workers: sum)", "threads")
_held_records = _one(
    "held back", "records", "Held back by open transactions: high watermark − last stable offset", "records", "#8c564b"
)
_held_seconds = _one(
    "held back", "seconds", "How long the longest of them had been open (most since the sample before)", "s", "#8c564b"
)
_ids = _one("transactional ids", "known", "transactional.ids that the broker knows", "ids", "#17becf")
_lag = _one("topics", "lag", "Consumer lag of the query's group", "records", "#e377c2")


def _rows(ax: Axes, samples: Sequence[Sample]) -> None:
    ax.plot(*_series(samples, "topics", "produced"), color="#7f7f7f", label="sent by the load", linewidth=1.4)
    ax.plot(*_series(samples, "topics", "processed"), color="#000000", label="processed", linewidth=1.4)
    _describe(ax, "Input records so far (two rows are written for each)", "records")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plot(read_lines(folder / "samples.jsonl"), read_lines(folder / "kills.jsonl"), Path(sys.argv[2]), "Soak")
