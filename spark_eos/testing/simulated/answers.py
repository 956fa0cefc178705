"""What a simulated broker answers when it does not do as it is asked, by Kafka's names."""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    """Kafka's error codes, as far as a transactional client meets them."""

    CONCURRENT_TRANSACTIONS = "CONCURRENT_TRANSACTIONS"
    COORDINATOR_LOAD_IN_PROGRESS = "COORDINATOR_LOAD_IN_PROGRESS"
    INVALID_PRODUCER_EPOCH = "INVALID_PRODUCER_EPOCH"
    INVALID_PRODUCER_ID_MAPPING = "INVALID_PRODUCER_ID_MAPPING"
    INVALID_TRANSACTION_TIMEOUT = "INVALID_TRANSACTION_TIMEOUT"
    INVALID_TXN_STATE = "INVALID_TXN_STATE"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    PRODUCER_FENCED = "PRODUCER_FENCED"
    TRANSACTION_COORDINATOR_FENCED = "TRANSACTION_COORDINATOR_FENCED"
    UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
    UNSTABLE_OFFSET_COMMIT = "UNSTABLE_OFFSET_COMMIT"

    @property
    def retriable(self) -> bool:
        """The same request may be answered otherwise a moment later."""
        return self in _RETRIABLE

    @property
    def fenced(self) -> bool:
        """A newer producer of the transactional.id exists, or the id was forgotten."""
        return self in _FENCED


_RETRIABLE = {Code.CONCURRENT_TRANSACTIONS, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.UNSTABLE_OFFSET_COMMIT}
_FENCED = {Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED}


class BrokerError(Exception):
    """A broker refused a request."""

    def __init__(self, code: Code, why: str) -> None:
        self.code = code
        super().__init__(f"{code.value}: {why}")


class Unanswered(Exception):
    """No answer came. Whether the request was done, is yet to be done or never will be, its sender can't know."""
