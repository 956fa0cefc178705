"""Processes of a simulated run: each stops before every request, and somebody decides which one goes on.

A process is a greenlet: plain code, which neither knows nor cares that it is interleaved with others. Killed, it does
nothing any more, not even what its `finally` asks of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from choices import Choices
from greenlet import greenlet

from spark_eos.testing.simulated.answers import BrokerError, Unanswered
from spark_eos.testing.simulated.brokers import Brokers
from spark_eos.testing.simulated.network import FAIL_OVER, FATES, TIME_OUT, Api, FaultyNetwork, Request, T

OUTAGES = frozenset({FAIL_OVER, TIME_OUT})
MISHAPS = OUTAGES | frozenset(FATES)
"""What may become of a request, and of the brokers."""

STEPS = 5_000
"""A run that takes more is going in circles."""


class Killed(BaseException):
    """SIGKILL."""


class Stuck(AssertionError):
    """A run that does not come to its end."""


@dataclass(eq=False)
class Process:
    """One process, or one attempt of a task.

    Args:
        name: as the trace shows it.
        body: what it does.
        mortal: whether it may be killed.
    """

    name: str
    body: Callable[[], Any]
    mortal: bool = True
    state: str = "ready"
    result: Any = None
    error: BaseException | None = None
    until: Callable[[], bool] | None = None
    knows: int = 0
    """A hash of what was answered so far: all that a process can know."""
    moment: str = "start"
    refused: bool = False
    """Whether the last answer was an error: asked again at once, it would be the same."""

    def hear(self, answer: str) -> None:
        """Note an answer."""
        self.knows = hash((self.knows, answer))

    @property
    def over(self) -> bool:
        return self.state in ("done", "killed")


class Scheduler:
    """Runs processes one step at a time.

    Args:
        choices: decides who goes on, who is killed, and what the brokers do meanwhile.
        network: whose events may happen.
        after_step: called after each step, to look at what stands there; an error of it ends the run.
        kills: how many processes may be killed in all.
        switches: how often a process that could go on may be interrupted by another one; None for any number.
        lag: how many steps processes may take while markers are still to be written, in all; None for any number.
    """

    def __init__(
        self,
        choices: Choices,
        network: ScheduledNetwork,
        after_step: Callable[[], None],
        kills: int,
        *,
        switches: int | None = None,
        lag: int | None = None,
    ) -> None:
        self.choices, self.network = choices, network
        self.kills, self.switches, self.lag = kills, switches, lag
        self._after_step = after_step
        self.processes: list[Process] = []
        self.current: Process | None = None
        self._greenlets: dict[Process, greenlet] = {}
        self._main = greenlet.getcurrent()
        network.scheduler = self

    def start(self, name: str, body: Callable[[], Any], mortal: bool = True) -> Process:
        """A new process; it does nothing before `run` lets it."""
        process = Process(name, body, mortal)
        self.processes.append(process)
        self._greenlets[process] = greenlet(lambda: self._live(process))
        return process

    def run(self) -> None:
        """Until every process is over.

        Raises:
            Stuck: it does not end.
        """
        self._main = greenlet.getcurrent()
        for _ in range(STEPS):
            if all(each.over for each in self.processes):
                return
            self._step()
            self._after_step()
        raise Stuck(f"no end after {STEPS} steps: {[(p.name, p.state, p.moment) for p in self.processes]}")

    def alone(self, process: Process) -> None:
        """Run one process to its end, on a good day."""
        while not process.over:
            self._go_on(process)
            self.network.brokers.write_markers()

    def end(self) -> None:
        """Kill what still runs, so that nothing of it runs on when it is forgotten."""
        for process, life in self._greenlets.items():
            if not process.over and life:
                process.state, self.current = "killed", process
                life.throw(Killed)

    def stop(self, moment: str) -> None:
        """Called in a process, before it does anything that others could notice."""
        process = self.me()
        process.moment = moment
        self._switch(process)

    def wait(self, until: Callable[[], bool], moment: str) -> None:
        """Called in a process that can't go on before something happens."""
        process = self.me()
        process.moment, process.until = moment, until
        self._switch(process)
        process.until = None

    def me(self) -> Process:
        if self.current is None:
            raise AssertionError("only a process stops")
        if self.current.state == "killed":
            raise Killed
        return self.current

    def _switch(self, process: Process) -> None:
        self._main.switch()
        if process.state == "killed":
            raise Killed

    def _live(self, process: Process) -> None:
        try:
            process.result = process.body()
            process.state = "done"
        except Killed:
            process.state = "killed"
        except Exception as error:
            process.error, process.state = error, "done"
        self._main.switch()

    def _step(self) -> None:
        if self.lag == 0:
            self.network.brokers.write_markers()
        self.choices.at(self.state)
        options = self._options()
        if not options:
            # Everybody waits for something that only time can bring.
            self.current = None
            self.network.note("brokers: time passes")
            self.network.brokers.time_out()
            for each in self.processes:
                each.until = None
            return
        _, act = options[self.choices.choose("who goes on", [name for name, _ in options])]
        act()

    def _options(self) -> list[tuple[str, Callable[[], None]]]:
        alive = [each for each in self.processes if not each.over]
        ready = [each for each in alive if each.until is None or each.until()]
        ready.sort(key=lambda each: each is not self.current)  # on a good day nobody is interrupted
        if self.switches == 0 and self.current in ready:
            ready = [self.current]
        found = [(each.name, lambda each=each: self._choose(each, ready)) for each in ready]
        found += [
            (name, lambda event=index: self._event(event)) for index, (name, _) in enumerate(self.network.events())
        ]
        if self.kills:
            found += [(f"kill {p.name}", lambda p=p: self._kill(p)) for p in alive if p.mortal and p.moment != "start"]
        return found

    def _choose(self, process: Process, ready: list[Process]) -> None:
        if self.switches and process is not self.current and self.current in ready:
            self.switches -= 1
        if self.lag and self.network.brokers.markers():
            self.lag -= 1
        self._go_on(process)

    def _go_on(self, process: Process) -> None:
        self.current = process
        self._greenlets[process].switch()

    def _event(self, index: int) -> None:
        last, self.current = self.current, None
        self.network.happen(index)
        self.current = last

    def _kill(self, process: Process) -> None:
        self.kills -= 1
        self.current = process
        self.network.note(f"killed at {process.moment}")
        process.state = "killed"
        self._go_on(process)

    def state(self) -> Hashable:
        """All that what follows depends on."""
        network = self.network
        lives = tuple((p.name, p.state, p.moment, p.until is None, p.knows) for p in self.processes)
        late = tuple(sorted(str(request) for request in network.late))
        current = None if self.current is None else self.current.name
        left = network.faults, self.kills, self.switches, self.lag, current if self.switches is not None else None
        return hash((lives, late, left, network.brokers.fingerprint()))


class ScheduledNetwork(FaultyNetwork):
    """Stops the process that asks before each request; the scheduler decides what the brokers do meanwhile.

    Args:
        brokers, choose, faults: as of `FaultyNetwork`.
        faulty: kinds of requests that may be lost, late or twice.
        mishaps: which of `MISHAPS` may happen.
    """

    scheduler: Scheduler

    def __init__(
        self, brokers: Brokers, choices: Choices, faults: int, faulty: frozenset[Api], mishaps: frozenset[str]
    ) -> None:
        super().__init__(brokers, choices.choose, faults)
        self._faulty, self._mishaps = faulty, mishaps

    def note(self, happened: str) -> None:
        process = self.scheduler.current
        super().note(happened if process is None else f"{process.name}: {happened}")

    def send(self, request: Request[T]) -> T:
        self.scheduler.stop(str(request))
        process = self.scheduler.me()
        try:
            answer = self._delivered(request)
        except (BrokerError, Unanswered) as error:
            process.refused = isinstance(error, BrokerError)
            process.hear(str(error))
            raise
        process.hear(repr(answer))
        return answer

    def pause(self, request: Request[Any]) -> None:
        """After an error, until anything has happened. Without an answer a client asks again whatever happens."""
        if not self.scheduler.me().refused:
            return
        before = self.brokers.fingerprint()
        self.scheduler.wait(lambda: self.brokers.fingerprint() != before, f"asking again: {request}")

    def fates(self, request: Request[Any]) -> list[str]:
        found = super().fates(request)
        return [found[0], *(fate for fate in found[1:] if request.api in self._faulty and fate in self._mishaps)]

    def events(self) -> list[tuple[str, Callable[[], None]]]:
        return [event for event in super().events() if event[0] not in OUTAGES - self._mishaps]
