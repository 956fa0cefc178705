"""One start of a query, as plain values: what the harness hands to the process that has Spark."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

FOREACH, FORMAT, WRITE = "foreachBatch", "format", "write"
"""To write: a stream, in two ways; and `df.write`, a chunk by each."""
CONNECT = "connect-"
"""Begins the name of a way in Spark Connect."""
WAYS = (FOREACH, FORMAT, WRITE, CONNECT + FOREACH, CONNECT + FORMAT)


@dataclass(frozen=True)
class Fault:
    """What is to go wrong, once.

    Args:
        point: one of `ways_faults.POINTS`.
        step: of a lane, before which it fails.
        folder: of the marks.
        sink: the sink that is hit, where the function has two: "" or "-b", as its query id ends.
    """

    point: str
    step: str
    folder: str
    sink: str = ""


@dataclass(frozen=True)
class Life:
    """One start of a query.

    Args:
        pipeline: its name, see `ways_pipelines.PIPELINES`.
        way: one of WAYS.
        bootstrap: brokers.
        source, second: topics that are read.
        target: topic that is written.
        folder: of files and tables that are read.
        checkpoint: the query's.
        query_id: option query.id.
        options: others of the sink.
        conf: of Spark's session.
        positions: whether rows carry the column source.
        version: of the query's code.
        limit: records of a batch; 0 for all there are.
        called: whether the user's function calls the sink.
        own_ids: whether each of two sinks has a query.id of its own.
        lets_through: whether the user's function lets the sink's errors through.
        table: numbers that are appended to a table first.
        chunk: of a `df.write`: its first and last number; there is a write.id for each.
        fault: what goes wrong.
    """

    pipeline: str
    way: str
    bootstrap: str
    source: str
    second: str
    target: str
    folder: str
    checkpoint: str
    query_id: str
    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    positions: bool = False
    version: int = 1
    limit: int = 0
    called: bool = True
    own_ids: bool = False
    lets_through: bool = False
    table: tuple[int, ...] = ()
    chunk: tuple[int, ...] = ()
    fault: Fault | None = None

    @property
    def kafka(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    @property
    def kind(self) -> str:
        """The way, whatever the session is."""
        return self.way.removeprefix(CONNECT)

    def sink(self, suffix: str = "") -> dict[str, str]:
        """The options of a sink; `suffix` tells those of two apart."""
        own = {name: value + suffix if name == "group.id" else value for name, value in self.options.items()}
        return self.kafka | self._id(suffix) | own

    def _id(self, suffix: str) -> dict[str, str]:
        if self.kind == WRITE:
            return {"write.id": f"{self.query_id}-{self.chunk[0]}"}
        return {"query.id": self.query_id + suffix}

    def but(self, **changes: Any) -> Life:
        return replace(self, **changes)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Life:
        given = json.loads(text)
        fault = Fault(**given["fault"]) if given["fault"] else None
        return cls(**given | {"table": tuple(given["table"]), "chunk": tuple(given["chunk"]), "fault": fault})
