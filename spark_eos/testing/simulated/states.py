"""The states of a transaction at its coordinator, and which may follow which.

Kafka's own (KIP-98, `TransactionState`), but for those that its transactions v2 adds. PrepareCommit and PrepareAbort
are the durable decision: what follows them is fixed, whoever coordinates.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType


class State(Enum):
    """Where a transactional.id stands."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    COMPLETE_COMMIT = "CompleteCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def prepared(self) -> bool:
        """Decided, and the markers are under way."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def idle(self) -> bool:
        """No transaction is under way."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


_FROM_IDLE = frozenset({State.EMPTY, State.ONGOING, State.DEAD})

FOLLOWERS = MappingProxyType(
    {
        State.EMPTY: _FROM_IDLE,
        State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
        State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
        State.COMPLETE_COMMIT: _FROM_IDLE,
        State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
        State.COMPLETE_ABORT: _FROM_IDLE,
        State.DEAD: frozenset(),
    }
)
"""State to the states that may follow. Every other transition is an error."""

PREPARED = MappingProxyType({True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT})
"""Commit or not, to the decision."""

COMPLETED = MappingProxyType({True: State.COMPLETE_COMMIT, False: State.COMPLETE_ABORT})
"""Commit or not, to the end."""

JOURNAL_NAMES = MappingProxyType(
    {
        State.EMPTY: "INIT",
        State.ONGOING: "BEGIN",
        State.PREPARE_COMMIT: "PREPARE_COMMIT",
        State.COMPLETE_COMMIT: "COMMITTED",
        State.PREPARE_ABORT: "PREPARE_ABORT",
        State.COMPLETE_ABORT: "ABORTED",
        State.DEAD: "EXPIRED",
    }
)
"""What the coordinator's journal calls the entry of each state."""


class IllegalTransition(AssertionError):
    """The simulation itself is wrong: a state was followed by one that can't follow it."""


def check_transition(before: State, after: State) -> None:
    """Raise `IllegalTransition` unless one state may follow the other."""
    if after not in FOLLOWERS[before]:
        raise IllegalTransition(f"{before.value} is never followed by {after.value}")
