"""Whether what is to be seen is what must be: every row once, and each batch of one version of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

VERSIONS = (1, 2)


class Anomaly(Exception):
    """A combination did not end as it must; the text says how."""


def _bare(rows: Counter[str]) -> Counter[str]:
    """Rows without the version of the code that wrote them."""
    found: Counter[str] = Counter()
    for text, count in rows.items():
        found[text.partition("|")[2]] += count
    return found


def amiss(visible: Counter[str], wanted: Sequence[Sequence[str]], *, changed: bool, torn: bool = False) -> str:
    """What is wrong with the rows; empty if nothing is.

    Args:
        visible: rows as `v1|out`.
        wanted: the texts `out` of each chunk.
        changed: whether the code changed on the way, so that a chunk may have been written by either version.
        torn: whether lanes of one batch may be of different versions, since the operator said so.
    """
    all_wanted = Counter(text for chunk in wanted for text in chunk)
    told = [_told("lost", all_wanted - _bare(visible)), beyond(visible, wanted)]
    if any(told):
        return ", ".join(filter(None, told))
    if torn or visible in _all_versions(wanted, changed=changed):
        return ""
    return f"batches are torn between versions of the code: {_some(visible)}"


def beyond(visible: Counter[str], wanted: Sequence[Sequence[str]]) -> str:
    """Rows that must not be there, while others may still be missing; empty if there are none."""
    all_wanted = Counter(text for chunk in wanted for text in chunk)
    more = _bare(visible) - all_wanted
    foreign = Counter({text: count for text, count in more.items() if text not in all_wanted})
    return ", ".join(filter(None, (_told("doubled", more - foreign), _told("foreign", foreign))))


def _all_versions(wanted: Sequence[Sequence[str]], *, changed: bool) -> list[Counter[str]]:
    choices = product(VERSIONS if changed else VERSIONS[:1], repeat=len(wanted))
    return [
        Counter(f"v{version}|{text}" for version, chunk in zip(choice, wanted, strict=True) for text in chunk)
        for choice in choices
    ]


def _told(what: str, rows: Counter[str]) -> str:
    return f"{rows.total()} rows {what} ({_some(rows)})" if rows else ""


def _some(rows: Counter[str]) -> str:
    return " ".join(sorted(rows)[:6]) + (" …" if len(rows) > 6 else "")
