"""The way on that each refusal names: what an operator does who reads the error, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ways_axes import CODE, GROUP, QUERY, Combination
from ways_judge import Anomaly
from ways_life import CONNECT, FOREACH, WRITE
from ways_pipelines import Pipeline

from spark_eos import errors

NAME = re.compile(r"spark_eos\.errors\.(\w+): ")
SETTING = re.compile(r"(spark\.sql\.[\w.]+)=(\w+)")
ENTRIES = re.compile(r"entries (\d+) and above")
ADOPT, START = {"on.other.checkpoint": "adopt"}, {"on.missing.ledger": "start"}
KEEP, PASS = {"on.replay.differs": "keep"}, {"on.skipped.batch": "pass"}


@dataclass(frozen=True)
class Refusal:
    """What a query ended with, where that is a refusal that says how to go on."""

    name: str
    text: str

    @classmethod
    def of(cls, error: str) -> Refusal:
        """The refusal in an error's text.

        Raises:
            Anomaly: there is none.
        """
        found = list(NAME.finditer(error))
        if not found:
            raise Anomaly(f"no error of spark_eos: {_shortly(error)}")
        name, text = found[-1].group(1), error[found[-1].end() :]
        kind = getattr(errors, name, errors.SparkEosError)
        if not issubclass(kind, (errors.LedgerRefusal, errors.UsageError)):
            raise Anomaly(f"{name} is no refusal: {_shortly(text)}")
        if "What to do:" not in text:
            raise Anomaly(f"{name} does not say what to do: {_shortly(text)}")
        return cls(name, text)

    def names(self, option: dict[str, str]) -> bool:
        """Whether the error names an option with its value."""
        return all(f"{name}={value}" in self.text for name, value in option.items())


def _shortly(error: str) -> str:
    """The part of an error that tells what it is, of Spark's many lines."""
    lines = [line.strip() for line in error.splitlines() if re.search(r"Error|Exception|\[[A-Z_]{6,}", line)]
    return " … ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))[:600] or error[:600]


class Operator(Protocol):
    """What can be done to a query between two starts."""

    combination: Combination
    pipeline: Pipeline

    @property
    def changed(self) -> bool:
        """Whether it is set up in another way than before the fault."""

    def undo(self) -> str:
        """Set it up as it was, the newest checkpoint included."""

    def without(self, option: str) -> str:
        """Leave an option of the sink out, from now on."""

    def set_conf(self, name: str, value: str) -> str:
        """A setting of Spark's session, from now on."""

    def with_once(self, options: dict[str, str]) -> str:
        """Options of the sink for the next start alone."""

    def run_again(self, batch: int) -> str:
        """Have Spark run a batch again that it takes for done, and let the sink's errors through."""

    def with_own_ids(self) -> str:
        """Give each sink a query.id of its own."""


def _as_before(operator: Operator, refusal: Refusal) -> str:
    if not operator.changed:
        raise Anomaly(f"{refusal.name}, and nothing was changed: {_shortly(refusal.text)}")
    return operator.undo()


def _as_before_or_adopted(operator: Operator, refusal: Refusal) -> str:
    chosen = operator.combination
    can = chosen.positions and chosen.way != CONNECT + FOREACH and refusal.names(ADOPT)
    if chosen.second_way and can:
        return operator.with_once(ADOPT)
    return _as_before(operator, refusal)


def _as_before_or_kept(operator: Operator, refusal: Refusal) -> str:
    chosen = operator.combination
    if chosen.second_way and chosen.change == CODE and refusal.names(KEEP):
        return operator.with_once(KEEP)
    return _as_before(operator, refusal)


def _batch_run_again(operator: Operator, refusal: Refusal) -> str:
    if operator.pipeline.use in ("late", "left-out") and refusal.names(PASS):
        return operator.with_once(PASS)
    entries = ENTRIES.search(refusal.text)
    if not entries:
        raise Anomaly(f"{refusal.name} does not say which entries to remove: {_shortly(refusal.text)}")
    return operator.run_again(int(entries.group(1)))


def _old_group_or_started(operator: Operator, _: Refusal) -> str:
    if operator.changed and operator.combination.change in (GROUP, QUERY):
        return operator.undo()
    return operator.with_once(START)


def _as_before_or_own_group(operator: Operator, refusal: Refusal) -> str:
    if operator.combination.way == WRITE:
        return operator.without("group.id")
    return _as_before(operator, refusal)


def _set_up_as_it_says(operator: Operator, refusal: Refusal) -> str:
    setting = SETTING.search(refusal.text.partition("What to do:")[2])
    if not setting:
        raise Anomaly(f"{refusal.name} names no setting: {_shortly(refusal.text)}")
    return operator.set_conf(*setting.groups())


WAYS_ON: dict[str, Callable[[Operator, Refusal], str]] = {
    "SplitChanged": _as_before_or_adopted,
    "ReplayDiffers": _as_before_or_kept,
    "CheckpointBehind": _as_before_or_adopted,
    "OtherCheckpoint": _as_before,
    "OtherQuery": _as_before_or_own_group,
    "BatchAbandoned": _batch_run_again,
    "LedgerLost": _old_group_or_started,
    "SecondWrite": lambda operator, _: operator.with_own_ids(),
    "UnsupportedError": _set_up_as_it_says,
}
"""The error's name to what does what it says, and tells that in a few words."""


def taken(operator: Operator, refusal: Refusal) -> str:
    """Take the way on that a refusal names; what was done.

    Raises:
        Anomaly: it names none that could be taken.
    """
    if refusal.name not in WAYS_ON:
        raise Anomaly(f"no way on is known for {refusal.name}: {_shortly(refusal.text)}")
    return WAYS_ON[refusal.name](operator, refusal)
