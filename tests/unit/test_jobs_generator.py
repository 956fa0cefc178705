"""The settlements generator: seeded, skewed, in order per merchant, with malformed events of every kind."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict

import pytest
from check_rules import expected
from generate_settlements import MALFORMED_SHARE, SPOILERS, Event, generate


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(generate(seed=7, events=20_000, merchants=10))


def test_the_same_seed_gives_the_same_bytes(events: list[Event]) -> None:
    assert list(generate(7, 20_000, 10)) == events
    assert list(generate(8, 20_000, 10)) != events


def test_the_bytes_of_a_seed_do_not_change_between_versions() -> None:
    text = b"\n".join(key + b"\t" + value for key, value in generate(seed=1, events=1_000))
    assert hashlib.sha256(text).hexdigest()[:16] == "a17cdfd20e8c7c39"


def test_about_one_percent_is_malformed_in_every_way(events: list[Event]) -> None:
    reasons = Counter(result for result in (expected(*event) for event in events) if isinstance(result, str))
    assert reasons.total() == pytest.approx(MALFORMED_SHARE * len(events), rel=0.25)
    assert {"empty value", "not UTF-8", "not JSON", "bad amount_paise", "refund above amount"} <= reasons.keys()
    assert any(reason.startswith("bad ") and reason != "bad amount_paise" for reason in reasons)


def test_every_spoiled_settlement_breaks_a_rule() -> None:
    import random

    rng = random.Random(3)
    for key, value in generate(seed=5, events=300):
        if isinstance(expected(key, value), str):
            continue
        for spoil in SPOILERS:
            assert isinstance(expected(key, spoil(json.loads(value), rng)), str)


def test_merchants_are_skewed_and_their_sequences_have_no_gaps(events: list[Event]) -> None:
    sequences: defaultdict[bytes, list[int]] = defaultdict(list)
    for key, value in events:
        if not isinstance(expected(key, value), str):
            sequences[key].append(json.loads(value)["sequence"])
    counts = Counter({key: len(found) for key, found in sequences.items()})
    assert len(counts) == 10
    assert counts[b"MER-1001"] > 5 * counts[b"MER-1010"]
    for key, found in sequences.items():
        assert found == sorted(set(found))
        total = sum(other == key for other, _ in events)
        assert found[-1] < total, "malformed events take a number as well"


def test_some_settlements_call_for_no_refund(events: list[Event]) -> None:
    none_due = sum(expected(*event) is None for event in events)
    assert 0.3 < none_due / len(events) < 0.6
