"""The command `spark-eos`: a broker for tests, and what an operator asks about a query that runs, or did."""

from __future__ import annotations

import typer

from spark_eos.checker.__main__ import verify
from spark_eos.cli.broker import broker
from spark_eos.cli.fence import fence
from spark_eos.cli.lag import lag
from spark_eos.cli.lanes import lanes
from spark_eos.cli.options import options

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Exactly-once Kafka for Spark Structured Streaming."""


for command in (lanes, lag, fence, verify, broker, options):
    app.command()(command)
