"""A reader that runs all the while, as a downstream service does, and remembers what it saw."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from spark_eos.checker.reader import PAUSE_S, Isolation, NoAnswer, Reader
from spark_eos.checker.rows import Place, Position, Rows, items, rows_of
from spark_eos.checker.topic_log import PATIENCE_S, REQUEST_S, Topics
from spark_eos.checker.watcher import Watcher

EXAMPLES = 5


class LiveReader(Watcher):
    """Reads topics from their start on, in a thread. Use it as a context manager, and ask for `finish()` at the end.

    For what it gets it asks at once for the last stable offset: it must be above, or a row was seen whose transaction
    was still open.

    Args:
        topics: they must exist when the reader is started.
        isolation: `read_uncommitted` makes a reader that breaks the rules.

    Attributes:
        rows: what it saw.
        early: how many rows it saw whose transaction was still open; `early_examples` are a few of them.
        unasked: how many rows it saw while nobody answered what the last stable offset is.
        interruptions: how often it had to start again, since the brokers refused it.
    """

    name = "live reader"

    def __init__(self, topics: Topics, isolation: Isolation = "read_committed") -> None:
        super().__init__()
        self._topics = topics
        self._now = Topics(topics.bootstrap_servers, topics.names, REQUEST_S, topics.client)
        self._isolation = isolation
        self._reader: Reader | None = None
        self._reached: dict[Place, int] = {}
        self.rows: dict[Place, Rows] = {}
        self.early = self.unasked = 0
        self.early_examples: list[Position] = []

    @property
    def interruptions(self) -> int:
        return self._reader.interruptions if self._reader else 0

    def __enter__(self) -> LiveReader:
        self._reached = self._topics.starts()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def look(self) -> None:
        if self._reader is None:
            self._reader = self._reader_from_here()
        self._note(self._reader.poll(0.2))

    def close(self) -> None:
        if self._reader is not None:
            self._reached = self._reader.reached
            self._reader.close()

    def finish(self, wait_s: float = PATIENCE_S) -> dict[Position, int]:
        """Read on to the ends; all it saw since it started, as digests (`Entry.digest`) by position.

        Args:
            wait_s: how long to wait, in seconds, for transactions that are open: the markers of those that were
                committed a moment ago may still be on the way.

        Raises:
            CannotCheck: the thread died, or the ends could not be reached.
        """
        self.read_on(wait_s)
        return dict(items(self.rows))

    def read_on(self, wait_s: float) -> None:
        """As `finish`, without its result."""
        self.ended()
        self._topics.hanging(wait_s)
        ends = self._topics.stable_ends()
        with closing(self._reader_from_here()) as reader:
            for messages in reader.read_to(ends, self._topics.patience_s):
                self._note(messages)
            self._reached = reader.reached

    def _reader_from_here(self) -> Reader:
        return Reader(self._topics.client, self._isolation, self._reached)

    def _note(self, messages: list[Message]) -> None:
        new = rows_of(messages)
        if new:
            self._ask(new)
        for place, rows in new.items():
            self.rows.setdefault(place, Rows()).extend(rows)

    def _ask(self, new: Mapping[Place, Rows]) -> None:
        try:
            stable = self._stable(new)
        except NoAnswer:
            self.unasked += sum(map(len, new.values()))
            return
        for place, rows in new.items():
            early = [offset for offset in rows.offsets if offset >= stable[place]]
            self.early += len(early)
            self.early_examples += [(*place, offset) for offset in early[: EXAMPLES - len(self.early_examples)]]

    def _stable(self, new: Mapping[Place, Rows]) -> dict[Place, int]:
        """The last stable offsets, asked of leaders that know of the rows.

        A new leader's high watermark, and so its last stable offset, may be behind for a moment.
        """
        latest, places, deadline = OffsetSpec.latest(), list(new), time.monotonic() + REQUEST_S
        while time.monotonic() < deadline:
            ends = self._now.listed(latest, IsolationLevel.READ_UNCOMMITTED, places)
            stable = self._now.listed(latest, IsolationLevel.READ_COMMITTED, places)
            if all(
                stable[place].offset > rows.offsets[-1]
                or (ends[place].offset > rows.offsets[-1] and ends[place].leader_epoch == stable[place].leader_epoch)
                for place, rows in new.items()
            ):
                return {place: found.offset for place, found in stable.items()}
            time.sleep(PAUSE_S)
        raise NoAnswer(f"the leaders of {places} did not catch up")
