"""`spark-eos broker`: a real Kafka on this machine, for as long as it runs."""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from spark_eos.cli.shared import told
from spark_eos.errors import OptionError
from spark_eos.testing import EmbeddedKafka


def broker(
    brokers: Annotated[int, typer.Option(help="1 or 3.")] = 1,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the first broker, the others following. Default: free ones."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder to keep the data in. Default: a temporary one, removed at the end."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PARTITIONS", help="Topic to create unless it exists. May be repeated."),
    ] = None,
) -> None:
    """Run a real Apache Kafka on this machine until Ctrl+C or SIGTERM.

    The first line on stdout is its bootstrap servers. Nothing outside this machine can reach it.
    """
    with told(), suppress(KeyboardInterrupt):  # the way to end it: the broker is stopped by then
        topics = dict(map(parse_topic, topic or []))
        kafka = EmbeddedKafka(brokers, data_dir=data_dir, port=port)
        _listen_to_operator()
        with kafka:
            for name, partitions in topics.items():
                kafka.create_topic(name, partitions, exist_ok=True)
            typer.echo(kafka.bootstrap_servers)
            _stay(kafka)


def parse_topic(text: str) -> tuple[str, int]:
    """`name:partitions` as a pair.

    Raises:
        OptionError: it has another form.
    """
    name, _, partitions = text.rpartition(":")
    if not name or not partitions.isdecimal() or int(partitions) < 1:
        raise OptionError(f"--topic {text} is not NAME:PARTITIONS", do="write it like --topic orders:4.")
    return name, int(partitions)


def _listen_to_operator() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # Both, since a shell that starts this in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _stay(kafka: EmbeddedKafka) -> None:
    while True:
        time.sleep(1)
        kafka.check()
