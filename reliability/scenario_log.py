"""What the scenarios look for in dumps of Kafka's log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from spark_eos.testing.log_dump import dumped_records, line

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
"""By `transactionStatus`: org.apache.kafka.coordinator.transaction.TransactionState."""


def states_of(dump: str, transactional_id: str) -> list[str]:
    """The states of a transaction in a dump of the transaction log, with the epoch of the log's leader."""
    found = []
    for batch, record in dumped_records(dump):
        if json.loads(record["key"])["data"]["transactionalId"] == transactional_id and record["payload"] != "<DELETE>":
            data = json.loads(record["payload"])["data"]
            record["state"] = STATES[data["transactionStatus"]]
            found.append(line(batch, ("partitionLeaderEpoch",), record, ("state",)))
    return found


def markers(log: Iterable[str]) -> list[str]:
    """COMMIT or ABORT of each marker, in the order of the log."""
    return re.findall(r"endTxnMarker: (\w+)", "\n".join(log))


def numbers(log: Iterable[str], name: str) -> list[int]:
    """A field of all lines, such as `producerEpoch`."""
    return [int(number) for number in re.findall(rf"{name}: (\d+)", "\n".join(log))]
