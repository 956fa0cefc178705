"""Whether what is committed of a batch comes again when the batch is done again.

A lane that is not committed yet may only be written once that is known of those that are: else rows that moved to it
from a committed lane would be written twice, and rows that moved the other way never.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from spark_eos.errors import LedgerRefusal
from spark_eos.protocol.ledger import LaneRow
from spark_eos.protocol.ports import Rows
from spark_eos.protocol.positions import Fingerprint, Tally
from spark_eos.protocol.refusals import replay_differs, second_write

log = logging.getLogger("spark_eos.sink")

NOTHING = Fingerprint(0, "")


def fingerprint_of(pieces: Iterable[Rows]) -> Fingerprint:
    """What a lane is made of that has these rows."""
    tally = Tally()
    for rows in pieces:
        tally.add(len(rows), rows.ranges(), rows.digests())
    return tally.fingerprint


def check_replay(
    committed: Mapping[int, LaneRow],
    found: Mapping[int, Fingerprint],
    *,
    sealed: bool = False,
    keep: bool = False,
    again: bool = False,
) -> None:
    """Hold that lanes have the rows that they have committed.

    Args:
        committed: lane to its row, of the lanes that have committed the batch.
        found: lane to what it has now.
        sealed: the batch is whole, so a lane without a row had no rows.
        keep: what is committed stands; what differs is only told.
        again: it is this run that has committed it.

    Raises:
        ReplayDiffers, SecondWrite: for the first lane that differs.
    """
    lanes = committed.keys() | (found.keys() if sealed else set())
    for lane in sorted(lanes):
        row, now = committed.get(lane), found.get(lane, NOTHING)
        if (row is None and not now.rows) or (row is not None and row.fingerprint.same_rows(now)):
            continue
        error = _differs(lane, row, now, again)
        if not keep or again:
            raise error.at(lane=lane)
        log.warning("lane %d is kept as it was committed (on.replay.differs=keep): %s", lane, error.what)


def _differs(lane: int, row: LaneRow | None, now: Fingerprint, again: bool) -> LedgerRefusal:
    before = f"had {row.fingerprint}" if row is not None else "had no rows"
    has = f"has {now}" if now.rows else "has no rows"
    return second_write(lane, before, has) if again else replay_differs(before, has)
