"""`spark-eos lanes`: what the ledger says of a query and its lanes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from rich.table import Table

from spark_eos.checker.settings import Config
from spark_eos.cli.shared import (
    LEDGER_TOPIC,
    Asked,
    Group,
    Json,
    LedgerTopic,
    QueryId,
    Servers,
    show,
    told,
)
from spark_eos.protocol.driver import LANES_AT_FIRST
from spark_eos.protocol.ledger import LaneRow, QueryRow
from spark_eos.protocol.names import in_group

SEALED, AHEAD, NONE = "sealed", "committed, batch not sealed", "no rows yet"
OPEN = "transaction open"


@dataclass(frozen=True)
class LaneState:
    """One lane.

    Args:
        lane: its number.
        state: SEALED, AHEAD or NONE, by its row.
        open: whether a transaction is open on its row.
        batch: the last batch that it committed rows in.
        rows: how many those were.
        run: which run wrote them.
    """

    lane: int
    state: str
    open: bool
    batch: int | None = None
    rows: int | None = None
    run: str | None = None


def lanes(
    *,
    bootstrap_servers: Servers,
    query_id: QueryId,
    group: Group = None,
    ledger_topic: LedgerTopic = LEDGER_TOPIC,
    command_config: Config = None,
    as_json: Json = False,
) -> None:
    """Show a query's ledger: the next batch, the run that may write, each lane, and which transactions are open.

    It reads only, and disturbs nobody. A lane's transaction is seen here from the moment that it has its offsets;
    `spark-eos lag` of the output topics shows an earlier one, too, by what it holds back.
    """
    with told():
        asked = Asked.of(bootstrap_servers, query_id, group, ledger_topic, command_config)
        query, states = look(asked)
        members = asked.cluster.members(asked.group)
        found = {"query": asdict(query) | {"id": query_id}, "members": members}
        show(found | {"lanes": [asdict(each) for each in states]}, table(asked, query, states, members), as_json)


def look(asked: Asked) -> tuple[QueryRow, list[LaneState]]:
    """The query's row as last committed, and each lane that was ever started.

    Raises:
        SparkEosError: it can't be read, or has no such query.
    """
    ledger = asked.ledger()
    try:
        ledger.partitions = asked.cluster.partitions([asked.ledger_topic])[asked.ledger_topic] or 0
        view, opened = ledger.view(stable=False), ledger.hanging()
    finally:
        ledger.close()
    if view.query is None:
        raise asked.unknown()
    elsewhere = in_group(asked.query, "")
    if (view.query.query or "").startswith(elsewhere):
        raise asked.elsewhere((view.query.query or "").removeprefix(elsewhere))
    # A run that does not know how many lanes it starts notes as many as there may be.
    started = range(view.query.lanes if view.query.lanes != LANES_AT_FIRST else 0)
    numbers = sorted({*started, *view.lanes, *opened})
    return view.query, [_state(lane, view.lanes.get(lane), view.query, lane in opened) for lane in numbers]


def _state(lane: int, row: LaneRow | None, query: QueryRow, is_open: bool) -> LaneState:
    if row is None or row.adoptions < query.adoptions:
        return LaneState(lane, NONE, is_open)
    state = AHEAD if row.next_batch > query.next_batch else SEALED
    return LaneState(lane, state, is_open, row.next_batch - 1, row.fingerprint.rows, row.run)


def table(asked: Asked, query: QueryRow, states: list[LaneState], members: int) -> Table:
    """The query as its title, a lane a row."""
    title = _title(asked, query, states)
    if members:
        title += f"\ngroup {asked.group} has {members} members: another program commits source offsets to it"
    made = Table(title=title, title_justify="left", title_style="")
    for name in ("lane", "last batch", "rows", "state", "run"):
        made.add_column(name, justify="right" if name in ("lane", "last batch", "rows") else "left")
    for each in states:
        state = f"{each.state}, [bold]{OPEN}[/]" if each.open else each.state
        made.add_row(str(each.lane), _text(each.batch), _text(each.rows), state, each.run or "–")
    return made


def _title(asked: Asked, query: QueryRow, states: list[LaneState]) -> str:
    begun = "begun" if any(each.open or each.state == AHEAD for each in states) else "not begun"
    return (
        f"query {asked.query}: next batch {query.next_batch}, {begun}\n"
        f"run {query.run}, since {query.since} ({_age(query.since)})\n"
        f"checkpoint {query.checkpoint}"
    )


def _age(since: str) -> str:
    passed = datetime.now(timezone.utc) - datetime.fromisoformat(since.replace("Z", "+00:00"))
    return f"{timedelta(seconds=int(passed.total_seconds()))} ago"


def _text(value: Any) -> str:
    return "–" if value is None else f"{value:,}"
