"""The two decision tables: over all inputs exactly one case matches, and the telling cases decide as DESIGN.md says."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product

import pytest

from spark_eos.errors import (
    BatchAbandoned,
    CheckpointBehind,
    Fenced,
    LedgerLost,
    OtherCheckpoint,
    OtherQuery,
    ReplayDiffers,
    SplitChanged,
)
from spark_eos.protocol.decide import (
    BATCH_TABLE,
    LANE_TABLE,
    BatchFacts,
    LaneFacts,
    Policy,
    Verb,
    decide_batch,
    decide_lane,
)
from spark_eos.protocol.ledger import LaneRow, LedgerView, QueryRow
from spark_eos.protocol.names import LaneTask, Run
from spark_eos.protocol.positions import Fingerprint

RUN = Run("q", "checkpoint", "run")
BATCH = 7
PRINT = Fingerprint(1, "d")


def query_row(next_batch=BATCH, checkpoint="checkpoint", run="run", aligned=None, content="c", adoptions=0, query="q"):
    return QueryRow(next_batch, checkpoint, run, "then", 2, content, aligned, adoptions, query=query)


def lane_row(lane=0, next_batch=BATCH, checkpoint="checkpoint", lanes=2, content="c", adoptions=0):
    return LaneRow(lane, next_batch, checkpoint, "any", 0, lanes, PRINT, content, adoptions)


BATCHES = (0, BATCH - 1, BATCH, BATCH + 1, BATCH + 2)
CHECKPOINTS = ("checkpoint", "other")
CONTENTS = ("c", "o")
QUERY_ROWS = [
    None,
    *(query_row(*each) for each in product(BATCHES, CHECKPOINTS, ("run", "newer"), (None, True), CONTENTS)),
    *(query_row(n, content=None) for n in BATCHES),
    *(query_row(n, adoptions=1, aligned=a) for n, a in product(BATCHES, (True, False))),
    *(query_row(n, checkpoint=c, query=q) for n, c, q in product(BATCHES, CHECKPOINTS, (None, "other"))),
]
LANE_ROWS = [
    None,
    *(lane_row(0, *each) for each in product(BATCHES, CHECKPOINTS, (2, 3), CONTENTS)),
    *(lane_row(0, n, lanes=None, content=None) for n in BATCHES),
    *(lane_row(0, n, adoptions=1) for n in BATCHES),
]
CUTS = ((2, "c"), (2, None), (None, "c"))
"""How many lanes a batch has and what it is made of, as far as is known."""


def lane_inputs():
    for batch, query, row, (lanes, content) in product((0, BATCH), QUERY_ROWS, LANE_ROWS, CUTS):
        yield LaneFacts(LaneTask(RUN, batch, 0, lanes, 0, content), query, row)


def batch_inputs():
    policies = [Policy(*each) for each in product((True, False), repeat=3)]
    seen = [(again, previous) for again in (True, False) for previous in (None, "c", "o")]
    for batch, query, row, (lanes, content) in product((0, BATCH), QUERY_ROWS, LANE_ROWS, CUTS):
        view = LedgerView(query, {0: row} if row else {})
        for policy, (again, previous) in zip(cycle(policies), seen * 4, strict=False):
            yield BatchFacts(RUN, batch, lanes, view, policy, content, again, previous)


@pytest.mark.parametrize(("table", "inputs"), [(LANE_TABLE, lane_inputs), (BATCH_TABLE, batch_inputs)])
def test_exactly_one_case_matches_every_input_and_every_case_matches_some(table, inputs):
    matched = set()
    for facts in inputs():
        cases = [name for name, applies, _ in table if applies(facts)]
        assert len(cases) == 1, (facts, cases)
        matched.update(cases)
    assert matched == {name for name, _, _ in table}


def test_every_refusal_has_an_error_with_what_to_do():
    for facts in batch_inputs():
        decision = decide_batch(facts)
        assert (decision.error is not None) == (decision.verb is Verb.REFUSE)
        assert decision.error is None or (decision.error.do and decision.error.query == "q")
    for facts in lane_inputs():
        decision = decide_lane(facts.task, facts.query, facts.row)
        assert (decision.error is not None) == (decision.verb is Verb.REFUSE)


LANES = [
    ("L1", None, None, Verb.REFUSE, LedgerLost),
    ("L2", query_row(run="newer"), None, Verb.REFUSE, Fenced),
    ("L3", query_row(BATCH + 2), None, Verb.REFUSE, CheckpointBehind),
    ("L3", query_row(), lane_row(next_batch=BATCH + 2), Verb.REFUSE, CheckpointBehind),
    ("L4", query_row(), lane_row(next_batch=BATCH + 1, lanes=3), Verb.REFUSE, SplitChanged),
    ("L5", query_row(), lane_row(next_batch=BATCH + 1), Verb.SKIP, type(None)),
    ("L4", query_row(), lane_row(next_batch=BATCH + 1, content="o"), Verb.REFUSE, CheckpointBehind),
    ("L5", query_row(), lane_row(next_batch=BATCH + 1, lanes=None, content=None), Verb.SKIP, type(None)),
    ("L6", query_row(BATCH + 1), lane_row(), Verb.REFUSE, ReplayDiffers),
    ("L7", query_row(adoptions=1), lane_row(next_batch=BATCH + 2), Verb.WRITE, type(None)),
    ("L7", query_row(), lane_row(), Verb.WRITE, type(None)),
    ("L7", query_row(), lane_row(next_batch=BATCH + 1, checkpoint="other"), Verb.WRITE, type(None)),
]


@pytest.mark.parametrize(("case", "query", "row", "verb", "error"), LANES)
def test_lane_cases(case, query, row, verb, error):
    decision = decide_lane(LaneTask(RUN, BATCH, 0, 2, 0, "c"), query, row)
    assert decision.case.startswith(case + " ")
    assert decision.verb is verb
    assert type(decision.error) is error


def decide(batch, query, *lanes, start=False, adopt=False, content="c", again=False, previous=None, **policy):
    view = LedgerView(query, {row.lane: row for row in lanes})
    allowed = Policy(start, adopt, **policy)
    return decide_batch(BatchFacts(RUN, batch, 2, view, allowed, content, again, previous))


HALF = lane_row(next_batch=BATCH + 1)
BATCHES_DECIDED = [
    ("B1", decide(0, None), Verb.WRITE, type(None)),
    ("B2", decide(BATCH, None), Verb.REFUSE, LedgerLost),
    ("B2", decide(0, None, lane_row(next_batch=1)), Verb.REFUSE, LedgerLost),
    ("B3", decide(BATCH, None, start=True), Verb.WRITE, type(None)),
    ("B4", decide(0, query_row(checkpoint="other")), Verb.REFUSE, OtherCheckpoint),
    (
        "B5",
        decide(0, query_row(checkpoint="other"), lane_row(next_batch=BATCH + 1, checkpoint="other"), adopt=True),
        Verb.REFUSE,
        OtherCheckpoint,
    ),
    ("B6", decide(0, query_row(checkpoint="other"), adopt=True), Verb.ADOPT, type(None)),
    (
        "B6",
        decide(
            0,
            query_row(checkpoint="other", aligned=True),
            lane_row(next_batch=BATCH + 1, checkpoint="other"),
            adopt=True,
        ),
        Verb.ADOPT,
        type(None),
    ),
    ("B7", decide(BATCH, query_row(BATCH + 2)), Verb.REFUSE, CheckpointBehind),
    ("B7", decide(BATCH, query_row(), lane_row(next_batch=BATCH + 2)), Verb.REFUSE, CheckpointBehind),
    ("B7", decide(BATCH, query_row(BATCH + 1, content="o")), Verb.REFUSE, CheckpointBehind),
    ("B7", decide(BATCH, query_row(), lane_row(next_batch=BATCH + 1, content="o")), Verb.REFUSE, CheckpointBehind),
    ("B6", decide(BATCH, query_row(BATCH + 2), adopt=True), Verb.ADOPT, type(None)),
    ("B6", decide(BATCH, query_row(BATCH + 1, content="o"), adopt=True), Verb.ADOPT, type(None)),
    (
        "B6",
        decide(BATCH, query_row(aligned=True), lane_row(next_batch=BATCH + 1, lanes=3), adopt=True),
        Verb.ADOPT,
        type(None),
    ),
    ("B5", decide(BATCH, query_row(), lane_row(next_batch=BATCH + 2), adopt=True), Verb.REFUSE, OtherCheckpoint),
    ("B8", decide(BATCH, query_row(BATCH + 1)), Verb.SKIP, type(None)),
    ("B13", decide(BATCH, query_row(BATCH + 1, content=None)), Verb.WRITE, type(None)),
    ("B13", decide(BATCH, query_row(BATCH + 1), content=None), Verb.WRITE, type(None)),
    ("B9", decide(BATCH, query_row(BATCH - 1), lane_row(next_batch=BATCH)), Verb.REFUSE, BatchAbandoned),
    ("B10", decide(BATCH, query_row(), lane_row(next_batch=BATCH + 1, lanes=3)), Verb.REFUSE, SplitChanged),
    (
        "B11",
        decide(BATCH, query_row(adoptions=1, aligned=False), replace(HALF, adoptions=1)),
        Verb.REFUSE,
        OtherCheckpoint,
    ),
    ("B12", decide(BATCH, query_row(), HALF), Verb.WRITE, type(None)),
    ("B14", decide(BATCH, query_row(BATCH - 3)), Verb.REFUSE, BatchAbandoned),
    ("B14", decide(BATCH, query_row(BATCH - 1)), Verb.REFUSE, BatchAbandoned),
    ("B14", decide(BATCH, query_row(BATCH - 1), adopt=True), Verb.REFUSE, BatchAbandoned),
    ("B12", decide(BATCH, query_row(BATCH - 1), may_pass=True), Verb.WRITE, type(None)),
    ("B9", decide(BATCH, query_row(BATCH - 1), lane_row(next_batch=BATCH), may_pass=True), Verb.REFUSE, BatchAbandoned),
    ("B15", decide(BATCH, query_row(query="other")), Verb.REFUSE, OtherQuery),
    ("B15", decide(0, query_row(query="other", checkpoint="other"), adopt=True), Verb.REFUSE, OtherQuery),
    ("B12", decide(BATCH, query_row(query=None)), Verb.WRITE, type(None)),
    ("B13", decide(BATCH, query_row(BATCH + 1), again=True), Verb.WRITE, type(None)),
    ("B13", decide(BATCH, query_row(BATCH + 1, content="files:c")), Verb.WRITE, type(None)),
    ("B7", decide(BATCH, query_row(), previous="o"), Verb.REFUSE, CheckpointBehind),
    ("B6", decide(BATCH, query_row(), previous="o", adopt=True), Verb.ADOPT, type(None)),
    ("B12", decide(BATCH, query_row(), previous="c"), Verb.WRITE, type(None)),
]


@pytest.mark.parametrize(("case", "decision", "verb", "error"), BATCHES_DECIDED)
def test_batch_cases(case, decision, verb, error):
    assert decision.case.startswith(case + " ")
    assert decision.verb is verb
    assert type(decision.error) is error
