"""What happens to a query whose records are gone: it fails, or warns and goes on (failOnDataLoss)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_eos.errors import DataLoss
from spark_eos.protocol.positions import TopicPartition

log = logging.getLogger(__name__)


def report_losses(lost: Mapping[TopicPartition, str], *, fail: bool) -> None:
    """Raise, or warn, if there are any.

    Args:
        lost: what happened, by partition: see `spark_eos.kafka.offsets.lost`.
        fail: the option failOnDataLoss.

    Raises:
        DataLoss: there are, and `fail` is set.
    """
    told = "; ".join(f"topic {topic}, partition {partition}, {what}" for (topic, partition), what in lost.items())
    if told and fail:
        raise data_loss(told)
    if told:
        log.warning("going on with what is there (failOnDataLoss is false): %s", told)


def data_loss(told: str) -> DataLoss:
    """The error for records that are gone.

    Args:
        told: which, and how: "topic a, partition 0, to be read from offset 3, starts at 7".
    """
    return DataLoss(
        told,
        do="If these records may be left out, set failOnDataLoss to false until the query no longer warns of them. "
        "Else restore them, or raise the topic's retention before you start the query with a new checkpoint.",
    )
