"""The driver's producer: who holds it is the run that may open and seal batches.

It is taken anew for each commit, as lanes have a producer of their own for each attempt: brokers can't tell a request
of a producer's last transaction from one of this (transactions v1). A client that waited in vain for an answer sends
its request again on another connection, and does not tell. When the first one came late, the row of the last seal
replaced this one's in the open transaction, and the ledger moved back (found by the simulation; for EndTxn it is
KAFKA-17754). A fresh producer has a new epoch, and what is late then is rejected. The run takes it when a batch is
opened, so that the seal finds it fresh.

Taking it fences whoever has it. So a run looks before, and after, whether another one has signed: a successor
that has is left alone; one that is about to tries again, see `QueryRun`. A commit that is fenced, though nobody has
signed, is done again once: the transaction may have outlasted its timeout. Fenced twice, the run gives way.

A commit that fails is done again with a fresh producer; so is one whose producer has lost a broker: a librdkafka
producer that outlives its connection hangs in its next send_offsets_to_transaction (issues 5456 and 5511; here each
time that the broker was killed and restarted). Done twice it is the same: the row is as it was, or this one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from spark_eos.errors import ClusterError, Fenced, TransactionAborted, Unconfirmed
from spark_eos.protocol.ledger import LaneRow, QueryRow
from spark_eos.protocol.names import Run, driver_transactional_id
from spark_eos.protocol.ports import OpenTransaction, QueryLedger, Transaction
from spark_eos.protocol.positions import Offsets
from spark_eos.protocol.refusals import taken_over

log = logging.getLogger("spark_eos.sink")

TRIES = 3
"""How often the lease is taken, and a commit is tried."""

RECOVERABLE = (ClusterError, TransactionAborted, Unconfirmed)
"""After these nobody knows whether the commit came through, or it did not."""


class Lease:
    """The driver's producer.

    Args:
        run: whose.
        ledger: the query's ledger.
        open_transaction: makes producers.
    """

    def __init__(self, run: Run, ledger: QueryLedger, open_transaction: OpenTransaction) -> None:
        self._run, self._ledger, self._open = run, ledger, open_transaction
        self._held: tuple[AbstractContextManager[Transaction], Transaction] | None = None
        self._fresh = False

    def check(self, row: QueryRow | None, over: QueryRow | None = None) -> None:
        """Hold that no other run has signed, or gone on.

        Args:
            row: the query's row.
            over: another run's row that this one is about to sign over, and that is still the same.

        Raises:
            Fenced: another run has.
        """
        if row is not None and row.run != self._run.run and row != over:
            raise taken_over(self._run, row)

    def acquire(self) -> None:
        """Take it, or take it anew: an older producer is fenced, and what it left open is ended."""
        self.drop()
        held = self._open(driver_transactional_id(self._run.query))
        self._held = held, held.__enter__()
        self._held[1].fence()
        self._fresh = True

    def renew(self) -> None:
        """Take it anew, unless another run has signed by then. The caller looks again.

        The look is not stable: what is open is most likely this run's own, and the fence ends it. A successor's
        signature that it does not show yet was the last commit of the producer that is fenced.

        Raises:
            Fenced: another run has.
            SparkEosError: it failed for good.
        """
        self._tried(self._renewed, "taking its lease")

    def drop(self) -> None:
        """Forget the producer. What it left open stays open."""
        held, self._held, self._fresh = self._held, None, False
        if held is not None:
            held[0].__exit__(None, None, None)

    def commit(
        self, row: QueryRow, offsets: Offsets, lanes: Sequence[LaneRow] = (), *, over: QueryRow | None = None
    ) -> None:
        """Commit the query's row, with lanes' rows and source offsets.

        Args:
            row, offsets, lanes: what.
            over: as of `check`.

        Raises:
            Fenced: another run has taken over.
            SparkEosError: it failed for good; `Unconfirmed` if nobody knows.
        """

        def committed() -> None:
            if not self._fresh or self._transaction.disconnected:
                taken()
            try:
                self._commit_once(row, offsets, lanes)
            except Fenced as error:
                log.warning(
                    "query %s: a commit of the driver was fenced, and is done again if no other run has signed: %s",
                    self._run.query,
                    error.what,
                )
                taken()
                self._commit_once(row, offsets, lanes)

        def taken() -> None:
            self._renewed(over)
            self.check(self._ledger.query(), over)

        self._tried(committed, "its commit")

    def _renewed(self, over: QueryRow | None = None) -> None:
        self.check(self._ledger.view(stable=False, lanes=0).query, over)
        self.acquire()

    def _tried(self, call: Callable[[], None], what: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                call()
                return
            except RECOVERABLE as error:
                if not left:
                    raise
                log.warning("query %s: the driver fails at %s, and tries again: %s", self._run.query, what, error)

    @property
    def _transaction(self) -> Transaction:
        if self._held is None:
            raise AssertionError("the lease is held from the take-over on")
        return self._held[1]

    def _commit_once(self, row: QueryRow, offsets: Offsets, lanes: Sequence[LaneRow]) -> None:
        self._fresh, transaction = False, self._transaction
        try:
            transaction.begin()
            transaction.commit_offsets([row, *lanes], offsets)
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise
