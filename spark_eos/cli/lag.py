"""`spark-eos lag`: how far a query is behind, and what holds readers back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table

from spark_eos.checker.settings import Config
from spark_eos.cli.shared import Group, Json, Servers, client_settings, show, told
from spark_eos.kafka.listing import Listing
from spark_eos.options import ClientSettings
from spark_eos.source_values import Subscription


@dataclass(frozen=True)
class PartitionLag:
    """One partition.

    Args:
        topic, partition: which.
        committed: the group's offset: what is below it is processed. None where it has none, or no group was asked of.
        lso: last stable offset: where read_committed readers end.
        high: high watermark: where the log ends.
        lag: records and markers between committed and lso.
        held_back: those between lso and high, behind a transaction that is open.
    """

    topic: str
    partition: int
    committed: int | None
    lso: int
    high: int
    lag: int | None
    held_back: int


def lag(
    *,
    bootstrap_servers: Servers,
    topic: Annotated[list[str], typer.Option("--topic", help="Topic to look at. May be repeated.")],
    group: Group = None,
    command_config: Config = None,
    as_json: Json = False,
) -> None:
    """Show, for each partition, a group's offset, the last stable offset and the high watermark.

    Of a query's input topics the lag tells how far it is behind; of its outputs what is held back tells that
    read_committed readers wait for a transaction.
    """
    with told():
        found = measured(client_settings(bootstrap_servers, command_config), topic, group)
        show({"group": group, "partitions": [asdict(each) for each in found]}, table(found), as_json)


def measured(client: ClientSettings, topics: Sequence[str], group: str | None) -> list[PartitionLag]:
    """Each partition of these topics, in order.

    Raises:
        SparkEosError: a topic does not exist, or the brokers do not answer.
    """
    listing = Listing(client, Subscription(topics=tuple(sorted(topics))))
    bounds = listing.holdings().bounds
    committed = listing.committed(group, bounds, stable=False) if group else {}
    return [
        PartitionLag(
            *key,
            committed=(at := committed.get(key)),
            lso=found.end,
            high=found.high_watermark,
            lag=None if at is None else max(0, found.end - at),
            held_back=found.high_watermark - found.end,
        )
        for key, found in sorted(bounds.items())
    ]


def table(found: Sequence[PartitionLag]) -> Table:
    """A partition a row; what holds readers back stands out."""
    made = Table()
    for name in ("topic", "partition", "committed", "last stable offset", "high watermark", "lag", "held back"):
        made.add_column(name, justify="left" if name == "topic" else "right")
    for each in found:
        numbers = ("–" if n is None else f"{n:,}" for n in (each.committed, each.lso, each.high, each.lag))
        held = f"[bold]{each.held_back:,}[/]" if each.held_back else "0"
        made.add_row(each.topic, str(each.partition), *numbers, held)
    return made
