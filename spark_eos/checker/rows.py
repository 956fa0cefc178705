"""What is remembered of records: where they stand, and a digest. Millions of them take 16 bytes each."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

Place = tuple[str, int]
"""Topic and partition."""
Position = tuple[str, int, int]
"""Topic, partition and offset."""
Headers = Iterable[tuple[str, bytes | None]]
"""Names and contents, in their order."""

NO_TIMESTAMP = -1


@dataclass
class Rows:
    """Records of one partition, in the order of their offsets."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, offset: int, digested: int) -> None:
        self.offsets.append(offset)
        self.digests.append(digested)

    def extend(self, later: Rows) -> None:
        self.offsets.extend(later.offsets)
        self.digests.extend(later.digests)

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True)
class Columns:
    """What is compared of records, beside key and value."""

    headers: bool = True
    timestamp: bool = True

    def digest(self, message: Message) -> int:
        """A record's digest, of nothing else."""
        headers = headers_of(message) if self.headers else None
        return digest(message.key(), message.value(), headers, timestamp_of(message) if self.timestamp else None)


WHOLE = Columns()
"""All of a record: the same one, read twice."""


def digest(key: bytes | None, value: bytes | None, headers: Headers | None = None, timestamp: int | None = None) -> int:
    """A fingerprint of a record in 64 bits: of 3 million records, two are alike once in 4 million times.

    Args:
        key: None is another key than an empty one.
        value: as the key.
        headers: None leaves them out.
        timestamp: in ms since 1970; None leaves it out.
    """
    parts = [key, value]
    for name, content in headers or ():
        parts += (name.encode(), content)
    sizes = b"%d " * len(parts) % tuple(-1 if part is None else len(part) for part in parts)
    time = b"" if timestamp is None else b"%d" % timestamp
    text = b"".join((sizes, b"@", time, b" ", *(part or b"" for part in parts)))
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def position(message: Message) -> Position:
    """Where a record, or the news of a partition's end, stands."""
    return cast(Position, (message.topic(), message.partition(), message.offset()))


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """A record's headers."""
    return tuple(cast("list[tuple[str, bytes | None]]", message.headers() or ()))


def timestamp_of(message: Message) -> int:
    """A record's timestamp in ms since 1970; `NO_TIMESTAMP`, as Java's client has it, where there is none."""
    kind, time = message.timestamp()
    return NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else time


def rows_of(messages: Iterable[Message], columns: Columns = WHOLE) -> dict[Place, Rows]:
    """What is to be remembered of these records, by partition."""
    rows: dict[Place, Rows] = {}
    for message in messages:
        topic, partition, offset = position(message)
        rows.setdefault((topic, partition), Rows()).add(offset, columns.digest(message))
    return rows


def items(rows: Mapping[Place, Rows]) -> Iterator[tuple[Position, int]]:
    """Every record's position and digest."""
    for place, there in rows.items():
        yield from (((*place, offset), digested) for offset, digested in zip(there.offsets, there.digests, strict=True))


def below(rows: Mapping[Place, Rows], ends: Mapping[Place, int]) -> dict[Place, Rows]:
    """Those whose offsets are below their partition's end."""
    cut = {place: bisect_left(there.offsets, ends[place]) for place, there in rows.items()}
    return {place: Rows(rows[place].offsets[:end], rows[place].digests[:end]) for place, end in cut.items()}


def without(rows: Rows, others: Rows) -> Iterator[int]:
    """Offsets of those rows that the others do not have, or have with another digest."""
    compared = iter(zip(others.offsets, others.digests, strict=True))
    other = next(compared, None)
    for row in zip(rows.offsets, rows.digests, strict=True):
        while other is not None and other[0] < row[0]:
            other = next(compared, None)
        if other != row:
            yield row[0]
