"""What brokers forget: offsets and transactional.ids that expire, on a broker that forgets within a minute."""

from __future__ import annotations

import time
import uuid

import pytest
from tests_support import Query, rows_of

from spark_eos.errors import Fenced, LedgerLost
from spark_eos.testing import EmbeddedKafka

FORGETFUL = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def forgetful():
    with EmbeddedKafka(config=FORGETFUL) as broker:
        yield broker


@pytest.fixture
def make(forgetful):
    """Makes queries, with a source topic of two partitions each."""

    def query(name: str) -> tuple[Query, str]:
        unique = f"{name}-{uuid.uuid4().hex[:6]}"
        forgetful.create_topic(f"out-{unique}")
        forgetful.create_topic(f"in-{unique}", partitions=2)
        return Query(forgetful.bootstrap_servers, unique, f"out-{unique}"), f"in-{unique}"

    return query


def wait_for(what, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "the broker does not forget"
        time.sleep(0.3)


def write(query, run, batch, source, letter):
    rows = [[rows_of(letter, (source, 0, batch))]]
    ends = {(source, 0): batch + 1, (source, 1): 0}
    return query.batch(run, batch, rows, [(source, 0), (source, 1)], str(batch), ends)


def test_expired_offsets_are_told_apart_from_a_new_query_and_a_running_querys_do_not_expire(make):
    """One wait of a minute for all: nobody else's test need wait for it."""
    (down, source), (awake, other) = make("down"), make("awake")
    write(down, down.run(), 0, source, "a")
    live = awake.run()
    write(awake, live, 0, other, "a")
    batch = 0

    def gone() -> bool:
        nonlocal batch
        batch += 1
        write(awake, live, batch, other, "b")
        time.sleep(1)
        return down.ledger.query() is None

    wait_for(gone)
    # The query that was down: nobody can tell what it wrote.
    with pytest.raises(LedgerLost, match=r"expired.*offsets\.retention\.minutes"):
        write(down, down.run(), 1, source, "b")
    write(down, down.run(may_start=True), 1, source, "b")
    assert down.values() == ["a", "b"]
    # The one that ran: its idle source partition's offset, which no row has moved for a minute, is there, so it can
    # be adopted. Its lane's row is as old as its last batch.
    committed = awake.ledger._committed([(other, 1)], stable=True)
    assert [each.offset for each in committed] == [0]
    write(awake, live, batch + 1, other, "c")
    assert sorted(awake.values()) == sorted("a" + "b" * batch + "c")


def test_a_query_that_was_down_until_its_ids_expired_carries_on(make):
    query, source = make("ids")
    write(query, query.run(), 0, source, "a")
    time.sleep(6)  # twice the expiry; nothing can be asked that would not make the ids anew
    write(query, query.run(), 1, source, "b")
    assert query.values() == ["a", "b"]


def test_a_run_that_slept_until_its_lease_expired_takes_it_anew(make):
    query, source = make("sleeper")
    run = query.run(lease_s=1.0)
    write(query, run, 0, source, "a")
    time.sleep(6)
    write(query, run, 1, source, "b")
    assert query.values() == ["a", "b"]


def test_a_lease_that_expired_unnoticed_says_what_to_do_and_the_next_run_carries_on(make):
    query, source = make("unnoticed")
    run = query.run()
    write(query, run, 0, source, "a")
    time.sleep(6)
    with pytest.raises(Fenced, match="newer producer") as raised:
        write(query, run, 1, source, "b")
    assert raised.value.do
    write(query, query.run(), 1, source, "b")
    assert query.values() == ["a", "b"]
