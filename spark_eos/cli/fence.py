"""`spark-eos fence`: end what a dead query left open."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from spark_eos.checker.settings import Config
from spark_eos.cli.lanes import OPEN, look
from spark_eos.cli.shared import (
    LEDGER_TOPIC,
    Asked,
    Group,
    Json,
    LedgerTopic,
    QueryId,
    Servers,
    show,
    told,
)
from spark_eos.kafka.producer import ProducerFactory
from spark_eos.protocol.names import driver_transactional_id, lane_transactional_id
from spark_eos.protocol.parallel import at_once


def fence(
    *,
    bootstrap_servers: Servers,
    query_id: QueryId,
    group: Group = None,
    ledger_topic: LedgerTopic = LEDGER_TOPIC,
    command_config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be fenced.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Abort what a query that is dead has left open, so that readers need not wait for its transactions' timeout.

    Each transactional.id of the query is fenced: a new producer takes it, and Kafka aborts what the old one had open.
    A query's next start does the same; this is for one that will not be started soon. If the query still runs, it
    ends with Fenced, and its next start goes on: nothing is lost or doubled.
    """
    with told():
        asked = Asked.of(bootstrap_servers, query_id, group, ledger_topic, command_config)
        query, states = look(asked)
        # A run that does not know how many lanes it starts notes as many as there may be: some of them have no state.
        lanes = sorted({*range(query.lanes), *(each.lane for each in states)})
        if not (dry_run or yes):
            typer.confirm(f"Fence query {query_id} with {len(lanes)} lanes?", abort=True, err=True)
        ids = [driver_transactional_id(query_id), *(lane_transactional_id(query_id, lane) for lane in lanes)]
        if not dry_run:
            fence_all(asked, ids)
        hanging = {each.lane for each in states if each.open}
        opened = [False, *(lane in hanging for lane in lanes)]
        made = Table(
            title=f"query {query_id}: {'would fence' if dry_run else 'fenced'} {len(ids)}", title_justify="left"
        )
        made.add_column("transactional.id")
        made.add_column("had open" if not dry_run else "has open")
        for transactional_id, is_open in zip(ids, opened, strict=True):
            made.add_row(transactional_id, OPEN if is_open else "")
        found = {"query": query_id, "run": query.run, "dry_run": dry_run}
        show(found | {"transactional_ids": ids, "lanes": [asdict(each) for each in states]}, made, as_json)


def fence_all(asked: Asked, ids: list[str]) -> None:
    """Take each of these transactional.ids, several at a time.

    Raises:
        SparkEosError: one could not be taken; the others that were begun are.
    """
    ledger = asked.ledger()
    try:
        factory = ProducerFactory(asked.client, asked.brokers, asked.ledger_topic, ledger.group_metadata())
    finally:
        ledger.close()

    def take(number: int) -> None:
        with factory.open(ids[number]) as transaction:
            transaction.fence()

    at_once(take, range(len(ids)))
