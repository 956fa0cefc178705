"""What the protocol needs of Kafka and of Spark, as narrow interfaces. Implemented in `spark_eos.kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow, Row
from spark_eos.protocol.limit import Alarm, alarm
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.positions import Offsets, SourceRange, TopicPartition
from spark_eos.protocol.stats import Clock


class Rows(Protocol):
    """Some rows of a lane, in order."""

    def __len__(self) -> int: ...

    def ranges(self) -> Sequence[SourceRange]:
        """Where they came from; empty where they carry no source positions."""

    def beyond(self, floor: Mapping[TopicPartition, int]) -> Rows:
        """The rows at or above their source partition's floor; rows of other partitions stay."""

    def digests(self) -> bytes:
        """Eight bytes for each, made of all that is written of it: topic, key, value, headers, partition, timestamp."""

    def payload_bytes(self) -> int:
        """Bytes of their keys and values."""


class Transaction(Protocol):
    """A fresh transactional producer: one transactional.id, one transaction at a time.

    Every method raises `TransactionAborted`, `Fenced`, `Unconfirmed`, a `RecordError` or a `ClusterError`.
    """

    @property
    def queue_waits(self) -> int:
        """How often `write` has found the client's queue full and waited for the brokers."""

    @property
    def disconnected(self) -> bool:
        """Whether a broker was lost since the fence: the client may hang from then on."""

    def fence(self) -> None:
        """`init_transactions`: older producers are fenced, what they left open is aborted or completed."""

    def begin(self) -> None: ...

    def write(self, rows: Rows) -> int:
        """Queue rows for sending; returns how many of them went to the dead letters."""

    def flush(self) -> None:
        """Wait for every row's delivery; raises the first delivery error, as the record it is about."""

    def commit_offsets(self, rows: Iterable[Row], offsets: Offsets) -> None:
        """Add ledger rows and source offsets to the transaction; offsets of topics that these brokers do not have are
        left out."""

    def commit(self) -> None:
        """Commit. `Unconfirmed` if nobody can know whether it did."""

    def abort(self) -> None:
        """Abort as well as may be; never raises (the next fence aborts what this could not)."""


OpenTransaction = Callable[[str], AbstractContextManager[Transaction]]
"""Makes a fresh producer for a transactional.id; leaving the context drops it, whatever its state."""


class LaneLedger(Protocol):
    """The ledger as a lane may see it. Reads are stable: they wait while a row is in an open transaction."""

    def query(self) -> QueryRow | None:
        """The query's row alone."""

    def lane(self, lane: int) -> tuple[QueryRow | None, LaneRow | None]:
        """The query's row and one lane's. Only after the fence: before it, a dead attempt's transaction can be open."""

    def offsets(self, keys: Iterable[TopicPartition], *, stable: bool = True) -> Offsets:
        """Committed offsets of source partitions; 0 where nothing is committed."""


class QueryLedger(LaneLedger, Protocol):
    """The ledger as the driver sees it."""

    def ensure(self, lanes: int) -> None:
        """Create the ledger topic if it is absent; widen it until every lane has its partition."""

    def view(self, stable: bool, lanes: int | None = None) -> LedgerView:
        """The query's row, and those of its first so many lanes, or of all that the topic has room for.

        `stable` waits until none of them is in an open transaction.
        """

    def committed_by_others(self, keys: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """Those source partitions whose offset was not committed by this connector, open transactions aside."""

    def hanging(self) -> Sequence[int]:
        """Lanes whose row is in an open transaction, of all that the topic has room for."""

    def members(self) -> int:
        """How many consumers the group has: another program uses it."""


@dataclass(frozen=True)
class LanePorts:
    """What `run_lane` needs.

    Args:
        ledger, open_transaction: Kafka.
        timeout_s: seconds that the broker lets a transaction be open: the client's `transaction.timeout.ms`.
        clock: by which steps and the open transaction are timed.
        alarm: warns when half of that time is over.
    """

    ledger: LaneLedger
    open_transaction: OpenTransaction
    timeout_s: float
    clock: Clock = monotonic
    alarm: Alarm = alarm


RowStream = Iterator[Rows]
BeforeStep = Callable[[str, LaneTask], None]
"""Called in the task with a step's name before that step, for tracing and fault injection."""
