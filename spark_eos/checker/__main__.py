"""The checker's command: `python -m spark_eos.checker --bootstrap-servers … --input in --output a --output b`."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spark_eos.checker.check import WAIT_S, check
from spark_eos.checker.findings import PROPERTIES, Findings
from spark_eos.checker.java_reader import JavaReader
from spark_eos.checker.reader import CannotCheck
from spark_eos.checker.settings import Config, NoSetting, settings_of
from spark_eos.checker.watch import Watch

CLEAN, ANOMALY, NOT_CHECKED = 0, 1, 2


def verify(
    *,
    bootstrap_servers: Annotated[str, typer.Option(help="Brokers: host:port,host:port.")],
    inputs: Annotated[list[str], typer.Option("--input", help="Topic that is copied. May be repeated.")],
    outputs: Annotated[list[str], typer.Option("--output", help="Topic that it is copied to. May be repeated.")],
    group: Annotated[str | None, typer.Option(help="The job's consumer group: its query id.")] = None,
    watch: Annotated[float, typer.Option(min=0, help="Seconds to watch a job that runs, before the check.")] = 0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for open transactions, silent brokers.")] = WAIT_S,
    headers: Annotated[bool, typer.Option(help="Copies have the headers of their input record.")] = True,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Copies have its timestamp, too.")] = False,
    java_reader: Annotated[
        bool, typer.Option("--java-reader", help="Read the outputs with Kafka's own client, too. It needs a JDK.")
    ] = False,
    command_config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Check that every input record was copied to each output exactly once.

    Exit code 0 if it was, 1 if anything is wrong, 2 if it can't be checked.
    """
    try:
        job: dict[str, Any] = {"inputs": tuple(inputs), "outputs": tuple(outputs), "group": group}
        job["client"] = settings_of(command_config) if command_config else None
        asked: dict[str, Any] = {"headers": headers, "timestamps": timestamps, "wait_s": wait}
        asked["java_reader"] = JavaReader(bootstrap_servers, job["client"]) if java_reader else None
        with Watch(bootstrap_servers, **job) if watch else nullcontext() as watching:
            time.sleep(watch)
            findings = check(bootstrap_servers, **job, **asked, watch=watching)
    except (CannotCheck, NoSetting) as error:
        Console(stderr=True).print(f"can't check: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(NOT_CHECKED) from None
    if as_json:
        typer.echo(json.dumps(asdict(findings) | {"anomalies": findings.anomalies}))
    else:
        Console().print(table(findings))
    raise typer.Exit(ANOMALY if findings.anomalies else CLEAN)


def table(findings: Findings) -> Table:
    """The figures as rows; what should be 0 and is not is marked, with examples."""
    made = Table()
    made.add_column("figure")
    made.add_column("found", justify="right")
    made.add_column("examples", overflow="fold")
    for label, count in findings.figures.items():
        text = f"{label}: {PROPERTIES[label]}" if label in PROPERTIES else label
        made.add_row(text, _cell(label, count), "\n".join(findings.examples.get(label, ())).replace("[", r"\["))
    return made


def _cell(label: str, count: int | None) -> str:
    if count is None:
        return "–"
    if label not in PROPERTIES:
        return f"{count:,}"
    return f"[bold red]{count:,} ✗[/]" if count else "[green]0[/]"


if __name__ == "__main__":
    typer.run(verify)
