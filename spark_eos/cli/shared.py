"""What the commands share: whom they ask about which query, and how they say what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spark_eos.checker.settings import NoSetting, settings_of
from spark_eos.errors import OptionError, SparkEosError
from spark_eos.kafka.admin import Cluster
from spark_eos.kafka.ledger import KafkaLedger
from spark_eos.options import DEFAULT_LEDGER_TOPIC, ClientSettings

Servers = Annotated[str, typer.Option("--bootstrap-servers", help="Brokers: host:port,host:port.")]
QueryId = Annotated[str, typer.Option("--query-id", help="The sink's query.id (or write.id).")]
Group = Annotated[str | None, typer.Option("--group", help="The sink's group.id. Default: the query id.")]
LedgerTopic = Annotated[str, typer.Option("--ledger-topic", help="The sink's ledger.topic.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
LEDGER_TOPIC = DEFAULT_LEDGER_TOPIC


@dataclass(frozen=True)
class Asked:
    """The query that a command is about.

    Args:
        client: client settings.
        query: its id.
        group: its consumer group.
        ledger_topic: where its ledger is.
    """

    client: ClientSettings
    query: str
    group: str
    ledger_topic: str

    @classmethod
    def of(cls, servers: str, query: str, group: str | None, ledger_topic: str, config: Path | None) -> Asked:
        """As the commands' options give it; errors as of `client_settings`."""
        return cls(client_settings(servers, config), query, group or query, ledger_topic)

    @cached_property
    def cluster(self) -> Cluster:
        """Where it is."""
        return Cluster(self.client)

    @cached_property
    def brokers(self) -> int:
        """How many brokers that has."""
        return self.cluster.brokers()

    def ledger(self) -> KafkaLedger:
        """Its ledger.

        Raises:
            ClusterError: Kafka can't be reached.
            OptionError: there is no such ledger topic.
        """
        if self.cluster.partitions([self.ledger_topic])[self.ledger_topic] is None:
            raise OptionError(
                f"there is no ledger topic {self.ledger_topic} in this cluster",
                do="Give the sink's ledger.topic as --ledger-topic, and the brokers that the sink writes to.",
            )
        return KafkaLedger(self.cluster, self.client, self.brokers, self.ledger_topic, self.group)

    def elsewhere(self, group: str) -> OptionError:
        """The error for a query whose ledger is in another group."""
        return OptionError(f"the ledger of query {self.query} is in group {group}", do=f"Add --group {group}.")

    def unknown(self) -> OptionError:
        """The error for a query that has no row."""
        return OptionError(
            f"the ledger has no row of query {self.query} in group {self.group}",
            do="Look at the query.id, and at group.id and ledger.topic if the sink was given them. A query that "
            "never wrote has none, and one that did not run for offsets.retention.minutes no longer has one.",
        )


def client_settings(servers: str, config: Path | None) -> ClientSettings:
    """The client's settings: those of a file, and the brokers.

    Raises:
        OptionError: a line of the file is no setting.
    """
    try:
        found = settings_of(config) if config else {}
    except NoSetting as error:
        raise OptionError(str(error), do="write it as NAME=VALUE.") from None
    return ClientSettings(found | {"bootstrap.servers": servers})


@contextmanager
def told() -> Iterator[None]:
    """An error of ours is one line on stderr, and exit code 1."""
    try:
        yield
    except SparkEosError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


def show(found: Mapping[str, Any], table: Table, as_json: bool) -> None:
    """A result, as JSON or as a table. Colours on a terminal only."""
    if as_json:
        typer.echo(json.dumps(found))
    else:
        Console(highlight=False).print(table)
