"""The driver's producer: who holds it is the run that may open and seal batches.

It is kept for the run and not made anew for each seal: a fresh one would fence the run's successor. What a fresh
producer guards lanes against (a late EndTxn of the last transaction lands on the next one, KAFKA-17754) can't hurt
here: after any error a producer is never used again, so only a commit can be late; a seal is a single TxnOffsetCommit,
and committing it early is right, since all lanes are committed.

A commit that fails is done again with a fresh producer, which fences the old one; so is one whose producer has lost a
broker. Brokers restart, coordinators move, and a librdkafka producer that outlives its connection hangs in
its next send_offsets_to_transaction (issues 5456 and 5511; here each time that the broker was killed and restarted).
Done twice it is the same: no other run has signed, and nothing of this run's next batch has started.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from spark_eos.errors import ClusterError, TransactionAborted, Unconfirmed
from spark_eos.protocol.decide import taken_over
from spark_eos.protocol.ledger import LaneRow, QueryRow
from spark_eos.protocol.names import Run, driver_transactional_id
from spark_eos.protocol.ports import OpenTransaction, QueryLedger, Transaction
from spark_eos.protocol.positions import Offsets
from spark_eos.protocol.stats import Clock

log = logging.getLogger("spark_eos.sink")

COMMITS = 3
"""How often a commit is tried."""

RECOVERABLE = (ClusterError, TransactionAborted, Unconfirmed)
"""After these nobody knows whether the commit came through, or it did not."""


class Lease:
    """The driver's producer.

    Args:
        run: whose.
        ledger: the query's ledger.
        open_transaction: makes producers.
        clock: by which the lease's age is told.
    """

    def __init__(self, run: Run, ledger: QueryLedger, open_transaction: OpenTransaction, clock: Clock) -> None:
        self._run, self._ledger, self._open, self._clock = run, ledger, open_transaction, clock
        self._committed_at = clock()
        self._held: tuple[AbstractContextManager[Transaction], Transaction] | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since something was committed with it."""
        return self._clock() - self._committed_at

    def check(self, row: QueryRow | None, over: str | None = None) -> None:
        """Hold that no other run has signed. Before a lease is taken anew, too: it would fence the run that has.

        Args:
            row: the query's row.
            over: the run that this one is about to sign over.

        Raises:
            Fenced: another run has.
        """
        if row is not None and row.run not in (self._run.run, over):
            raise taken_over(self._run, row)

    def acquire(self) -> None:
        """Take it, or take it anew: an older producer is fenced, and what it left open is ended."""
        self.drop()
        held = self._open(driver_transactional_id(self._run.query))
        self._held = held, held.__enter__()
        self._held[1].fence()

    def drop(self) -> None:
        """Forget the producer. What it left open stays open."""
        held, self._held = self._held, None
        if held is not None:
            held[0].__exit__(None, None, None)

    def commit(
        self, row: QueryRow, offsets: Offsets, lanes: Sequence[LaneRow] = (), *, over: str | None = None
    ) -> None:
        """Commit the query's row, with lanes' rows and source offsets.

        Args:
            row, offsets, lanes: what.
            over: as of `check`.

        Raises:
            Fenced: another run has taken over.
            SparkEosError: it failed for good; `Unconfirmed` if nobody knows.
        """
        certain = not self._transaction.disconnected
        for left in reversed(range(COMMITS)):
            try:
                if not certain:
                    self._take_again(over)
                self._commit_once(row, offsets, lanes)
                break
            except RECOVERABLE as error:
                if not left:
                    raise
                log.warning("query %s: the driver's commit failed and is done again: %s", self._run.query, error)
                certain = False
        self._committed_at = self._clock()

    @property
    def _transaction(self) -> Transaction:
        if self._held is None:
            raise AssertionError("the lease is held from the take-over on")
        return self._held[1]

    def _commit_once(self, row: QueryRow, offsets: Offsets, lanes: Sequence[LaneRow]) -> None:
        transaction = self._transaction
        try:
            transaction.begin()
            transaction.commit_offsets([row, *lanes], offsets)
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise

    def _take_again(self, over: str | None) -> None:
        """A fresh producer, unless another run has signed by then.

        The look before it is not stable: what is open is most likely this run's own, and the fence ends it.
        """
        self.check(self._ledger.view(stable=False, lanes=0).query, over)
        self.acquire()
        self.check(self._ledger.query(), over)
