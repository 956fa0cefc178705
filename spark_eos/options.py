"""Options of the sink, and how options are read at all: known names only, typed, frozen, secrets hidden.

An option is a pair of strings, as Spark hands it over. Names are matched without regard to case, as in Spark.
Names that start with `kafka.` are settings of the Kafka client and are passed on without the prefix.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_eos.errors import OptionError

CLIENT_PREFIX = "kafka."
BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
DEFAULT_LEDGER_TOPIC = "spark-eos-ledger"

Parser = Callable[[str], Any]


@dataclass(frozen=True)
class Option:
    """One option: its name as documented, what it is for, its default (None: not set), how its text is read."""

    name: str
    doc: str
    default: str | None = None
    parse: Parser = str


class ClientSettings(dict[str, str]):
    """Settings of the Kafka client, without the prefix. Shows their names only: any value may be a secret."""

    def __repr__(self) -> str:
        return f"ClientSettings({', '.join(sorted(self))})"

    __str__ = __repr__


LOADS_CODE = "it loads code into the process, so it can't be set from a query's options"

RESERVED_EVERYWHERE = {
    "plugin.library.paths": LOADS_CODE,
    "ssl.engine.location": LOADS_CODE,
    "key.serializer": "keys are written as they are; cast the column",
    "value.serializer": "values are written as they are; cast the column",
    "key.deserializer": "keys are read as binary; decode the column",
    "value.deserializer": "values are read as binary; decode the column",
    "interceptor.classes": "it is a setting of the Java client, and the client here is librdkafka",
    "enable.auto.commit": "offsets are committed with the data, never beside it",
}
"""Client settings refused for reader and writer alike, with the reason."""

RESERVED_IN_SINK = RESERVED_EVERYWHERE | {
    "transactional.id": "it is derived from query.id and the lane, which is what fences older attempts",
    "enable.idempotence": "a transactional producer is always idempotent",
    "acks": "a transactional producer always waits for all in-sync replicas",
    "request.required.acks": "a transactional producer always waits for all in-sync replicas",
    "isolation.level": "the sink reads nothing but the ledger; set it on the source",
    "group.id": "set the option group.id, without the prefix",
    "delivery.report.only.error": "the sink looks at every delivery error itself",
}


def read_options(
    given: Mapping[str, Any],
    known: Iterable[Option],
    reserved: Mapping[str, str],
    *,
    refused: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], ClientSettings]:
    """Sort options into parsed values by name and client settings; refuse every other name.

    Args:
        given: option name to value; values are turned into strings as Spark does (True becomes "true").
        known: the options there are.
        reserved: client settings (no prefix) that can't be set, with the reason.
        refused: further option names (lower case) that are understood and refused, with the reason.

    Raises:
        OptionError: an unknown, reserved or refused name, a wrong value, or no bootstrap servers.
    """
    options = {option.name.lower(): option for option in known}
    values: dict[str, Any] = {option.name: None for option in options.values()}
    client = ClientSettings()
    for name, raw in given.items():
        text, lower = _text(raw), name.lower()
        if lower.startswith(CLIENT_PREFIX):
            setting = lower.removeprefix(CLIENT_PREFIX)
            _check_reserved(name, setting, reserved)
            client[setting] = text
        elif refused and lower in refused:
            raise OptionError(f"option {name} can't be used: {refused[lower]}", do="Leave it out.")
        elif lower in options:
            values[options[lower].name] = _parse(options[lower], text)
        else:
            raise _unknown(name, [*values, BOOTSTRAP_SERVERS])
    for option in options.values():
        if values[option.name] is None and option.default is not None:
            values[option.name] = option.parse(option.default)
    if not client.get("bootstrap.servers", "").strip():
        raise OptionError(
            f"option {BOOTSTRAP_SERVERS} is missing",
            do="Set it to the brokers' addresses: host:port,host:port.",
        )
    return values, client


def _text(raw: Any) -> str:
    return str(raw).lower() if isinstance(raw, bool) else str(raw)


def _check_reserved(name: str, setting: str, reserved: Mapping[str, str]) -> None:
    if setting in reserved:
        raise OptionError(f"option {name} is reserved: {reserved[setting]}", do="Leave it out.")


def _parse(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"option {option.name} is {text!r}: {error}", do=option.doc) from None


def _unknown(name: str, names: list[str]) -> OptionError:
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"Did you mean {by_lower[near[0]]}?" if near else "Client settings need the prefix 'kafka.'."
    return OptionError(f"option {name} is not known", do=hint)


def one_of(*words: str) -> Parser:
    """A parser that accepts just these words."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return text.lower()

    return parse


def boolean(text: str) -> bool:
    """`true` or `false`, in any case."""
    return bool(one_of("true", "false")(text) == "true")


_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def legal_name(text: str) -> str:
    """A name that Kafka accepts everywhere: as a topic, a group, and the head of a transactional.id."""
    if not _LEGAL_NAME.fullmatch(text):
        raise ValueError("it must be 1 to 200 letters, digits, dots, underscores or hyphens")
    return text


SINK_OPTIONS = (
    Option(
        "query.id",
        "Stable name of the query; every transactional.id begins with it. Default: the id that Spark keeps in "
        "the checkpoint. Set it, so that the query can be recovered when its checkpoint is lost.",
        parse=legal_name,
    ),
    Option("group.id", "Consumer group that offsets are committed to. Default: the query id.", parse=legal_name),
    Option(
        "ledger.topic",
        "Empty topic that anchors the query's and the lanes' ledger rows. Created if it does not exist.",
        default=DEFAULT_LEDGER_TOPIC,
        parse=legal_name,
    ),
    Option("topic", "Topic that every row goes to; it wins over a column topic.", parse=legal_name),
    Option(
        "on.other.checkpoint",
        "What to do when the query id belongs to another checkpoint: 'fail', or 'adopt' it: go on with this "
        "checkpoint and drop rows whose source position is below the group's committed offset.",
        default="fail",
        parse=one_of("fail", "adopt"),
    ),
    Option(
        "on.missing.ledger",
        "What to do when the ledger knows nothing of a query that is past its first batch: 'fail', or 'start' "
        "a ledger at this batch (right for a query that used another sink until now).",
        default="fail",
        parse=one_of("fail", "start"),
    ),
)


@dataclass(frozen=True)
class SinkOptions:
    """The sink's options, validated. Fields are the options of `SINK_OPTIONS`, dots as underscores."""

    client: ClientSettings
    query_id: str | None
    group_id: str | None
    ledger_topic: str
    topic: str | None
    on_other_checkpoint: Literal["fail", "adopt"]
    on_missing_ledger: Literal["fail", "start"]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SinkOptions:
        """Read and check options as a user gives them.

        Raises:
            OptionError: see `read_options`.
        """
        values, client = read_options(given, SINK_OPTIONS, RESERVED_IN_SINK)
        return cls(client=client, **{name.replace(".", "_"): value for name, value in values.items()})
