"""Options of the source, with the names and meanings of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_eos import source_values as values
from spark_eos.errors import OptionError
from spark_eos.options import (
    CLIENT_PREFIX,
    LEAVE_OUT,
    RESERVED_EVERYWHERE,
    ClientSettings,
    Option,
    boolean,
    legal_name,
    one_of,
    read_options,
)
from spark_eos.protocol.positions import Offsets
from spark_eos.source_values import LATEST, ByOffset, ByTime, Pace, Place, Split, Subscription, Word

ISOLATION = "read_committed"

Queries = Literal["stream", "batch", "both"]

_SHOWN_IN_PLANS = "Spark does not redact it in query plans; use a file (kafka.ssl.key.location)"

RESERVED_IN_SOURCE = RESERVED_EVERYWHERE | {
    "isolation.level": "the source reads nothing but committed records (read_committed)",
    "auto.offset.reset": "set startingOffsets; a reader that jumped by itself would lose records silently",
    "group.instance.id": "the source joins no group",
    "enable.auto.offset.store": "Spark keeps the offsets in the checkpoint",
    "enable.partition.eof": "the source needs it, to see the end of a range",
    "statistics.interval.ms": "the source needs it, to tell a slow read from a stuck one",
    "ssl.key.pem": _SHOWN_IN_PLANS,
    "sasl.oauthbearer.assertion.private.key.pem": _SHOWN_IN_PLANS,
    "sasl.oauthbearer.assertion.private.key.passphrase": _SHOWN_IN_PLANS,
}

REFUSED_IN_SOURCE = {
    "maxBytesPerTrigger": "Kafka does not tell how many bytes a range of offsets has; set maxOffsetsPerTrigger",
    "fetchOffset.numRetries": "a lookup is made again for 10 seconds, while a broker asks for it or can't be reached",
    "fetchOffset.retryIntervalMs": "a lookup is made again for 10 seconds, at intervals of 5 to 250 ms",
    "path": "a topic has no path; name the topics in subscribe and call load() without an argument",
}
"""Options of Spark's that are understood and refused, with the reason."""

_REFUSED = {name.lower(): reason for name, reason in REFUSED_IN_SOURCE.items()}


@dataclass(frozen=True)
class SourceOption(Option):
    """An option of the source.

    Args:
        queries: the kind of query that it is for; refused in the other.
        differs: how it differs from Spark's option of this name; "" for not at all.
    """

    queries: Queries = "both"
    differs: str = ""


SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")

SOURCE_OPTIONS = (
    SourceOption("subscribe", "Topics to read, with commas between them.", parse=values.topic_names),
    SourceOption(
        "subscribePattern",
        "A regular expression; topics whose whole name matches are read, also those that are created later.",
        parse=values.topic_pattern,
        differs="Python's syntax, not Java's",
    ),
    SourceOption("assign", 'Partitions to read, and no others: `{"topic": [0, 1]}`.', parse=values.topic_partitions),
    SourceOption(
        "startingOffsets",
        "Where a new query starts: `earliest`, `latest`, or a JSON that names every partition "
        '(`{"topic": {"0": 23, "1": -1}}`; -1 is latest, -2 earliest). `group`: at the committed offsets of '
        "kafka.group.id, as after a lost checkpoint. A query that has a checkpoint goes on from it. "
        "Default: `latest` for streams, `earliest` for batch queries, which can't start at `latest`.",
        parse=values.starting_offsets,
        differs="`group` is new. A stream's first batch is empty: it puts the offsets into the checkpoint",
    ),
    SourceOption(
        "startingTimestamp",
        "Start at the first record with this timestamp or a later one, in milliseconds since 1970. "
        "Before startingOffsetsByTimestamp, and that before startingOffsets.",
        parse=values.timestamp,
    ),
    SourceOption(
        "startingOffsetsByTimestamp",
        'The same by partition: `{"topic": {"0": 1700000000000}}`. Names every partition.',
        parse=values.timestamps,
    ),
    SourceOption(
        "startingOffsetsByTimestampStrategy",
        "What to do in a partition without such a record: `error`, or start at `latest`.",
        default="error",
        parse=one_of("error", "latest"),
    ),
    SourceOption(
        "endingOffsets",
        "Where a batch query ends: `latest` (the last stable offset), or a JSON that names every partition.",
        default="latest",
        parse=values.ending_offsets,
        queries="batch",
        differs="an offset above the last stable one is refused instead of waited for",
    ),
    SourceOption(
        "endingTimestamp",
        "End before the first record with this timestamp or a later one; at `latest` where there is none. "
        "Before endingOffsetsByTimestamp, and that before endingOffsets.",
        parse=values.timestamp,
        queries="batch",
    ),
    SourceOption(
        "endingOffsetsByTimestamp",
        "The same by partition. Names every partition.",
        parse=values.timestamps,
        queries="batch",
    ),
    SourceOption(
        "maxOffsetsPerTrigger",
        "Most offsets in a batch, shared between partitions in proportion to their backlog. Default: no limit.",
        parse=values.positive,
        queries="stream",
        differs="refused in batch queries, which Spark warns of",
    ),
    SourceOption(
        "minOffsetsPerTrigger",
        "Wait until there are so many new offsets, or maxTriggerDelay has passed.",
        parse=values.positive,
        queries="stream",
        differs="no waiting with Trigger.AvailableNow; refused in batch queries",
    ),
    SourceOption(
        "maxTriggerDelay",
        "How long minOffsetsPerTrigger may hold back a batch.",
        default="15m",
        parse=values.duration_ms,
        queries="stream",
        differs="refused in batch queries",
    ),
    SourceOption(
        "minPartitions",
        "Split large ranges of offsets until about so many tasks read. Rows of one Kafka partition are then in "
        "several Spark partitions.",
        parse=values.positive,
    ),
    SourceOption(
        "maxRecordsPerPartition",
        "Split ranges of offsets so that no task reads more offsets than this.",
        parse=values.positive,
        differs="also in batch queries, where Spark 4.2 does so only together with minPartitions",
    ),
    SourceOption(
        "maxPartitions",
        "Most tasks that read: small Kafka partitions share one, and the sink needs fewer transactions. "
        "Not below minPartitions.",
        parse=values.positive,
        differs="new; not in Spark",
    ),
    SourceOption(
        "failOnDataLoss",
        "`true`: fail when records between the checkpoint and now are gone. `false`: warn, and go on with what is "
        "there; no record is read twice.",
        default="true",
        parse=boolean,
        differs="a topic that was deleted and created again is noticed, by its id, and then read from its start; one "
        "that could not be seen for a while goes on where it stood",
    ),
    SourceOption("includeHeaders", "Whether there is a column headers.", default="false", parse=boolean),
    SourceOption(
        "kafkaConsumer.pollTimeoutMs",
        "How long a task waits for records, without any progress, before it fails; in milliseconds.",
        default="60000",
        parse=values.positive,
        differs="default: 60 s instead of spark.network.timeout",
    ),
    SourceOption(
        "groupIdPrefix",
        "Prefix of the consumer group's name, for brokers that demand one (ACL). Not used with kafka.group.id.",
        default="spark-eos",
        parse=legal_name,
        differs="no group is joined, nothing is committed",
    ),
)


@dataclass(frozen=True)
class SourceOptions:
    """The source's options, validated.

    Args:
        client: settings of the Kafka client, without the prefix `kafka.`. Shown by name only.
        subscription: what is read.
        start: where a new query starts.
        end: where a batch query ends.
        pace: how much a batch takes.
        split: how tasks share it.
        fail_on_data_loss: whether records that are gone are an error.
        include_headers: whether rows have the column headers.
        poll_timeout_s: how long a task may make no progress, in seconds.
        group: the group that kafka.group.id names, or None.
        placeholder_group: what a consumer is given as its group, which it does not join.
    """

    client: ClientSettings
    subscription: Subscription
    start: Place
    end: Place
    pace: Pace
    split: Split
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_s: float
    group: str | None
    placeholder_group: str

    @classmethod
    def of(cls, given: Mapping[str, Any], queries: Queries = "both") -> SourceOptions:
        """Read and check options as a user gives them; names in any case.

        Args:
            given: option name to value.
            queries: the kind of query they are for; "both" while it is not known.

        Raises:
            OptionError: an unknown, reserved or unsupported option, a missing one, a wrong value, or some that
                contradict each other.
        """
        found, client = read_options(_without_isolation(given), SOURCE_OPTIONS, RESERVED_IN_SOURCE, refused=_REFUSED)
        _check_kind(given, queries)
        # The client's own check of an empty name ends the process.
        group = client.pop("group.id", "").strip() or None
        start, end = _start(found, queries), _end(found)
        _check_places(start, end, group, queries)
        return cls(
            client=client,
            subscription=_subscription(found),
            start=start,
            end=end,
            pace=_pace(found),
            split=_split(found),
            fail_on_data_loss=found["failOnDataLoss"],
            include_headers=found["includeHeaders"],
            poll_timeout_s=found["kafkaConsumer.pollTimeoutMs"] / 1000,
            group=group,
            placeholder_group=group or f"{found['groupIdPrefix']}-source",
        )


def _without_isolation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out an isolation level that is the one there is: queries for Spark's source set it."""
    name = f"{CLIENT_PREFIX}isolation.level"
    return {k: v for k, v in given.items() if (k.lower(), str(v).lower()) != (name, ISOLATION)}


def _check_kind(given: Mapping[str, Any], queries: Queries) -> None:
    names = {name.lower() for name in given}
    for option in SOURCE_OPTIONS:
        if option.name.lower() in names and "both" not in (option.queries, queries) and option.queries != queries:
            kinds = ("batch queries", "a stream") if option.queries == "batch" else ("streams", "a batch query")
            told = f"option {option.name} can't be used: it is for {kinds[0]}, and this is {kinds[1]}"
            raise OptionError(told, do=LEAVE_OUT)


_LOWER = "Lower the one, or raise the other."
_SWAP = "A query starts at or before its end."


def _subscription(found: Mapping[str, Any]) -> Subscription:
    named = [name for name in SUBSCRIPTIONS if found[name] is not None]
    if len(named) != 1:
        which = f"options {' and '.join(named)} are both given" if named else "nothing says what to read"
        raise OptionError(which, do=f"Give one of {', '.join(SUBSCRIPTIONS)}.")
    return Subscription(found["subscribe"] or (), found["subscribePattern"], found["assign"] or ())


def _start(found: Mapping[str, Any], queries: Queries) -> Place:
    or_latest = found["startingOffsetsByTimestampStrategy"] == "latest"
    by_time = _by_time(found, ("startingTimestamp", "startingOffsetsByTimestamp"), or_latest)
    where: Word | Offsets = found["startingOffsets"] or ("earliest" if queries == "batch" else "latest")
    return by_time or ByOffset("startingOffsets", where)


def _end(found: Mapping[str, Any]) -> Place:
    by_time = _by_time(found, ("endingTimestamp", "endingOffsetsByTimestamp"), True)
    return by_time or ByOffset("endingOffsets", found["endingOffsets"])


def _by_time(found: Mapping[str, Any], names: tuple[str, ...], or_latest: bool) -> ByTime | None:
    return next((ByTime(name, found[name], or_latest) for name in names if found[name] is not None), None)


def _check_places(start: Place, end: Place, group: str | None, queries: Queries) -> None:
    if isinstance(start, ByOffset):
        if start.where == "group" and group is None:
            raise OptionError(
                "option startingOffsets is 'group', and kafka.group.id is missing",
                do="Set kafka.group.id to the group whose committed offsets to start at (the sink's group.id, "
                "which is its query.id unless it was set).",
            )
        latest = start.where == "latest" or (isinstance(start.where, dict) and LATEST in start.where.values())
        if queries == "batch" and latest:
            raise OptionError("option startingOffsets: a batch query can't start at latest", do="Use earliest (-2).")
    if isinstance(start.where, dict) and isinstance(end.where, dict) and type(start) is type(end):
        _check_order(start, start.where, end, end.where)
    if isinstance(start.where, int) and isinstance(end.where, int) and start.where > end.where:
        raise OptionError(f"{start.option} ({start.where}) is after {end.option} ({end.where})", do=_SWAP)


def _check_order(start: Place, first: Offsets, end: Place, last: Offsets) -> None:
    if first.keys() != last.keys():
        raise OptionError(
            f"options {start.option} and {end.option} name different partitions", do="Name the same ones in both."
        )
    for (topic, partition), offset in first.items():
        if LATEST < last[topic, partition] < offset:
            raise OptionError(
                f"topic {topic}, partition {partition}: {start.option} ({offset}) is after {end.option} "
                f"({last[topic, partition]})",
                do=_SWAP,
            )


def _pace(found: Mapping[str, Any]) -> Pace:
    least, most = found["minOffsetsPerTrigger"], found["maxOffsetsPerTrigger"]
    if least and most and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})", do=_LOWER)
    return Pace(least, most, found["maxTriggerDelay"])


def _split(found: Mapping[str, Any]) -> Split:
    least, most, records = (found[name] for name in ("minPartitions", "maxPartitions", "maxRecordsPerPartition"))
    if most and least and least > most:
        raise OptionError(f"minPartitions ({least}) is above maxPartitions ({most})", do=_LOWER)
    if most and records:
        raise OptionError(
            "options maxPartitions and maxRecordsPerPartition contradict each other",
            do="Give one: the most tasks of a batch, or the most offsets of a task.",
        )
    return Split(least, most, records)
