"""Batches of two lanes, for the contract: whole, half written, refused."""

from __future__ import annotations

import pytest
from tests_support import rows_of

from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.transaction import Step


class Crash(BaseException):
    """The driver or a task is gone."""


def crash_at(step):
    def crash(reached):
        if reached is step:
            raise Crash

    return crash


def half_written(query, source, run=None, batch=0, lanes=2):
    """A batch of which lane 0 is committed and lane 1 died before its commit."""
    run = run or query.run()
    run.open(batch, lanes)
    query.lane(run, batch, [rows_of("ab", (source, 0, 0))], 0, lanes)
    with pytest.raises(Crash):
        query.lane(run, batch, [rows_of("cd", (source, 1, 0))], 1, lanes, before_step=crash_at(Step.COMMIT))
    return run


def both_lanes(source):
    return [[rows_of("ab", (source, 0, 0))], [rows_of("cd", (source, 1, 0))]]


def refused_before_anyone_is_disturbed(
    query, error, batch, lanes=2, checkpoint="checkpoint", content="content", says="", **policy
):
    """A run that must refuse does so without fencing the run that is at work."""
    before = (query.ledger.view(stable=True), query.values())
    with pytest.raises(error, match=says) as raised:
        query.run("refused", checkpoint, **policy).open(batch, lanes, BatchLog(content))
    assert raised.value.do
    assert (raised.value.query, raised.value.batch) == (query.query, batch)
    assert (query.ledger.view(stable=True), query.values()) == before
