"""The options of the source as a table in Markdown, from their definitions: `spark-eos options`, and the docs."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos.options import CLIENT_PREFIX
from spark_eos.source_options import REFUSED_IN_SOURCE, RESERVED_IN_SOURCE, SOURCE_OPTIONS


def source_table() -> str:
    """A row for each option: its name, the queries it is for, its default, its meaning, how it differs from Spark's."""
    return "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    yield _row("option", "queries", "default", "meaning", "beside Spark's own Kafka source")
    yield _row(*["---"] * 5)
    yield _row(
        f"`{CLIENT_PREFIX}bootstrap.servers`", "both", "required", "The brokers: host:port,host:port.", "the same"
    )
    for option in SOURCE_OPTIONS:
        default = f"`{option.default}`" if option.default else ""
        yield _row(f"`{option.name}`", option.queries, default, option.doc, option.differs or "the same")
    yield _row(
        f"`{CLIENT_PREFIX}group.id`",
        "both",
        "",
        "The group that startingOffsets=`group` starts at, and that brokers are told of. It is not joined.",
        "no warning: nothing is committed to it",
    )
    yield _row(
        f"`{CLIENT_PREFIX}*`",
        "both",
        "",
        "Any other setting of the client.",
        "librdkafka's names, not the Java client's",
    )
    for name, reason in REFUSED_IN_SOURCE.items():
        yield _row(f"`{name}`", "", "", f"Refused: {reason}.", "not supported")
    for name, reason in sorted(RESERVED_IN_SOURCE.items()):
        yield _row(f"`{CLIENT_PREFIX}{name}`", "", "", f"Refused: {reason}.", "reserved")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
