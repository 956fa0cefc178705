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

LEAVE_OUT = "Leave it out."
USE_OAUTHBEARER = "Set kafka.sasl.oauthbearer.method to oidc, and kafka.sasl.oauthbearer.token.endpoint.url."
NO_PASSWORD = "Leave it out: kafka.ssl.ca.location names a PEM file, which has no password."

JAVA_ONLY = {
    "sasl.jaas.config": "Set kafka.sasl.username and kafka.sasl.password.",
    "sasl.login.class": USE_OAUTHBEARER,
    "sasl.login.callback.handler.class": USE_OAUTHBEARER,
    "sasl.client.callback.handler.class": USE_OAUTHBEARER,
    "ssl.truststore.location": "Set kafka.ssl.ca.location to a PEM file with the truststore's certificates.",
    "ssl.truststore.certificates": "Set kafka.ssl.ca.pem to them, or kafka.ssl.ca.location to a file that has them.",
    "ssl.truststore.password": NO_PASSWORD,
    "ssl.truststore.type": NO_PASSWORD,
    "ssl.keystore.key": "Set kafka.ssl.key.location to a PEM file with the key.",
    "ssl.keystore.certificate.chain": "Set kafka.ssl.certificate.location to a PEM file with the chain.",
    "ssl.keystore.type": "Leave it out: kafka.ssl.keystore.location names a PKCS#12 file, "
    "kafka.ssl.certificate.location and kafka.ssl.key.location name PEM files.",
    "ssl.protocol": "Leave it out: client and broker agree on the newest version of TLS that both know.",
    "ssl.enabled.protocols": "Leave it out: client and broker agree on the newest version of TLS that both know.",
    "fetch.max.wait.ms": "Set kafka.fetch.wait.max.ms.",
    "receive.buffer.bytes": "Set kafka.socket.receive.buffer.bytes.",
    "send.buffer.bytes": "Set kafka.socket.send.buffer.bytes.",
    "default.api.timeout.ms": "Set kafka.socket.timeout.ms.",
    "socket.connection.setup.timeout.max.ms": "Set kafka.socket.connection.setup.timeout.ms.",
    "buffer.memory": "Set kafka.queue.buffering.max.kbytes.",
    "max.request.size": "Set kafka.message.max.bytes.",
    "compression.gzip.level": "Set kafka.compression.level.",
    "compression.lz4.level": "Set kafka.compression.level.",
    "compression.zstd.level": "Set kafka.compression.level.",
    "partitioner.class": "Leave it out for the Java client's default partitioner, or set kafka.partitioner.",
    "exclude.internal.topics": "Leave it out: a subscribePattern never matches Kafka's own topics.",
    "max.block.ms": LEAVE_OUT,
    "metadata.max.idle.ms": LEAVE_OUT,
    "metric.reporters": LEAVE_OUT,
    "auto.include.jmx.reporter": LEAVE_OUT,
}
"""Settings of the Java client that librdkafka does not know, which users of Spark's own source and sink may have, with
what to do instead."""

ONE_REQUEST = "with more than one request in flight, librdkafka can lose records while a partition's leader changes"

RESERVED_IN_SINK = RESERVED_EVERYWHERE | {
    "transactional.id": "it is derived from query.id and the lane, which is what fences older attempts",
    "enable.idempotence": "a transactional producer is always idempotent",
    "acks": "a transactional producer always waits for all in-sync replicas",
    "request.required.acks": "a transactional producer always waits for all in-sync replicas",
    "max.in.flight": ONE_REQUEST,
    "max.in.flight.requests.per.connection": ONE_REQUEST,
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
        OptionError: an unknown, reserved or refused name, one that only the Java client knows, a wrong value, or no
            bootstrap servers.
    """
    options = {option.name.lower(): option for option in known}
    values: dict[str, Any] = {option.name: None for option in options.values()}
    client = ClientSettings()
    for name, raw in given.items():
        text, lower = _text(raw), name.lower()
        if lower.startswith(CLIENT_PREFIX):
            setting = lower.removeprefix(CLIENT_PREFIX)
            _check_setting(name, setting, reserved)
            client[setting] = text
        elif refused and lower in refused:
            raise OptionError(f"option {name} can't be used: {refused[lower]}", do=LEAVE_OUT)
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


def _check_setting(name: str, setting: str, reserved: Mapping[str, str]) -> None:
    if setting in reserved:
        raise OptionError(f"option {name} is reserved: {reserved[setting]}", do=LEAVE_OUT)
    if setting in JAVA_ONLY:
        raise OptionError(
            f"option {name} is a setting of the Java client, and the client here is librdkafka", do=JAVA_ONLY[setting]
        )


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
        "commit.scope",
        "What becomes visible at once: a 'lane' (partition of a micro-batch), or the whole 'batch', which then is one "
        "partition, written by one task (coalesce(1)). foreachBatch only: before a format, coalesce(1) does it.",
        default="lane",
        parse=one_of("lane", "batch"),
    ),
    Option(
        "deadletter.topic",
        "Topic for rows that can't be written, with the reason in headers, in the same transaction as the other rows. "
        "It must exist. Default: such a row fails its batch.",
        parse=legal_name,
    ),
    Option(
        "on.other.checkpoint",
        "What to do when the checkpoint is not the one that the ledger knows: another one, an older copy, or one that "
        "cuts a half-committed batch otherwise. 'fail', or 'adopt' it: go on, and drop rows whose source position is "
        "below the group's committed offset.",
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
    Option(
        "on.skipped.batch",
        "What to do when a batch comes and the one before was never written: 'fail', since an error of the sink may "
        "have been swallowed, or 'pass' over it (right for a function that leaves out empty batches).",
        default="fail",
        parse=one_of("fail", "pass"),
    ),
    Option(
        "on.replay.differs",
        "What to do when a lane that has committed its part of a batch comes back with other rows: 'fail' before "
        "anything is written, or 'keep' what is committed, and write the lanes that are not. For one start: see "
        "docs/SINK.md.",
        default="fail",
        parse=one_of("fail", "keep"),
    ),
    Option(
        "stage.rows",
        "Where a lane's rows wait until all of them are computed: 'none', they are sent as they come, in a transaction "
        "that is open meanwhile; or 'disk', in Spark's local folder, and the transaction is open only while they are "
        "sent.",
        default="none",
        parse=one_of("none", "disk"),
    ),
)


WRITE_ID = Option(
    "write.id",
    "Stable name of this write: a rerun with the same one writes only what is not committed yet, and nothing when all "
    "is. Every transactional.id begins with it. Default: a new one each time.",
    parse=legal_name,
)
ALL_SINK_OPTIONS = (*SINK_OPTIONS, WRITE_ID)

OF_A_STREAM = {
    "query.id": "a batch write has no query; its name is write.id",
    "on.other.checkpoint": "a batch write has no checkpoint",
    "on.missing.ledger": "a batch write has no checkpoint",
    "on.skipped.batch": "a batch write is one batch",
}
OF_A_WRITE = {"write.id": "it names a batch write; a stream's name is query.id"}

Way = Literal["stream", "write"]
"""How the sink is used: by a streaming query, or by `df.write`."""


@dataclass(frozen=True)
class SinkOptions:
    """The sink's options, validated. Fields are the options of `SINK_OPTIONS`, dots as underscores."""

    client: ClientSettings
    query_id: str | None
    group_id: str | None
    ledger_topic: str
    topic: str | None
    commit_scope: Literal["lane", "batch"]
    deadletter_topic: str | None
    on_other_checkpoint: Literal["fail", "adopt"]
    on_missing_ledger: Literal["fail", "start"]
    on_skipped_batch: Literal["fail", "pass"]
    on_replay_differs: Literal["fail", "keep"]
    stage_rows: Literal["none", "disk"]
    write_id: str | None

    @property
    def adopts(self) -> bool:
        """Whether a checkpoint that the ledger does not know is gone on with."""
        return self.on_other_checkpoint == "adopt"

    @classmethod
    def of(cls, given: Mapping[str, Any], way: Way = "stream") -> SinkOptions:
        """Read and check options as a user gives them.

        Args:
            given: option name to value.
            way: options of the other way are refused.

        Raises:
            OptionError: see `read_options`.
        """
        refused = OF_A_WRITE if way == "stream" else OF_A_STREAM
        values, client = read_options(given, ALL_SINK_OPTIONS, RESERVED_IN_SINK, refused=refused)
        return cls(client=client, **{name.replace(".", "_"): value for name, value in values.items()})
