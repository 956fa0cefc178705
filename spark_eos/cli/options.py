"""`spark-eos options`: the reference of the source's and the sink's options."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from spark_eos.reference import sink_table, source_table


class Side(str, Enum):
    """Whose options."""

    SOURCE = "source"
    SINK = "sink"


def options(side: Annotated[Side, typer.Argument(help="Whose options.")] = Side.SOURCE) -> None:
    """Print the options of the source (beside those of Spark's own) or of the sink, as a table in Markdown."""
    typer.echo(source_table() if side is Side.SOURCE else sink_table(), nl=False)
