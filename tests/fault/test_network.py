"""The network's part of the fault matrix in short: two runs of each of its cells, in one life of a job."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from cells_network import KINDS, NAMES, UNANSWERED_TIMEOUT_S, network_faults, planned, planned_kills
from fault_cells import RunResult, judge
from proxy import Api

pytestmark = pytest.mark.timeout(600)  # the first test waits for all faults of the pipeline

RUNS = 2
SEED = 7
DELAY_S = 3.0
TIMEOUT_S = 6.0
"""An answer counts as lost after 2 s: so each delayed request has been sent again when it lands."""


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> list[RunResult]:
    rng = random.Random(SEED)
    faults = [fault for kind in KINDS for api in NAMES for fault in planned(api, kind, RUNS, rng)]
    faults = [replace(fault, seconds=DELAY_S) for fault in faults]
    return network_faults(tmp_path_factory.mktemp("network"), "network", faults, TIMEOUT_S)


def test_no_row_is_lost_doubled_torn_or_late(results):
    verdict = judge(results, in_time=False)
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == RUNS * len(KINDS) * len(NAMES)


def test_a_worker_that_waits_for_its_answer_is_killed(tmp_path):
    faults = planned_kills(2 * RUNS, random.Random(SEED))
    verdict = judge(network_faults(tmp_path, "kill-unanswered", faults, UNANSWERED_TIMEOUT_S), in_time=False)
    assert verdict.missed == [], "the fault did not happen"
    assert verdict.anomalies == {}, verdict.examples
    assert verdict.hit == 2 * RUNS


def test_a_plan_hits_each_request_of_lanes_and_of_the_driver():
    faults = [fault for api in NAMES for fault in planned(api, "delay", 500, random.Random(SEED))]
    assert {fault.who for fault in faults if fault.api is Api.PRODUCE} == {"0", "1"}
    assert {fault.who for fault in faults if fault.api is Api.END_TXN} == {"0", "1", "driver"}
    assert Counter(fault.api for fault in faults) == dict.fromkeys(NAMES, 500)
    delays = [fault.seconds for fault in faults]
    assert min(delays) >= 5
    assert max(delays) <= 30
    assert 9 < sum(delays) / len(delays) < 11
