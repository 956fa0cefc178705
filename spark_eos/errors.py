"""Every error that spark-eos raises, one tree. Each says what happened, where, and what to do now.

SparkEosError
├── UsageError                    the query is set up wrongly; nothing was written
│   ├── OptionError               an option is unknown, reserved, missing or has a wrong value
│   ├── SchemaError               a column is missing or has the wrong type
│   └── UnsupportedError          Spark is set up in a way that would break exactly-once
├── ClusterError                  Kafka is not as the query needs it
│   ├── BrokerUnreachable         no broker answered, or none will talk to this client
│   ├── AccessDenied              authentication failed, or an ACL is missing
│   ├── TopicMissing              a topic that is read from or written to does not exist
│   └── TransactionTimeoutTooLong transaction.timeout.ms is above the broker's maximum
├── RecordError                   one record can't be written; its lane's transaction was aborted
│   ├── NullTopic
│   ├── PartitionOutOfRange
│   ├── HeaderWithoutKey
│   ├── RecordTooLarge
│   └── RecordRefused             the broker says that its content is not valid
├── TransactionError              a lane's (or the driver's) transaction did not commit
│   ├── TransactionAborted        nothing of it is visible; the task's next attempt writes it again
│   ├── TransactionTooLong        rows took nearly as long as a transaction may be open; nothing of it is visible
│   ├── Unconfirmed               no answer to the commit; the next attempt asks the ledger
│   └── Fenced                    a newer attempt, or a newer run of the same query, took over
├── LedgerRefusal                 the ledger and the batch contradict each other; nothing was written
│   ├── LedgerLost                a batch after the first, and the ledger knows nothing of the query
│   ├── CheckpointBehind          the ledger is ahead of the checkpoint
│   ├── BatchAbandoned            a batch was left behind: half-committed, or not written at all
│   ├── SplitChanged              a half-committed batch comes back with another number of lanes
│   ├── OtherCheckpoint           the query id belongs to another checkpoint
│   ├── OtherQuery                the group has the ledger of another query
│   ├── SecondWrite               a batch is written twice in one run, with other rows
│   ├── ReplayDiffers             a committed lane comes back with other rows
│   └── LedgerUnreadable          a ledger row was not written by a version this one can read
├── StagingError                  a lane's rows can't be kept on local disk; nothing of the lane was written
├── RegistryError                 the schema registry did not answer, or refused this client
├── DataLoss                      records between the checkpoint's offsets and now are gone
└── EmbeddedKafkaError            the test broker could not be installed, started or reached
"""

from __future__ import annotations

from typing import Any, TypeVar

E = TypeVar("E", bound="SparkEosError")


class SparkEosError(Exception):
    """Base of all errors of this package.

    Args:
        what: what happened, one sentence without a full stop.
        do: what the operator should do now, one or more sentences.
        query: query id.
        batch: micro-batch id, from 0.
        lane: partition number of the micro-batch's DataFrame, from 0.

    Errors pickle with all of this, since Spark carries them between processes.
    """

    def __init__(
        self,
        what: str,
        *,
        do: str = "",
        query: str | None = None,
        batch: int | None = None,
        lane: int | None = None,
    ) -> None:
        self.what, self.do = what, do
        self.query, self.batch, self.lane = query, batch, lane
        super().__init__(what)

    def at(self: E, query: str | None = None, batch: int | None = None, lane: int | None = None) -> E:
        """Fill in where it happened, keeping what is already known; returns the error itself."""
        self.query = self.query if self.query is not None else query
        self.batch = self.batch if self.batch is not None else batch
        self.lane = self.lane if self.lane is not None else lane
        return self

    def __str__(self) -> str:
        places = (("query", self.query), ("batch", self.batch), ("lane", self.lane))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        text = f"[{where}] {self.what}." if where else f"{self.what}."
        return f"{text} What to do: {self.do}" if self.do else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.__dict__.copy()))


def _rebuild(cls: type[SparkEosError], what: str, state: dict[str, Any]) -> SparkEosError:
    error = cls(what)
    error.__dict__.update(state)
    return error


class UsageError(SparkEosError, ValueError):
    """The query is set up wrongly. Raised before anything is written."""


class OptionError(UsageError):
    """An option is unknown, reserved, missing or has a wrong value."""


class SchemaError(UsageError):
    """The DataFrame lacks a column, or has one of the wrong type."""


class UnsupportedError(UsageError):
    """Spark is set up in a way under which exactly-once can't be kept."""


class ClusterError(SparkEosError):
    """Kafka is not as the query needs it."""


class BrokerUnreachable(ClusterError):
    """No broker answered within the client's timeout."""


class AccessDenied(ClusterError):
    """Authentication failed, or an ACL is missing."""


class TopicMissing(ClusterError):
    """A topic does not exist. spark-eos never lets a broker create one by accident."""


class TransactionTimeoutTooLong(ClusterError):
    """`transaction.timeout.ms` is above the broker's `transaction.max.timeout.ms`."""


class RecordError(SparkEosError):
    """One record can't be written. The lane's transaction was aborted: nothing of it is visible."""


class NullTopic(RecordError):
    """A row has no topic and the sink has no option `topic`."""


class PartitionOutOfRange(RecordError):
    """A row names a partition that its topic does not have."""


class HeaderWithoutKey(RecordError):
    """A row has a header without a key, which Kafka does not know."""


class RecordTooLarge(RecordError):
    """A record is larger than the client, the topic or the broker accepts."""


class RecordRefused(RecordError):
    """A broker found a record's content not valid: its timestamp, or no key where the topic is compacted."""


class TransactionError(SparkEosError):
    """A transaction did not commit, or nobody knows whether it did."""


class TransactionAborted(TransactionError):
    """The transaction was aborted. Nothing of it is visible; the next attempt writes it again."""


class TransactionTooLong(TransactionError):
    """The transaction was aborted before the broker would have: it was open for nearly `transaction.timeout.ms`."""


class Unconfirmed(TransactionError):
    """The commit was asked for and no answer came. The next attempt fences, then asks the ledger."""


class Fenced(TransactionError):
    """A newer producer of the same transactional.id exists: a newer attempt, or a newer run."""


class LedgerRefusal(SparkEosError):
    """The ledger and the batch contradict each other. Nothing was written."""


class LedgerLost(LedgerRefusal):
    """A batch after the first comes, and the ledger knows nothing of the query."""


class CheckpointBehind(LedgerRefusal):
    """The ledger is ahead of the checkpoint: the checkpoint was restored or copied."""


class BatchAbandoned(LedgerRefusal):
    """A batch was not finished, or not written at all, and a later one comes."""


class SplitChanged(LedgerRefusal):
    """Some lanes of the batch are committed, and it comes back with another number of lanes."""


class OtherCheckpoint(LedgerRefusal):
    """The query id belongs to another checkpoint."""


class OtherQuery(LedgerRefusal):
    """The consumer group has the ledger of another query."""


class SecondWrite(LedgerRefusal):
    """A second write in one batch of one run, with other rows than the first: it can't be told from a repetition."""


class ReplayDiffers(LedgerRefusal):
    """A lane that is already committed comes back with other rows: the query is not deterministic."""


class LedgerUnreadable(LedgerRefusal):
    """A ledger row is not one that this version can read."""


class StagingError(SparkEosError):
    """A lane's rows can't be written to local disk (`stage.rows=disk`). Its transaction was not opened."""


class RegistryError(SparkEosError):
    """The schema registry did not answer, or refused this client. It says nothing about the records."""


class DataLoss(SparkEosError):
    """Records that the query has yet to read are gone from Kafka."""


class EmbeddedKafkaError(SparkEosError):
    """The embedded broker could not be installed, started or reached."""
