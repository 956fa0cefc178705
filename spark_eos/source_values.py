"""What the source's options mean (subscriptions, places, pace, split), and how their text is read.

Every parser raises ValueError with what is allowed; `spark_eos.options.read_options` adds the option's name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from spark_eos.protocol.positions import Offsets, TopicPartition

LATEST, EARLIEST = -1, -2
"""What an offset in a JSON stands for when it is no offset, as in Spark."""

Word = Literal["earliest", "latest", "group"]


@dataclass(frozen=True)
class Subscription:
    """What is read; one of the three is given.

    Args:
        topics: names, sorted.
        pattern: regular expression that whole names must match.
        partitions: partitions, sorted.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def option(self) -> str:
        """The option that gave it."""
        return "subscribe" if self.topics else "subscribePattern" if self.pattern else "assign"


@dataclass(frozen=True)
class ByOffset:
    """A place in each partition: a word, or an offset (`LATEST`, `EARLIEST`) by partition.

    Args:
        option: which option gave it, for errors.
        where: see above.
    """

    option: str
    where: Word | Offsets


@dataclass(frozen=True)
class ByTime:
    """The first record of a time or later, in each partition.

    Args:
        option: which option gave it, for errors.
        where: milliseconds since 1970, for all partitions or by partition.
        or_latest: whether a partition without such a record means its end, or is an error.
    """

    option: str
    where: int | Offsets
    or_latest: bool


Place = ByOffset | ByTime


@dataclass(frozen=True)
class Pace:
    """How much a batch of a stream takes.

    Args:
        least: fewest new offsets, until `patience_ms` have passed; None for any.
        most: most offsets; None for no limit.
        patience_ms: how long `least` holds back a batch.
    """

    least: int | None
    most: int | None
    patience_ms: int


@dataclass(frozen=True)
class Split:
    """How ranges of offsets become tasks: see `spark_eos.kafka.split`."""

    least: int | None = None
    most: int | None = None
    records: int | None = None


_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OFFSETS_EXAMPLE = '{"topic": {"0": 23, "1": -1}}'
_MILLIS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def topic_names(text: str) -> tuple[str, ...]:
    """Names with commas between them, sorted, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(map(_TOPIC_NAME.fullmatch, names)):
        raise ValueError("it must be names of topics with commas between them")
    return tuple(sorted(set(names)))


def topic_pattern(text: str) -> str:
    """A regular expression that whole names of topics must match."""
    pattern = text.strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"it is no regular expression ({error})") from None
    if not pattern:
        raise ValueError("it is empty")
    return pattern


def topic_partitions(text: str) -> tuple[TopicPartition, ...]:
    """A JSON of topic to partition numbers, as pairs, sorted, each once."""
    wrong = ValueError('it must be a JSON like {"topic": [0, 1]}')
    found = _json(text)
    if not isinstance(found, dict) or not found:
        raise wrong
    pairs: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(map(_is_count, numbers)):
            raise wrong
        pairs |= {(_topic(topic), number) for number in numbers}
    return tuple(sorted(pairs))


def starting_offsets(text: str) -> Word | Offsets:
    """`earliest`, `latest`, `group`, or a JSON with offsets, -1 (latest) and -2 (earliest)."""
    word = _word(text, "earliest", "latest", "group")
    return word or _offsets(text, f"it must be earliest, latest, group, or a JSON like {_OFFSETS_EXAMPLE}")


def ending_offsets(text: str) -> Word | Offsets:
    """`latest`, or a JSON with offsets and -1 (latest). Nothing ends at its earliest offset."""
    if _word(text, "latest"):
        return "latest"
    found = _offsets(text, f"it must be latest, or a JSON like {_OFFSETS_EXAMPLE}")
    if EARLIEST in found.values():
        raise ValueError("a range can't end at the earliest offset (-2)")
    return found


def timestamps(text: str) -> Offsets:
    """A JSON of topic to partition to milliseconds since 1970."""
    found = _by_partition(text, 'it must be a JSON like {"topic": {"0": 1700000000000}}')
    if not all(map(_is_count, found.values())):
        raise ValueError("a timestamp must be a whole number of milliseconds since 1970")
    return found


def timestamp(text: str) -> int:
    """Milliseconds since 1970."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise ValueError("it must be a whole number of milliseconds since 1970")
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not re.fullmatch(r"\+?[0-9]{1,18}", text.strip()) or int(text) == 0:
        raise ValueError("it must be a whole number above 0")
    return int(text)


def duration_ms(text: str) -> int:
    """A duration as Spark writes them (15m, 10s, 500ms; a bare number is milliseconds), in milliseconds."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", text.strip().lower())
    if not found or (found[2] or "ms") not in _MILLIS:
        raise ValueError(f"it must be a number with one of {', '.join(_MILLIS)}: 15m")
    return int(found[1]) * _MILLIS[found[2] or "ms"]


def _word(text: str, *words: Word) -> Word | None:
    return next((word for word in words if word == text.strip().lower()), None)


def _offsets(text: str, form: str) -> Offsets:
    found = _by_partition(text, form)
    for value in found.values():
        if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
            raise ValueError("an offset must be a number from 0, or -1 for latest, -2 for earliest")
    return found


def _by_partition(text: str, form: str) -> dict[TopicPartition, Any]:
    found = _json(text)
    if not isinstance(found, dict) or not found:
        raise ValueError(form)
    for partitions in found.values():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"each topic must have an object of partition to number: {form}")
    return {
        (_topic(topic), _partition(number)): value
        for topic, partitions in found.items()
        for number, value in partitions.items()
    }


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _topic(text: str) -> str:
    if not _TOPIC_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a topic")
    return text


def _partition(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is no partition number")
    return int(text)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
