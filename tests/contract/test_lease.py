"""The driver's commits: one that fails is done again, whatever became of it, unless another run has taken over."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests_support import rows_of

from spark_eos.errors import BrokerUnreachable, Fenced, SparkEosError, Unconfirmed
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.lease import TRIES


class Failing:
    """A query's producers, of which the driver's fail as brokers and clients do.

    Args:
        query: whose.
        step: the call that fails: before it is done (`commit_offsets`), or after (`commit`), its answer lost.
        times: how often.
    """

    def __init__(self, query, step: str, times: int) -> None:
        self.query, self.step, self.left = query, step, 0
        self.times = times
        self.opened = query.open

    @contextmanager
    def open(self, transactional_id: str):
        with self.opened(transactional_id) as transaction:
            real = getattr(transaction, self.step)

            def fails(*arguments):
                if self.left == 0:
                    return real(*arguments)
                self.left -= 1
                if self.step == "commit":
                    real(*arguments)
                    raise Unconfirmed("no answer came")
                if self.step == "begin":
                    raise Fenced("a newer producer exists, or the transaction timed out")
                raise BrokerUnreachable("the client did not return within 35 s")

            if transactional_id.endswith("-driver"):
                setattr(transaction, self.step, fails)
            yield transaction

    def begin(self) -> None:
        self.left = self.times


@pytest.fixture
def source(topic):
    return topic(2, name="in")


def failing_run(query, step: str, times: int = 1):
    """A run that is about to seal its first batch, and whose commits begin to fail."""
    failing = Failing(query, step, times)
    query.open = failing.open
    run = query.run("ours")
    run.open(0, 1, BatchLog("0"))
    reports = [query.lane(run, 0, [rows_of("ab")], content="0")]
    failing.begin()
    return run, reports


@pytest.mark.parametrize("step", ["commit_offsets", "commit"])
def test_a_seal_that_fails_is_done_again_and_the_run_goes_on(query, source, step):
    run, reports = failing_run(query, step)
    run.seal(0, 1, reports, BatchLog("0", ends={(source, 0): 5}))
    row = query.ledger.query()
    assert (row.next_batch, row.run) == (1, "ours")
    assert query.ledger.offsets([(source, 0)]) == {(source, 0): 5}
    query.batch(run, 1, [[rows_of("cd")]], content="1")
    assert sorted(query.values()) == list("abcd")


def test_a_commit_that_is_fenced_though_nobody_has_signed_is_done_again_once(query):
    run, reports = failing_run(query, "begin", 1)
    run.seal(0, 1, reports, BatchLog("0"))
    assert query.ledger.query().next_batch == 1
    run, reports = failing_run(query.but(query=query.query + "-2"), "begin", 2)
    with pytest.raises(Fenced):
        run.seal(0, 1, reports, BatchLog("0"))


def test_a_lease_that_can_not_be_taken_at_first_is_taken_in_the_end(query):
    run, reports = failing_run(query, "fence", TRIES - 1)
    run.seal(0, 1, reports, BatchLog("0"))
    query.batch(run, 1, [[rows_of("cd")]], content="1")
    assert sorted(query.values()) == list("abcd")


def test_a_run_that_was_taken_over_meanwhile_leaves_its_successor_alone(query):
    run, reports = failing_run(query, "commit_offsets")
    newer = query.run("newer")
    newer.open(0, 1, BatchLog("0"))
    query.ledger.query()  # until the newer run's signature shows
    with pytest.raises(Fenced, match="run newer took over"):
        run.seal(0, 1, reports, BatchLog("0"))
    newer.seal(0, 1, [query.lane(newer, 0, [rows_of("ab")], content="0")], BatchLog("0"))
    assert query.ledger.query().run == "newer"
    assert sorted(query.values()) == ["a", "b"]


def test_a_run_that_was_taken_over_while_it_took_its_lease_leaves_the_signature_alone(query):
    run, reports = failing_run(query, "commit_offsets")
    acquire = run._lease.acquire

    def overtaken():
        run._lease.acquire = acquire
        query.run("newer").open(0, 1, BatchLog("0"))
        acquire()

    run._lease.acquire = overtaken
    with pytest.raises(Fenced, match="run newer took over"):
        run.seal(0, 1, reports, BatchLog("0"))
    assert (query.ledger.query().run, query.ledger.query().next_batch) == ("newer", 0)


def test_a_seal_that_never_comes_through_is_told_and_made_good_by_the_next_run(query):
    run, reports = failing_run(query, "commit_offsets", TRIES)
    with pytest.raises(BrokerUnreachable, match="batch 0"):
        run.seal(0, 1, reports, BatchLog("0"))
    with pytest.raises(SparkEosError):
        run.seal(0, 1, reports, BatchLog("0"))
    query.batch(query.run(), 0, [[rows_of("ab")]], content="0")
    assert query.ledger.query().next_batch == 1
    assert sorted(query.values()) == ["a", "b"]


@pytest.mark.parametrize("step", ["commit_offsets", "commit"])
def test_a_signature_that_fails_is_done_again(query, step):
    query.batch(query.run("before"), 0, [[rows_of("a")]], content="0")
    failing = Failing(query, step, 1)
    query.open = failing.open
    failing.begin()
    query.batch(query.run("ours"), 1, [[rows_of("b")]], content="1")
    assert query.ledger.query().run == "ours"
    assert sorted(query.values()) == ["a", "b"]
