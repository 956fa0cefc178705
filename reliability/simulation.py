"""One simulated run, from its choices to its verdict: attempts of a lane, drivers, or whatever a seed brings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from choices import Choices, Dice, Pruned, Search
from processes import MISHAPS, ScheduledNetwork, Scheduler, Stuck
from simulated_query import Anomaly, Checkpoint, Driver, Query, Watch

from spark_eos.errors import SparkEosError
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.transaction import LaneReport
from spark_eos.testing.simulated.brokers import Brokers
from spark_eos.testing.simulated.kafka import SimulatedKafka
from spark_eos.testing.simulated.network import FAIL_OVER, TIME_OUT, Api

END_TXN = frozenset({Api.END_TXN})
ENDS = END_TXN | {Api.TXN_OFFSET_COMMIT}
"""Requests that do harm in a later transaction of their producer, if they are late."""
UNCERTAIN = 0.3
"""How often one of these meets a mishap in a seeded run, while there may be any: it is what matters most."""

RESTARTS = 6
"""How often a query is started again at the end, without further mishaps, before it is given up."""


@dataclass(frozen=True)
class Bounds:
    """How much may go wrong in one run.

    Args:
        kills: processes that are killed.
        faults: requests that are lost, late or twice; coordinators that fail over; clocks that jump.
        faulty: the kinds of requests that it may be.
        mishaps: which mishaps it may be.
        tries: how often a client asks that gets no answer; with 1, a lost answer leaves a commit unconfirmed.
        switches: how often a process that could go on is interrupted by another one; None for as often as you like.
        lag: how many steps processes take while markers are still to be written; None for as many as you like.
    """

    kills: int = 1
    faults: int = 1
    faulty: frozenset[Api] = frozenset(Api)
    mishaps: frozenset[str] = MISHAPS
    tries: int = 2
    switches: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class Verdict:
    """How a run ended: what does not hold, or nothing; and what happened."""

    anomaly: str
    trace: tuple[str, ...]
    taken: tuple[int, ...]


class Simulation:
    """A query, its brokers and its processes, under some choices."""

    def __init__(self, choices: Choices, bounds: Bounds, checkpoint: Checkpoint) -> None:
        self.choices, self.bounds = choices, bounds
        self.network = ScheduledNetwork(Brokers(), choices, bounds.faults, bounds.faulty, bounds.mishaps)
        self.kafka = SimulatedKafka(network=self.network, tries=bounds.tries)
        self.query = Query(self.kafka, checkpoint)
        self.watch = Watch(self.query)
        self.reports: list[LaneReport] = []
        self.scheduler = Scheduler(
            choices, self.network, self.watch, bounds.kills, switches=bounds.switches, lag=bounds.lag
        )

    def driver(self, name: str, twice: bool = False) -> Driver:
        """A driver whose reports count; see `Driver`."""
        return Driver(self.query, self.scheduler, name, twice, self.reports)

    def run(self, start: Callable[[Simulation], None]) -> Verdict:
        """Start processes, run them, restart the query until it is through, and judge.

        Raises:
            Pruned: the search has been here before.
        """
        try:
            start(self)
            self.scheduler.run()
            self._recover()
            self.watch.at_the_end(self.reports)
            self._unexpected()
        except (Anomaly, Stuck) as found:
            return self._verdict(str(found))
        finally:
            self.scheduler.end()
        return self._verdict("")

    def _recover(self) -> None:
        """No mishaps any more but what is still on its way: it may arrive whenever it likes."""
        self.network.faults = self.scheduler.kills = 0
        self.scheduler.switches = self.scheduler.lag = None
        self.choices.recover()
        checkpoint = self.query.checkpoint
        for number in range(RESTARTS):
            if checkpoint.committed < len(checkpoint.batches):
                self.scheduler.start(f"recovery {number}", self.driver(f"recovery {number}"))
                self.scheduler.run()
        if checkpoint.committed < len(checkpoint.batches):
            raise Anomaly(f"10 no way on: {checkpoint.committed} batches after {RESTARTS} restarts")
        while self.network.late:
            self.network.deliver_late(self.network.late[0])
        self.kafka.brokers.time_out()
        self.kafka.settle()

    def _unexpected(self) -> None:
        for process in self.scheduler.processes:
            if process.error is not None and not isinstance(process.error, SparkEosError):
                raise Anomaly(f"11 unexpected: {process.name}: {process.error!r}") from process.error

    def _verdict(self, anomaly: str) -> Verdict:
        return Verdict(anomaly, tuple(self.network.log), tuple(self.choices.taken))


# --- what is run ---------------------------------------------------------------------------------------------------


def two_attempts(simulation: Simulation) -> None:
    """One lane of one batch, opened by a driver that waits; two attempts of its task at once."""
    query, scheduler = simulation.query, simulation.scheduler
    run = query.run("run")
    calm = scheduler.start("driver", lambda: run.open(0, 1, BatchLog("content 0")), mortal=False)
    scheduler.alone(calm)

    def attempt(number: int) -> Callable[[], LaneReport]:
        def body() -> LaneReport:
            report = query.attempt(run.run, 0, 0, number, 1)
            simulation.reports.append(report)
            return report

        return body

    for number in range(2):
        scheduler.start(f"attempt {number}", attempt(number))


def two_drivers(simulation: Simulation) -> None:
    """Two runs of the query on one checkpoint at once."""
    for name in ("first", "second"):
        simulation.scheduler.start(name, simulation.driver(name))


def busy_query(simulation: Simulation) -> None:
    """One or two runs whose tasks may be taken for lost."""
    for name in ("first", "second"):
        simulation.scheduler.start(name, simulation.driver(name, twice=True))


def late_ends(simulation: Simulation) -> None:
    """One run of the query, calm but for its commits and aborts: what is late of one meets the next transaction."""
    simulation.scheduler.start("driver", simulation.driver("driver"))


def seeded(seed: int, choices: Choices | None = None) -> Verdict:
    """A run that a seed draws.

    Of three, two have one to three batches of one to three lanes, and up to four kills and four faults; one has four
    batches of a lane or two, and only requests of ENDS are lost, late or twice.
    """
    dice = random.Random(seed)
    calm = dice.randrange(3) == 0
    checkpoint = Checkpoint.of(4, dice.randint(1, 2)) if calm else Checkpoint.of(dice.randint(1, 3), dice.randint(1, 3))
    kills, faults = (dice.randint(0, 1), 4) if calm else (dice.randint(0, 4), dice.randint(0, 4))
    faulty = ENDS if calm else dice.choice([frozenset(Api), END_TXN])
    bounds = Bounds(kills, faults, faulty, tries=dice.choice([1, 2]))
    restless = dice.choice([0.05, 0.15, 0.3, 0.5])
    given = choices or Dice(seed, restless, {api.value: UNCERTAIN for api in ENDS}, (FAIL_OVER, TIME_OUT))
    return Simulation(given, bounds, checkpoint).run(late_ends if calm else busy_query)


@dataclass(frozen=True)
class Searched:
    """What a search has been through.

    Args:
        runs: how many runs.
        states: different states that they came through.
        anomaly: the first run that is not as it must be.
    """

    runs: int
    states: int
    anomaly: Verdict | None = None


def search(start: Callable[[Simulation], None], bounds: Bounds, checkpoint: Callable[[], Checkpoint]) -> Searched:
    """Every run within some bounds, or up to the first anomaly."""
    everything, runs = Search(), 0
    for path in everything.runs():
        runs += 1
        try:
            verdict = Simulation(path, bounds, checkpoint()).run(start)
        except Pruned:
            continue
        if verdict.anomaly:
            return Searched(runs, len(everything.seen), verdict)
    return Searched(runs, len(everything.seen))
