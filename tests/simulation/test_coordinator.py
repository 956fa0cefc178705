"""The transaction coordinator: two-phase commit with a durable decision, whoever coordinates (KIP-98, KIP-890)."""

from __future__ import annotations

from itertools import product

import pytest

from spark_eos.testing.simulated.answers import BrokerError, Code
from spark_eos.testing.simulated.brokers import Brokers
from spark_eos.testing.simulated.coordinator import Place, Transaction
from spark_eos.testing.simulated.group import Committed
from spark_eos.testing.simulated.partition import Payload, Producer
from spark_eos.testing.simulated.states import FOLLOWERS, IllegalTransition, State, check_transition

OUT: Place = ("out", 0)
ID = "refunds-0"

ALLOWED = {
    ("Empty", "Empty"),
    ("Empty", "Ongoing"),
    ("Empty", "Dead"),
    ("Ongoing", "Ongoing"),
    ("Ongoing", "PrepareCommit"),
    ("Ongoing", "PrepareAbort"),
    ("PrepareCommit", "CompleteCommit"),
    ("PrepareAbort", "CompleteAbort"),
    ("CompleteCommit", "Empty"),
    ("CompleteCommit", "Ongoing"),
    ("CompleteCommit", "Dead"),
    ("CompleteAbort", "Empty"),
    ("CompleteAbort", "Ongoing"),
    ("CompleteAbort", "Dead"),
}
"""Every transition there is; the table in the code must say the same."""


class Desk:
    """One transactional.id at simulated brokers, request by request; markers are written when a test says so."""

    def __init__(self) -> None:
        self.brokers = Brokers(expiration_s=3600)
        self.brokers.ensure_topic("out", 2)

    def init(self, timeout_s: float = 60.0) -> Producer:
        return self.brokers.coordinator.init_producer_id(ID, timeout_s)

    def add(self, producer: Producer, place: Place = OUT) -> None:
        self.brokers.coordinator.add(ID, producer, place)

    def produce(self, producer: Producer, *values: str, first: int = 0, partition: int = 0) -> None:
        def verify() -> None:
            self.brokers.coordinator.verify(ID, producer, ("out", partition))

        payloads = [Payload(None, value.encode()) for value in values]
        self.brokers.log("out", partition).append(producer, first, payloads, verify)

    def began(self, *values: str) -> Producer:
        """A new producer with an open transaction."""
        producer = self.init()
        self.add(producer)
        self.produce(producer, *values)
        return producer

    def end(self, producer: Producer, commit: bool = True) -> None:
        self.brokers.coordinator.end(ID, producer, commit)

    @property
    def known(self) -> Transaction:
        return self.brokers.coordinator.transactions()[0]

    @property
    def values(self) -> list[str]:
        return [each.content.value.decode() for each in self.brokers.log("out", 0).records()]

    @property
    def markers(self) -> list[str]:
        return [
            each.content.name for each in self.brokers.log("out", 0).entries if not isinstance(each.content, Payload)
        ]

    @property
    def journal(self) -> list[str]:
        return [str(each).split()[0] for each in self.brokers.journal]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused(code: Code):
    return pytest.raises(BrokerError, match=code.value)


# --- states -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_each_transition_is_allowed_or_an_error(before, after):
    if (before.value, after.value) in ALLOWED:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"{before.value} is never followed by {after.value}"):
            check_transition(before, after)
    assert FOLLOWERS.keys() == set(State)


@pytest.mark.parametrize("commit", [True, False])
def test_the_journal_tells_each_step_in_order(desk, commit):
    producer = desk.began("a")
    desk.add(producer, "group")
    desk.end(producer, commit)
    assert desk.known.state.prepared
    desk.brokers.write_markers()
    assert desk.known.state.idle
    ended = ["PREPARE_COMMIT", "COMMITTED"] if commit else ["PREPARE_ABORT", "ABORTED"]
    assert desk.journal == ["INIT", "BEGIN", "BEGIN", *ended]
    assert desk.markers == ["COMMIT" if commit else "ABORT"]
    assert desk.values == (["a"] if commit else [])


def test_a_transaction_is_complete_with_its_last_marker_and_not_before(desk):
    producer = desk.began("a")
    desk.add(producer, ("out", 1))
    desk.produce(producer, "b", partition=1)
    desk.end(producer)
    first, second = desk.brokers.markers()
    desk.brokers.write_marker(first)
    assert desk.known.state is State.PREPARE_COMMIT
    with refused(Code.CONCURRENT_TRANSACTIONS):
        desk.add(producer)
    desk.brokers.write_marker(second)
    assert desk.known.state is State.COMPLETE_COMMIT
    desk.add(producer)


# --- fail-over --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_coordinator_that_dies_after_prepare_commit_is_followed_by_one_that_commits(desk, written):
    producer = desk.began("a")
    desk.add(producer, ("out", 1))
    desk.end(producer)
    for pending in desk.brokers.markers()[:written]:
        desk.brokers.log(*pending.place).end(pending.producer, pending.marker)  # and it dies before it notes that
    desk.brokers.fail_over()
    assert desk.known.state is State.PREPARE_COMMIT
    for no_way_back in (lambda: desk.end(producer, commit=False), lambda: desk.began("b")):
        with pytest.raises(BrokerError):
            no_way_back()
    desk.brokers.time_out()
    desk.brokers.write_markers()
    assert desk.known.state is State.COMPLETE_COMMIT
    assert desk.values == ["a"]
    desk.end(producer)  # asked again: it is what was asked for


def test_no_way_back_after_the_decision_without_a_fail_over_either(desk):
    producer = desk.began("a")
    desk.end(producer, commit=False)
    for late in (True, False):
        with refused(Code.CONCURRENT_TRANSACTIONS if not late else Code.INVALID_TXN_STATE):
            desk.end(producer, commit=late)
    desk.brokers.write_markers()
    with refused(Code.INVALID_TXN_STATE):
        desk.end(producer, commit=True)
    assert desk.values == []


@pytest.mark.parametrize("how", ["the next init", "the timeout"])
def test_a_producer_that_dies_before_the_decision_is_aborted_by(desk, how):
    old = desk.began("a")
    desk.brokers.fail_over()
    assert desk.known.state is State.ONGOING
    if how == "the next init":
        with refused(Code.CONCURRENT_TRANSACTIONS):
            desk.init()
    else:
        desk.brokers.advance(60)
    assert desk.known.state is State.PREPARE_ABORT
    desk.brokers.write_markers()
    assert (desk.markers, desk.values) == (["ABORT"], [])
    with refused(Code.PRODUCER_FENCED):
        desk.end(old)


def test_an_open_transaction_survives_a_fail_over_and_commits(desk):
    producer = desk.began("a")
    desk.brokers.fail_over()
    desk.produce(producer, "b", first=1)
    desk.end(producer)
    desk.brokers.write_markers()
    assert desk.values == ["a", "b"]


def test_a_marker_of_a_deposed_coordinator_comes_too_late(desk):
    producer = desk.began("a")
    desk.end(producer)
    (late,) = desk.brokers.markers()
    desk.brokers.fail_over()
    old, new = desk.brokers.markers()[::-1]
    assert old == late
    desk.brokers.write_marker(new)
    desk.add(producer)
    desk.produce(producer, "next", first=1)
    with refused(Code.TRANSACTION_COORDINATOR_FENCED):
        desk.brokers.log("out", 0).end(late.producer, late.marker)
    desk.brokers.write_marker(old)  # it is refused by the log, and forgotten
    assert desk.brokers.markers() == []
    assert (desk.values, desk.markers) == (["a"], ["COMMIT"])
    assert desk.known.state is State.ONGOING


def test_producer_ids_are_not_given_twice_after_a_fail_over(desk):
    first = desk.init()
    desk.brokers.fail_over()
    other = desk.brokers.coordinator.init_producer_id("other", 60)
    assert other.id != first.id


# --- fencing ----------------------------------------------------------------------------------------------------


def test_each_init_has_a_higher_epoch_and_fences_the_one_before(desk):
    producers = [desk.init() for _ in range(3)]
    assert [each.epoch for each in producers] == [0, 1, 2]
    assert len({each.id for each in producers}) == 1
    for old in producers[:2]:
        with refused(Code.PRODUCER_FENCED):
            desk.add(old)
    desk.add(producers[2])


def test_an_id_idle_for_long_is_forgotten_and_its_producer_is_fenced(desk):
    old = desk.began("a")
    desk.end(old)
    desk.brokers.write_markers()
    desk.brokers.advance(3599)
    assert desk.known.state is State.COMPLETE_COMMIT
    desk.brokers.advance(1)
    assert desk.brokers.coordinator.transactions() == []
    assert desk.journal[-1] == "EXPIRED"
    with refused(Code.INVALID_PRODUCER_ID_MAPPING):
        desk.add(old)
    new = desk.init()
    assert new.id != old.id
    with refused(Code.INVALID_PRODUCER_ID_MAPPING):
        desk.add(old)


def test_an_id_with_an_open_transaction_is_not_forgotten(desk):
    producer = desk.init(timeout_s=900)
    desk.add(producer)
    desk.brokers.coordinator.expire_ids(0)
    assert desk.known.state is State.ONGOING


def test_a_timeout_longer_than_brokers_allow_is_refused(desk):
    with refused(Code.INVALID_TRANSACTION_TIMEOUT):
        desk.init(timeout_s=901)


# --- logs -------------------------------------------------------------------------------------------------------


def test_a_batch_that_comes_twice_is_written_once_and_one_that_is_missing_is_noticed(desk):
    producer = desk.began("a", "b")
    desk.produce(producer, "a", "b")
    desk.produce(producer, "c", first=2)
    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        desk.produce(producer, "e", first=4)
    desk.end(producer)
    desk.brokers.write_markers()
    assert desk.values == ["a", "b", "c"]


def test_nothing_is_written_to_a_partition_or_a_group_that_is_not_in_the_transaction(desk):
    producer = desk.init()
    desk.add(producer, ("out", 1))
    with refused(Code.INVALID_TXN_STATE):
        desk.produce(producer, "a")
    verify = lambda: desk.brokers.coordinator.verify(ID, producer, "group")  # noqa: E731
    with refused(Code.INVALID_TXN_STATE):
        desk.brokers.group("group").commit_in_transaction(producer, {("in", 0): Committed(1)}, verify)
    assert desk.brokers.log("out", 0).entries == []


def test_a_record_that_comes_after_its_transactions_end_leaves_nothing_hanging(desk):
    """KIP-890: it would begin a transaction that nobody ends, and hold readers back for ever."""
    old = desk.began("a")
    with refused(Code.CONCURRENT_TRANSACTIONS):
        desk.init()
    desk.brokers.write_markers()
    for late in (old, Producer(old.id, old.epoch + 1)):
        with pytest.raises(BrokerError):
            desk.produce(late, "late", first=1 if late == old else 0)
    log = desk.brokers.log("out", 0)
    assert log.last_stable_offset == log.high_watermark


def test_a_committed_offset_is_forgotten_after_its_retention(desk):
    group = desk.brokers.group("group")
    group.commit({("in", 0): Committed(1)})
    desk.brokers.advance(3599)
    group.commit({("in", 1): Committed(1)})
    desk.brokers.advance(1)
    assert group.fetch([("in", 0), ("in", 1)], stable=True) == {("in", 1): Committed(1)}
