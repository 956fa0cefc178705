"""Where a query's ledger is, noted in the consumer group that has the query's id.

A query's ledger is in its group: by default the one that has its id, else the option group.id. Started with another
group it finds an empty ledger there, and its first batch would be written again, as that of a new query.
"""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.errors import AccessDenied
from spark_eos.kafka.admin import REQUEST_TIMEOUT_S
from spark_eos.kafka.committed import committed
from spark_eos.kafka.config import ledger_settings
from spark_eos.kafka.failures import failure
from spark_eos.options import ClientSettings
from spark_eos.protocol.ledger import QueryRow, decode_query
from spark_eos.protocol.names import QUERY_PARTITION, Run, in_group
from spark_eos.protocol.refusals import other_query

log = logging.getLogger("spark_eos.sink")


def hold_home(client: ClientSettings, brokers: int, topic: str, group: str, run: Run, *, moves: bool) -> None:
    """Note that the query's ledger is in this group, not in the one that has its id; or hold that it is noted.

    Args:
        client, brokers, topic, group: as of `LaneLedger`; the topic exists.
        run: of the query, which has no row in this group.
        moves: the ledger may be elsewhere by now (`on.missing.ledger=start`).

    Raises:
        OtherQuery: it is in another group.
        ClusterError: the brokers do not answer.
    """
    doing = f"noting in group {run.query} where the query's ledger is"
    owner = in_group(run.query, group)
    try:
        consumer = Consumer(ledger_settings(client, brokers, run.query, stable=False))
        try:
            (found,) = committed(consumer, [TopicPartition(topic, QUERY_PARTITION)], REQUEST_TIMEOUT_S)
            if found.offset >= 0 and not moves:
                _hold(decode_query(found.offset, found.metadata or ""), owner, run)
                return
            row = QueryRow(0, "", "", "", 0, query=owner)
            note = TopicPartition(topic, QUERY_PARTITION, row.next_batch, row.metadata())
            consumer.commit(offsets=[note], asynchronous=False)
        finally:
            consumer.close()
    except KafkaException as exception:
        error = failure(exception, doing)
        if not isinstance(error, AccessDenied):
            raise error from exception
        log.warning("query %s: a change of its group.id will not be noticed: %s", run.query, error)


def _hold(row: QueryRow, owner: str, run: Run) -> None:
    if row.query != owner:
        raise other_query(run, row.query or run.query)
