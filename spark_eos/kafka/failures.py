"""What a Kafka error means for us. The only file that names Kafka's error codes.

`classify` turns an error of a transaction into a verb; `failure` turns any error into one of ours, with what to do.
`tests/unit/test_failures.py` goes through every code that the client knows.
"""

from __future__ import annotations

import math
import time
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

from spark_eos.errors import (
    AccessDenied,
    BrokerUnreachable,
    ClusterError,
    DataLoss,
    Fenced,
    OptionError,
    PartitionOutOfRange,
    RecordRefused,
    RecordTooLarge,
    SparkEosError,
    TopicMissing,
    TransactionAborted,
    TransactionTimeoutTooLong,
    Unconfirmed,
)


class Verb(Enum):
    """What a transaction's error asks for."""

    RETRY = "retry"
    """Call again: nothing happened, or calling again resumes."""
    ABORT = "abort"
    """Nothing of the transaction will be visible once it is aborted."""
    FENCED = "fenced"
    """A newer producer of the transactional.id exists. This one can't do anything any more."""
    UNCONFIRMED = "unconfirmed"
    """Whether it took effect is not known."""
    FATAL = "fatal"
    """The producer is of no use any more. Without a commit asked for, nothing will be visible."""


FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
}

UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._SSL,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}

NOT_LET_IN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}

NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

NO_TOPIC = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
NO_PARTITION = {KafkaError._UNKNOWN_PARTITION}
TOO_LARGE = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
}
NOT_VALID = {KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}
OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET}
WRONG_SETTING = {KafkaError._INVALID_ARG, KafkaError._NOT_CONFIGURED, KafkaError._UNKNOWN_PROTOCOL}
TRANSIENT = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""Answers of a broker that is coming up, moving a leader, or has an open transaction: ask again."""

NOT_BEFORE_PROPAGATED = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
"""Another query has created or widened the ledger in the meantime."""


def error_of(exception: KafkaException) -> KafkaError:
    """The KafkaError inside a KafkaException."""
    first = exception.args[0] if exception.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(first))


def classify(error: KafkaError, *, committing: bool) -> Verb:
    """What to do after an error of a transactional call.

    Args:
        error: as the client reports it.
        committing: whether a commit was asked for. From then on an error that says neither "abort" nor
            "fenced" leaves the outcome open.
    """
    if error.code() in FENCED:
        return Verb.FENCED
    if error.txn_requires_abort():
        return Verb.ABORT
    if committing:
        return Verb.UNCONFIRMED
    if error.retriable() or error.code() in TRANSIENT:
        return Verb.RETRY
    return Verb.FATAL


def is_transient(exception: BaseException) -> bool:
    """Whether a request that is not part of a transaction should simply be made again."""
    if not isinstance(exception, KafkaException):
        return False
    error = error_of(exception)
    return error.code() in TRANSIENT or (error.retriable() and error.code() not in UNREACHABLE)


def is_lost(exception: KafkaException) -> bool:
    """Whether the broker that was asked went away before it answered."""
    return error_of(exception).code() == KafkaError._TRANSPORT


def is_timeout(exception: KafkaException) -> bool:
    """Whether no answer came in time."""
    return error_of(exception).code() == KafkaError._TIMED_OUT


def is_missing_topic(error: KafkaError) -> bool:
    """Whether the error says that a topic (or one of its partitions) does not exist."""
    return error.code() in NO_TOPIC


def is_end_of_partition(error: KafkaError) -> bool:
    """Whether it is no error, but a consumer's note that it has read all there is."""
    return bool(error.code() == KafkaError._PARTITION_EOF)


def is_denied(error: KafkaError) -> bool:
    """Whether the client was not let in, or a right is missing."""
    return error.code() in NOT_LET_IN | NO_RIGHT


def is_denied_group(error: KafkaError) -> bool:
    """Whether a right on a consumer group is missing."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def is_gone(error: KafkaError) -> bool:
    """Whether a consumer was told that what it is to read is not there: out of range, or no such partition."""
    return error.code() in OUT_OF_RANGE | NO_TOPIC | NO_PARTITION


def is_too_large(error: KafkaError) -> bool:
    """Whether the error says that a record is too large."""
    return error.code() in TOO_LARGE


def is_late(error: KafkaError) -> bool:
    """Whether the error says that a record was not delivered within message.timeout.ms."""
    return bool(error.code() == KafkaError._MSG_TIMED_OUT)


def is_state(error: KafkaError) -> bool:
    """Whether the client refuses a call because of what happened before, which it does not say."""
    return bool(error.code() == KafkaError._STATE)


def lost_race(exception: KafkaException) -> bool:
    """Whether a topic could not be created or widened because someone else just did."""
    return error_of(exception).code() in NOT_BEFORE_PROPAGATED


def transaction_failure(exception: KafkaException, doing: str, *, committing: bool = False) -> SparkEosError:
    """The error of a transactional call, by its verb.

    Args:
        exception: as raised by the client.
        doing: what was being done, for the text: "adding offsets to the transaction".
        committing: see `classify`.
    """
    error = error_of(exception)
    verb = classify(error, committing=committing)
    told = f"{doing}: {_told(error)}"
    if error.code() == KafkaError.INVALID_PRODUCER_ID_MAPPING:
        return Fenced(
            f"{told}. The brokers have forgotten this transactional.id, since nothing was committed with it for long "
            "(transactional.id.expiration.ms, by default 7 days); a newer producer may have it since",
            do="Restart the query, unless another run of it is alive. If the brokers forget within less than a day, "
            "raise transactional.id.expiration.ms.",
        )
    if verb is Verb.FENCED:
        return Fenced(
            f"{told}. A newer producer with this transactional.id was started, or the transaction was open longer "
            "than kafka.transaction.timeout.ms and the broker ended it",
            do="If another run or attempt of this query is alive, nothing. Else raise kafka.transaction.timeout.ms "
            "above the time a lane takes, or make batches smaller (maxOffsetsPerTrigger).",
        )
    if verb is Verb.UNCONFIRMED:
        return Unconfirmed(
            f"{told}. Whether the transaction committed is not known",
            do="Nothing: the next attempt fences this one and asks the ledger. If Spark does not retry the task "
            "(local[n] never does), restart the query.",
        )
    known = _known(error, doing)
    if known is not None:
        return known
    return TransactionAborted(
        f"{told}. The transaction is aborted, nothing of it is visible",
        do="Nothing: the next attempt writes the lane again. If it fails every time, look at the brokers' logs.",
    )


class LastWord:
    """What a client last said by itself of the brokers, as its `error_cb`.

    A client that is not let in, or finds no broker, tries again for ever; calls fail for lack of time. This is why.
    """

    def __init__(self) -> None:
        self._error: KafkaError | None = None
        self._said_at = -math.inf

    def __call__(self, error: KafkaError) -> None:
        # That all brokers are down comes after the reason why, and knows less.
        if self._error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._error, self._said_at = error, time.monotonic()

    def forget(self) -> None:
        """The brokers answer: what was said before explains nothing any more."""
        self._error = None

    def denial(self, since: float = -math.inf) -> KafkaError | None:
        """The last word, if it is that the client is not let in.

        Args:
            since: moment of `time.monotonic()`; what was said before does not count.
        """
        if self._error is None or self._said_at < since or not is_denied(self._error):
            return None
        return self._error

    def __str__(self) -> str:
        if self._error is None:
            return ""
        if self._error.code() == KafkaError._ALL_BROKERS_DOWN:
            return "; connections are closed without a reason, as where another kafka.security.protocol is expected"
        return f"; the client's last word: {self._error.str()}"


def failure(exception: KafkaException, doing: str, last_word: LastWord | None = None) -> SparkEosError:
    """The error of any other call: metadata, offsets, configuration, reading.

    Args:
        exception: as raised by the client.
        doing: what was being done, for the text: "looking up topic a".
        last_word: why the brokers can't be reached, if that is what is wrong.
    """
    error, why = error_of(exception), ""
    if last_word is not None and error.code() in UNREACHABLE:
        denial = last_word.denial()
        error, why = (denial, "") if denial is not None else (error, str(last_word))
    known = _known(error, doing, why)
    return known or ClusterError(f"{doing}: {_told(error)}", do="Look at the brokers' logs for this error.")


KNOWN: tuple[tuple[set[int], type[SparkEosError], str], ...] = (
    (
        NOT_LET_IN,
        AccessDenied,
        "Check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password (or the "
        "kafka.sasl.oauthbearer.* options).",
    ),
    (
        NO_RIGHT,
        AccessDenied,
        "Check the ACLs, and the name: without Describe, a topic that does not exist looks the same. The source needs "
        "Describe and Read on its topics and, for startingOffsets=group, Describe on the group. The sink needs Write "
        "and Describe on its topics and on transactional.ids that begin with the query id, Read on its group, the "
        "ledger topic and the source topics.",
    ),
    (NO_TOPIC, TopicMissing, "Create the topic; spark-eos never lets a broker create one by accident."),
    (NO_PARTITION, PartitionOutOfRange, "Use a partition that the topic has, or leave the column partition null."),
    (TOO_LARGE, RecordTooLarge, "Raise kafka.message.max.bytes and the topic's max.message.bytes."),
    (
        NOT_VALID,
        RecordRefused,
        "Look at the column timestamp (the topic's message.timestamp.before.max.ms and after.max.ms bound it) and, "
        "where the topic is compacted, for null keys. A broker refuses a batch of records as one: any may be it.",
    ),
    (
        {KafkaError.INVALID_TRANSACTION_TIMEOUT},
        TransactionTimeoutTooLong,
        "Lower kafka.transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms.",
    ),
    (OUT_OF_RANGE, DataLoss, "Set failOnDataLoss to false to go on from what is there."),
    (WRONG_SETTING, OptionError, "Correct the option: client settings are librdkafka's, with the prefix 'kafka.'."),
    (
        UNREACHABLE,
        BrokerUnreachable,
        "Check kafka.bootstrap.servers, kafka.security.protocol, the network, and that the brokers are up.",
    ),
)


def _known(error: KafkaError, doing: str, why: str = "") -> SparkEosError | None:
    for codes, kind, remedy in KNOWN:
        if error.code() in codes:
            return kind(f"{doing}: {_told(error)}{why}", do=remedy)
    return None


def timed_out(told: str) -> KafkaException:
    """What the client would raise for a call that ran out of time, for one that did not return at all."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, told))


def _told(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
