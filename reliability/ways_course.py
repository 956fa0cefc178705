"""One combination from its topics to its verdict: fed, run, hit, changed, started again, and judged."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ways_axes import CODE, OLDER, PARTITIONS, Combination
from ways_faults import BETWEEN, HIT, Marks
from ways_judge import Anomaly, amiss, beyond
from ways_life import CONNECT, FOREACH, WRITE, Fault, Life
from ways_pipelines import FILE, KAFKA, OF_TWO, RATE, TABLE, Chunks, by_sink
from ways_setup import AGAIN, CHANGED, back_up, first_setup
from ways_stateful import PIPELINES
from ways_topics import IN_PARTITIONS, Places
from ways_way_on import KEEP, Refusal, taken
from ways_workers import Workers

EXACT, REFUSED, ANOMALY = "exact", "refused", "anomaly"
STARTS = 6
"""After so many ways on a query must have come through."""
RATE_ROWS = 9


class Missed(Exception):
    """The planned fault did not happen: an error of the harness, never a pass."""


@dataclass(frozen=True)
class Result:
    """What became of a combination.

    Args:
        verdict: EXACT, REFUSED (first, and exact by the way on) or ANOMALY.
        refusals: names of the errors, in order.
        told: the anomaly.
        seconds: that it took.
    """

    combination: Combination
    verdict: str
    refusals: tuple[str, ...]
    told: str
    seconds: float


@dataclass
class Course:
    """The run of one combination; an operator of its query, too (see `ways_way_on.Operator`).

    Args:
        combination: which.
        workers: who runs its lives.
        places: its topics and folders.
        tell: gets each step as text.
    """

    combination: Combination
    workers: Workers
    places: Places
    tell: Callable[[str], None] = lambda _: None
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pipeline = PIPELINES[self.combination.pipeline]
        self._before = self._now = first_setup(self.combination, self.places.name, self.places.folder)
        self._chunks: list[list[int]] = []
        self._left_out: set[int] = set()
        self._once: dict[str, str] = {}
        self._table: tuple[int, ...] = ()
        self._committed: dict[str, dict[int, int]] = {}
        self._own_ids = self._lets_through = self._torn = self._undone = False

    def run(self) -> None:
        """All of it.

        Raises:
            Anomaly: it does not end exact.
            Missed: the fault did not happen.
        """
        self.places.make(second=self.combination.pipeline in ("union", "join-streams"))
        if not self.combination.first:
            self._begin()
            back_up(self._now)
        self._feed()
        self._hit()
        self._change()
        if self.combination.early:
            self._feed()
        if self.pipeline.use == "swallow":
            self._go_on_swallowing()
        self._settle(limit=IN_PARTITIONS if self.combination.cut_anew else 0)
        if not self.combination.early:
            self._feed()
            self._settle()
        if self._undone and self.combination.change in AGAIN:
            self._change()
            self._feed()
            self._settle()
        self._all_committed()

    @property
    def _by_chunk(self) -> bool:
        """Whether a start takes one chunk, and not all that there is."""
        return self.pipeline.reads != KAFKA or self.combination.way == WRITE

    def _begin(self) -> None:
        """Two batches; and those that the function leaves out."""
        late = self.pipeline.use == "late"
        for _ in range(2):
            self._feed(left_out=late)
            if self._by_chunk:
                self._settle(called=not late)
        if not self._by_chunk:
            self._settle(limit=self.combination.rows, called=not late)
        if self.pipeline.use == "left-out":
            self._feed(left_out=True)
            self._settle(called=False)

    def _go_on_swallowing(self) -> None:
        """Nobody notices at once that errors are swallowed; somebody does in the end, and more rows come."""
        self._live(self._life(0, True))
        self._nothing_beyond()
        self._lets_through = True
        self._feed()

    def _feed(self, *, left_out: bool = False) -> None:
        rows, number = self.combination.rows, len(self._chunks)
        chunk = list(range(number * rows, (number + 1) * rows))
        self._chunks.append(chunk)
        if left_out:
            self._left_out.add(number)
        self.tell(f"feed {chunk[0]} to {chunk[-1]}")
        if self.pipeline.reads == FILE:
            self.places.feed_file(chunk)
        elif self.pipeline.reads == TABLE:
            self._table = tuple(chunk)
        elif self.pipeline.reads == KAFKA and self.combination.way != WRITE:
            self.places.feed(chunk)
            if self.combination.pipeline in ("union", "join-streams"):
                self.places.feed_second(chunk, lag=self.combination.pipeline == "join-streams")

    def _change(self) -> None:
        change = self.combination.change
        self._undone = False
        self.tell(f"change: {change}")
        self._now = CHANGED.get(change, lambda setup: setup)(self._before)
        if change == PARTITIONS:
            self.places.widen()

    # --- lives -----------------------------------------------------------------------------------------------------

    def _settle(self, *, limit: int = 0, called: bool = True) -> None:
        """Start the query until it comes to its end, by the ways on that its refusals name; then judge."""
        for _ in range(STARTS):
            visible, done = self.places.visible(), self._done()
            error = self._live(self._life(limit, called))
            if error is None:
                if self.combination.way == WRITE:
                    self._live(self._life(limit, called))  # a whole write that is done again writes nothing
                return self._judge()
            self._refused(error, visible, done)
        raise Anomaly(f"still refused after {STARTS} starts: {', '.join(self.refusals)}")

    def _hit(self) -> None:
        """Start the query, and have a batch of it hit."""
        folder = str(self.places.folder / "marks")
        chosen = self.combination
        fault = Fault(chosen.hit, chosen.step, folder, "-b" if chosen.other_sink else "")
        for _ in range(STARTS):
            visible, done = self.places.visible(), self._done()
            error = self._live(self._life(0, True).but(fault=fault))
            if Marks(folder).read(HIT) is not None:
                self._nothing_beyond()
                if chosen.hit == BETWEEN and self.places.visible() == visible:
                    raise Missed(f"no lane has committed: {chosen.name}")
                return
            if error is None:
                raise Missed(f"no batch was hit: {chosen.name}")
            self._refused(error, visible, done)
        raise Anomaly(f"still refused after {STARTS} starts: {', '.join(self.refusals)}")

    def _life(self, limit: int, called: bool) -> Life:
        now, places = self._now, self.places
        return Life(
            pipeline=self.combination.pipeline,
            way=self.combination.way,
            bootstrap=places.bootstrap,
            source=places.source,
            second=places.second,
            target=places.target,
            folder=str(places.folder),
            checkpoint=str(now.checkpoint),
            query_id=now.query_id,
            options=now.options | self._once,
            conf=now.conf,
            positions=self.combination.positions,
            version=now.version,
            limit=limit,
            called=called,
            own_ids=self._own_ids,
            lets_through=self._lets_through,
            table=self._table,
            chunk=(self._chunks[-1][0], self._chunks[-1][-1]) if self.combination.way == WRITE else (),
        )

    def _live(self, life: Life) -> str | None:
        self._once, self._table = {}, ()
        error = self.workers.run(self._now.master, life)
        self._nothing_moved_back()
        options = {name: text for name, text in life.options.items() if not name.startswith("kafka.")}
        told = f"start on {self._now.master}, version {life.version}, {options}"
        self.tell(f"{told}: {'done' if error is None else 'WaysFault' if 'WaysFault' in error else error[-1500:]}")
        return error

    def _refused(self, error: str, visible: Counter[str], done: int) -> None:
        """A start was refused: hold that it wrote nothing, and take the way on that it names."""
        refusal = Refusal.of(error)
        self.refusals.append(refusal.name)
        self._nothing_beyond()
        # Batches before the refused one may have been finished; a second write comes after the first one.
        if self.places.visible() != visible and self._done() == done and refusal.name != "SecondWrite":
            raise Anomaly(f"{refusal.name}, and the start that was refused wrote rows")
        self.tell(f"way on: {taken(self, refusal)}")

    def _done(self) -> int:
        """The last batch in Spark's commit log."""
        return _newest(self._now.checkpoint / "commits")

    # --- verdict ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        changed = self.combination.change == CODE
        found = amiss(self.places.visible(), self._wanted(), changed=changed, torn=self._torn)
        if found:
            raise Anomaly(found)

    def _nothing_beyond(self) -> None:
        found = beyond(self.places.visible(), self._wanted())
        if found:
            raise Anomaly(found)

    def _nothing_moved_back(self) -> None:
        """Hold that no committed offset of the source is below what it was."""
        before, now = self._committed.get(self._group, {}), self._offsets()
        if any(now.get(partition, -1) < offset for partition, offset in before.items()):
            raise Anomaly(f"committed offsets moved back from {before} to {now}")
        self._committed[self._group] = now

    def _all_committed(self) -> None:
        """Hold that at the end all offsets are committed; in Connect's foreachBatch rows' positions move them alone."""
        if not self._by_chunk and self.combination.way != CONNECT + FOREACH and self._offsets() != self.places.ends():
            raise Anomaly(f"committed offsets are {self._offsets()}, and the source ends at {self.places.ends()}")

    @property
    def _group(self) -> str:
        return self._now.options.get("group.id", self._now.query_id)

    def _offsets(self) -> dict[int, int]:
        return {} if self._by_chunk else self.places.committed(self._group)

    def _wanted(self) -> list[list[str]]:
        chunks: Chunks = self._ticks() if self.pipeline.reads == RATE else self._chunks
        outputs = self.pipeline.outputs(chunks)
        wanted = [texts for number, texts in enumerate(outputs) if number not in self._left_out]
        if self.pipeline.use in OF_TWO:
            return [part for texts in wanted for part in by_sink(texts)]
        return wanted

    def _ticks(self) -> Chunks:
        """What Spark has made by itself, batch by batch."""
        newest = _newest(self._now.checkpoint / "offsets")
        if newest < 0:
            return []
        end = json.loads((self._now.checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1])["offset"]
        return [range(first, first + RATE_ROWS) for first in range(0, end, RATE_ROWS)]

    # --- what an operator does -------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return self._now != self._before

    def undo(self) -> str:
        self._now, self._undone = self._before, True
        return "the newest checkpoint" if self.combination.change == OLDER else "set up as before"

    def without(self, option: str) -> str:
        self._before = self._before.but(options={n: v for n, v in self._before.options.items() if n != option})
        self._now = self._now.but(options={n: v for n, v in self._now.options.items() if n != option})
        return f"without {option}"

    def set_conf(self, name: str, value: str) -> str:
        self._before = self._before.but(conf=self._before.conf | {name: value})
        self._now = self._now.but(conf=self._now.conf | {name: value})
        return f"{name}={value}"

    def with_once(self, options: dict[str, str]) -> str:
        self._once = self._once | options
        self._torn = self._torn or options == KEEP
        return f"once with {options}"

    def run_again(self, batch: int) -> str:
        self._lets_through = True
        for log, first in (("commits", batch), ("offsets", batch + 1)):
            for file in (self._now.checkpoint / log).iterdir():
                name = file.name.removeprefix(".").removesuffix(".crc")
                if name.isdigit() and int(name) >= first:
                    file.unlink()
        return f"batch {batch} again"

    def with_own_ids(self) -> str:
        self._own_ids = True
        return "a query.id for each sink"


def _newest(log: Path) -> int:
    """The last batch in a log of a checkpoint; -1 if there is none."""
    files = log.iterdir() if log.exists() else ()
    return max((int(file.name) for file in files if file.name.isdigit()), default=-1)


def tried(
    combination: Combination, workers: Workers, places: Places, tell: Callable[[str], None] = lambda _: None
) -> Result:
    """Run a combination.

    Raises:
        Missed: the fault did not happen.
    """
    began = time.monotonic()
    course = Course(combination, workers, places, tell)
    verdict, told = EXACT, ""
    try:
        course.run()
        verdict = REFUSED if course.refusals else EXACT
    except Anomaly as anomaly:
        verdict, told = ANOMALY, str(anomaly)
    return Result(combination, verdict, tuple(course.refusals), told, round(time.monotonic() - began, 1))
