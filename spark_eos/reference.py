"""The options of source and sink as tables in Markdown, from their definitions: `spark-eos options`, and the docs."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos.options import ALL_SINK_OPTIONS, CLIENT_PREFIX, OF_A_STREAM, OF_A_WRITE, RESERVED_IN_SINK
from spark_eos.source_options import REFUSED_IN_SOURCE, RESERVED_IN_SOURCE, SOURCE_OPTIONS


def source_table() -> str:
    """A row for each option: its name, the queries it is for, its default, its meaning, how it differs from Spark's."""
    return "\n".join(_source_rows()) + "\n"


def sink_table() -> str:
    """A row for each option: its name, whether it is for streams or batch writes, its default, its meaning."""
    return "\n".join(_sink_rows()) + "\n"


def _sink_rows() -> Iterator[str]:
    yield _row("option", "for", "default", "meaning")
    yield _row(*["---"] * 4)
    yield _row(f"`{CLIENT_PREFIX}bootstrap.servers`", "both", "required", "The brokers: host:port,host:port.")
    for option in ALL_SINK_OPTIONS:
        use = "streams" if option.name in OF_A_STREAM else "`df.write`" if option.name in OF_A_WRITE else "both"
        yield _row(f"`{option.name}`", use, f"`{option.default}`" if option.default else "", option.doc)
    meaning = "Any other setting of the client, by librdkafka's name: `kafka.transaction.timeout.ms`, `kafka.sasl.*`, …"
    yield _row(f"`{CLIENT_PREFIX}*`", "both", "", meaning)
    for name, reason in sorted(RESERVED_IN_SINK.items()):
        yield _row(f"`{CLIENT_PREFIX}{name}`", "", "", f"Refused: {reason}.")


def _source_rows() -> Iterator[str]:
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
