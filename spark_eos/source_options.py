"""Options of the source, with the names and meanings of Spark's own Kafka source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spark_eos.errors import OptionError
from spark_eos.options import CLIENT_PREFIX, RESERVED_EVERYWHERE, ClientSettings, Option, boolean, read_options
from spark_eos.protocol.positions import Offsets

LATEST, EARLIEST = -1, -2
"""What an offset in a JSON stands for when it is no offset, as in Spark."""

ISOLATION = "read_committed"

Word = Literal["earliest", "latest"]
StartingOffsets = Word | Offsets

_WORDS: dict[str, Word] = {"earliest": "earliest", "latest": "latest"}

_SHOWN_IN_PLANS = "Spark does not redact it in query plans; use a file (kafka.ssl.key.location)"

RESERVED_IN_SOURCE = RESERVED_EVERYWHERE | {
    "isolation.level": "the source reads nothing but committed records (read_committed)",
    "auto.offset.reset": "set startingOffsets; a reader that jumped by itself would lose records silently",
    "group.id": "the source joins no group; Spark keeps its offsets in the checkpoint",
    "group.instance.id": "the source joins no group",
    "enable.auto.offset.store": "Spark keeps the offsets in the checkpoint",
    "enable.partition.eof": "the source needs it, to see the end of a range",
    "statistics.interval.ms": "the source needs it, to tell a slow read from a stuck one",
    "ssl.key.pem": _SHOWN_IN_PLANS,
    "sasl.oauthbearer.assertion.private.key.pem": _SHOWN_IN_PLANS,
    "sasl.oauthbearer.assertion.private.key.passphrase": _SHOWN_IN_PLANS,
}

_NOT_YET = "it is an option of Spark's Kafka source that this one has not yet"
_NO_CONSUMERS_KEPT = "every task makes its own consumer, there is no pool"

REFUSED_IN_SOURCE = {
    "subscribepattern": f"{_NOT_YET}. Name the topics in subscribe",
    "assign": f"{_NOT_YET}. Name the topics in subscribe",
    "startingtimestamp": f"{_NOT_YET}. Give offsets in startingOffsets",
    "startingoffsetsbytimestamp": f"{_NOT_YET}. Give offsets in startingOffsets",
    "startingoffsetsbytimestampstrategy": f"{_NOT_YET}. Give offsets in startingOffsets",
    "endingoffsets": "it is for batch queries, and a stream has no end",
    "endingtimestamp": "it is for batch queries, and a stream has no end",
    "endingoffsetsbytimestamp": "it is for batch queries, and a stream has no end",
    "minpartitions": f"{_NOT_YET}. One task reads one Kafka partition",
    "maxrecordsperpartition": f"{_NOT_YET}. One task reads one Kafka partition",
    "minoffsetspertrigger": f"{_NOT_YET}. Use a trigger with an interval",
    "maxtriggerdelay": f"{_NOT_YET}. Use a trigger with an interval",
    "groupidprefix": "the source joins no group",
    "fetchoffset.numretries": "lookups are retried as long as a broker asks for it",
    "fetchoffset.retryintervalms": "lookups are retried as long as a broker asks for it",
    "kafkaconsumer.polltimeoutms": "set kafka.socket.timeout.ms: a read without progress for so long fails",
    "path": "a topic has no path; name the topics in subscribe and call load() without an argument",
}

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _topics(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if not _TOPIC_NAME.fullmatch(name)]
    if not names or wrong:
        raise ValueError("it must be names of topics with commas between them")
    return tuple(sorted(set(names)))


def _positive(text: str) -> int:
    if not re.fullmatch(r"\+?[0-9]+", text.strip()) or int(text) == 0:
        raise ValueError("it must be a whole number above 0")
    return int(text)


def _starting_offsets(text: str) -> StartingOffsets:
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError('it must be earliest, latest, or a JSON like {"topic": {"0": 23, "1": -1}}')
    return {
        (topic, _partition(partition)): _offset(offset)
        for topic, partitions in found.items()
        for partition, offset in _object(partitions).items()
    }


def _object(partitions: Any) -> dict[str, Any]:
    if not isinstance(partitions, dict) or not partitions:
        raise ValueError("each topic must have an object of partition to offset")
    return partitions


def _partition(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError(f"{text!r} is no partition number")
    return int(text)


def _offset(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError("an offset must be a number from 0, or -1 for latest, -2 for earliest")
    return value


SOURCE_OPTIONS = (
    Option("subscribe", "Topics to read, with commas between them.", parse=_topics),
    Option(
        "startingOffsets",
        "Where a new query starts: earliest, latest, or a JSON that names every partition "
        '({"topic": {"0": 23, "1": -1}}; -1 is latest, -2 earliest). A query that has a checkpoint goes on from it.',
        default="latest",
        parse=_starting_offsets,
    ),
    Option(
        "maxOffsetsPerTrigger",
        "Most offsets in a batch, shared between partitions in proportion to their backlog. Default: no limit.",
        parse=_positive,
    ),
    Option(
        "failOnDataLoss",
        "true: fail when records between the checkpoint and now are gone. false: warn, and go on with what is there.",
        default="true",
        parse=boolean,
    ),
    Option("includeHeaders", "Whether there is a column headers.", default="false", parse=boolean),
)


@dataclass(frozen=True)
class SourceOptions:
    """The source's options, validated.

    Args:
        client: settings of the Kafka client, without the prefix `kafka.`. Shown by name only.
        topics: names, sorted.
        starting_offsets: `earliest`, `latest`, or (topic, partition) to offset, `LATEST` or `EARLIEST`.
        max_offsets: most offsets in a batch; None for no limit.
        fail_on_data_loss: whether records that are gone are an error.
        include_headers: whether rows have the column headers.
    """

    client: ClientSettings = field(repr=True)
    topics: tuple[str, ...]
    starting_offsets: StartingOffsets
    max_offsets: int | None
    fail_on_data_loss: bool
    include_headers: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SourceOptions:
        """Read and check options as a user gives them; names in any case.

        Raises:
            OptionError: an unknown, reserved or unsupported option, a missing one, or a wrong value.
        """
        values, client = read_options(
            _without_isolation(given), SOURCE_OPTIONS, RESERVED_IN_SOURCE, refused=REFUSED_IN_SOURCE
        )
        if values["subscribe"] is None:
            raise OptionError("option subscribe is missing", do=SOURCE_OPTIONS[0].doc)
        return cls(
            client=client,
            topics=values["subscribe"],
            starting_offsets=values["startingOffsets"],
            max_offsets=values["maxOffsetsPerTrigger"],
            fail_on_data_loss=values["failOnDataLoss"],
            include_headers=values["includeHeaders"],
        )


def _without_isolation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out an isolation level that is the one there is: queries for Spark's source set it."""
    name = f"{CLIENT_PREFIX}isolation.level"
    return {k: v for k, v in given.items() if (k.lower(), str(v).lower()) != (name, ISOLATION)}
