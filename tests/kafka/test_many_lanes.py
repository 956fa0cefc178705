"""Take-over of a query with very many lanes. `make test-large` runs it with 5,000."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest
from tests_support import Query, rows_of

from spark_eos.errors import TransactionAborted
from spark_eos.protocol.decide import Policy
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import Run, lane_transactional_id
from spark_eos.protocol.transaction import Step

LANES = int(os.environ.get("SPARK_EOS_TEST_LANES", "1000"))


class Crash(BaseException):
    """The task is gone."""


@pytest.fixture
def query(kafka, topic, query_id):
    """With a ledger topic of its own: other tests' ledgers shall not grow with it."""
    query = Query(kafka.bootstrap_servers, query_id, topic(), ledger_topic=f"ledger-{query_id}")
    yield query
    kafka.delete_topic(query.ledger_topic)


def crash_before_commit(step):
    if step is Step.COMMIT:
        raise Crash


def taking_over(query, open_transaction):
    identity = Run(query.query, "checkpoint", "next")
    return QueryRun(identity, query.ledger, open_transaction, Policy(), lambda: "2026-01-01T00:00:00Z")


def test_every_lane_that_was_started_is_fenced_once_and_nothing_is_left_open(query):
    old = query.run()
    old.open(0, LANES)
    for lane in (0, LANES - 1):
        with pytest.raises(Crash):
            query.lane(old, 0, [rows_of("ab")], lane, LANES, before_step=crash_before_commit)
    fenced = []

    @contextmanager
    def recorded(transactional_id):
        with query.factory.open(transactional_id) as transaction:
            yield transaction
        fenced.append(transactional_id)

    taking_over(query, recorded).open(0, LANES)
    assert sorted(fenced) == sorted(lane_transactional_id(query.query, lane) for lane in range(LANES))
    assert query.values() == []


def test_a_lane_that_cannot_be_fenced_ends_the_take_over(query):
    old = query.run()
    old.open(0, 100)
    begun = []

    @contextmanager
    def refusing(transactional_id):
        begun.append(transactional_id)
        if transactional_id == lane_transactional_id(query.query, 20):
            raise TransactionAborted("this lane's coordinator is away")
        with query.factory.open(transactional_id) as transaction:
            yield transaction

    run = taking_over(query, refusing)
    with pytest.raises(TransactionAborted, match=r"batch 0.*coordinator is away"):
        run.open(0, 100)
    assert len(begun) < 100
    assert not query.run().open(0, 100).skip
