"""How long a transaction may be open: a warning at half of its timeout, an error before the broker would end it.

The broker counts from the transaction's first record, and this from its begin, so this is never late. What a broker
ends looks like a fence: nobody can tell whether a newer attempt was it. So the lane ends first, and says why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from spark_eos.errors import TransactionTooLong
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.stats import Clock

log = logging.getLogger("spark_eos.sink")

WARN_AT = 0.5
LIMIT = 0.9
"""Parts of the timeout. The last tenth is for what follows the rows: the flush of at most a full queue, offsets and
commit (15 ms on a quiet broker, measured). At 60 s it is 6 s; who needs more has brokers in trouble."""

WAYS_OUT = (
    "Raise kafka.transaction.timeout.ms (the broker allows up to its transaction.max.timeout.ms, 15 min by default), "
    "make batches smaller (maxOffsetsPerTrigger), or set the option stage.rows=disk, which computes a lane's rows "
    "before its transaction is opened."
)


class TimeLimit:
    """When the open transaction of a lane has to be through.

    Args:
        timeout_s: `transaction.timeout.ms`, in seconds.
        clock: see `Clock`.
    """

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._timeout_s, self._clock, self._since = timeout_s, clock, clock()

    def check(self, rows: int) -> None:
        """Raise if time is up.

        Args:
            rows: how many rows there have been, for the error's text.

        Raises:
            TransactionTooLong: nothing of the transaction is visible once it is aborted.
        """
        seconds = self._clock() - self._since
        if seconds >= LIMIT * self._timeout_s:
            raise TransactionTooLong(
                f"the transaction was open for {seconds:.1f} s while {rows} rows were computed and written, and the "
                f"broker ends it at {self._timeout_s:g} s (kafka.transaction.timeout.ms). It was aborted, nothing of "
                "it is visible",
                do=WAYS_OUT,
            )


Alarm = Callable[[float, Callable[[], None]], AbstractContextManager[object]]
"""Calls something after so many seconds, unless its block has been left by then."""


@contextmanager
def alarm(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """An `Alarm` in a thread, since the task itself may be waiting for Spark's next rows."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def time_limit(task: LaneTask, timeout_s: float, clock: Clock, alarm: Alarm) -> Iterator[TimeLimit]:
    """The limit of a transaction that is opened now; logs a warning at half of it, while the block still runs.

    The alarm holds nothing but the text.
    """
    told = (
        f"[query {task.run.query}, batch {task.batch}, lane {task.lane}] the transaction has been open for "
        f"{WARN_AT * timeout_s:g} s, half of kafka.transaction.timeout.ms. At {LIMIT * timeout_s:g} s the lane fails. "
        f"What to do: {WAYS_OUT}"
    )
    with alarm(WARN_AT * timeout_s, partial(log.warning, told)):
        yield TimeLimit(timeout_s, clock)
