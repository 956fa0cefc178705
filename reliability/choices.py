"""Who decides what happens in a simulated run: a seed, or a search through everything that could happen."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType


class Pruned(BaseException):
    """What follows from here was searched before."""


class Choices:
    """Answers of one run, in order: always 0, what happens on a good day, unless a subclass answers otherwise.

    `taken` has every answer, so that `Replay(taken)` makes the same run.
    """

    def __init__(self) -> None:
        self.taken: list[int] = []

    def choose(self, moment: str, options: Sequence[str]) -> int:
        """One of some options, by its index."""
        if len(options) == 1:
            return 0
        answer = self._answer(moment, options)
        self.taken.append(answer)
        return answer

    def at(self, state: Callable[[], Hashable]) -> None:
        """Told, before each choice of who goes on, how to get the state of the run."""

    def recover(self) -> None:
        """Told when no further mishaps are wanted: the query is restarted until it is through."""

    def _answer(self, moment: str, options: Sequence[str]) -> int:
        """As `choose`, of two options at least."""
        del moment, options
        return 0


class Dice(Choices):
    """A seeded run.

    Args:
        seed: the same one, the same run.
        restless: how often something else than on a good day happens, where it could.
        moments: what a moment's name begins with, to how often it is instead.
        rare: what happens more seldom, a fifth as often: it could happen nearly always, and would use up all mishaps.
    """

    def __init__(
        self,
        seed: int,
        restless: float = 0.25,
        moments: Mapping[str, float] = MappingProxyType({}),
        rare: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._dice, self._restless, self._moments, self._rare = random.Random(seed), restless, moments, rare

    def _answer(self, moment: str, options: Sequence[str]) -> int:
        restless = next((often for name, often in self._moments.items() if moment.startswith(name)), self._restless)
        return self._mishap(options) if self._dice.random() < restless else 0

    def _mishap(self, options: Sequence[str]) -> int:
        found = self._dice.randrange(1, len(options))
        return 0 if options[found] in self._rare and self._dice.random() < 0.8 else found


class Replay(Choices):
    """A run with known answers; after the last one, a good day."""

    def __init__(self, answers: Sequence[int]) -> None:
        super().__init__()
        self._answers = answers

    def _answer(self, moment: str, options: Sequence[str]) -> int:
        del moment, options
        place = len(self.taken)
        return self._answers[place] if place < len(self._answers) else 0


class Search:
    """All runs, depth first, each state once.

    A run begins anew each time and follows a prefix of answers. Where it comes to a state (what the brokers, the
    network and every process know) from which all was searched, it ends: what follows is known.
    """

    def __init__(self) -> None:
        self.seen: set[Hashable] = set()
        self._next: list[int] | None = []

    def runs(self) -> Iterator[Path]:
        """Each run's choices, until there is nothing new."""
        while self._next is not None:
            path = Path(self._next, self.seen)
            yield path
            self._next = path.successor()


class Path(Choices):
    """One run of a search. Its recovery is a good day: what can come between there, the seeded runs try."""

    def __init__(self, prefix: Sequence[int], seen: set[Hashable]) -> None:
        super().__init__()
        self._prefix, self._seen = prefix, seen
        self._counts: list[int] = []
        self._recovering = False

    def choose(self, moment: str, options: Sequence[str]) -> int:
        return 0 if self._recovering else super().choose(moment, options)

    def recover(self) -> None:
        self._recovering = True

    def _answer(self, moment: str, options: Sequence[str]) -> int:
        del moment
        place = len(self.taken)
        self._counts.append(len(options))
        return self._prefix[place] if place < len(self._prefix) else 0

    def at(self, state: Callable[[], Hashable]) -> None:
        """End the run where it comes, beyond its prefix, to a state that was searched."""
        if self._recovering or len(self.taken) < len(self._prefix):
            return
        here = state()
        if here in self._seen:
            raise Pruned
        self._seen.add(here)

    def successor(self) -> list[int] | None:
        """The prefix of the next run: the last choice that has an option left, with that option."""
        for place in reversed(range(len(self.taken))):
            if self.taken[place] + 1 < self._counts[place]:
                return [*self.taken[:place], self.taken[place] + 1]
        return None
