"""The ways of use judge as they should, and their table of ways on knows the errors that there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mutant_edits import Mutant
from ways_axes import CHANGES, drawn
from ways_faults import POINTS
from ways_judge import Anomaly, amiss, beyond
from ways_life import WAYS, Fault, Life
from ways_mutant_edits import HEALTHY, HEALTHY_REFUSALS, MUTANTS, TRIALS
from ways_stateful import PIPELINES
from ways_way_on import WAYS_ON, Refusal

from spark_eos import errors

WANTED = [["1", "2"], ["3", "4"]]
SAYS = "org.apache.spark: spark_eos.errors.SplitChanged: [query q] other lanes. What to do: start it as it was."


def seen(text: str) -> Counter[str]:
    return Counter(text.split())


@pytest.mark.parametrize(
    ("visible", "changed", "says"),
    [
        ("v1|1 v1|2 v1|3 v1|4", False, ""),
        ("v1|1 v1|2 v1|3", False, "1 rows lost"),
        ("v1|1 v1|2 v1|3 v1|4 v1|4", False, "1 rows doubled"),
        ("v1|1 v1|2 v1|3 v1|4 v1|5", False, "1 rows foreign"),
        ("v1|1 v1|2 v2|3 v2|4", True, ""),
        ("v1|1 v1|2 v2|3 v2|4", False, "torn"),
        ("v1|1 v1|2 v1|3 v2|4", True, "torn"),
    ],
)
def test_rows_are_judged_by_what_is_wanted(visible, changed, says):
    found = amiss(seen(visible), WANTED, changed=changed)
    assert says in found
    assert bool(found) == bool(says)


def test_lanes_of_two_versions_are_right_where_the_operator_said_so():
    assert amiss(seen("v1|1 v1|2 v1|3 v2|4"), WANTED, changed=True, torn=True) == ""


def test_rows_that_are_still_missing_are_not_beyond():
    assert beyond(seen("v1|1"), WANTED) == ""
    assert "doubled" in beyond(seen("v1|1 v1|1"), WANTED)


def test_a_seed_is_the_same_combination_each_time_and_seeds_reach_everything():
    found = [drawn(seed) for seed in range(2000)]
    assert found == [drawn(seed) for seed in range(2000)]
    assert all(each.possible for each in found)
    assert {each.pipeline for each in found} == PIPELINES.keys() - {"delta"}
    assert {each.way for each in found} == {*WAYS}
    assert {each.change for each in found} == {*CHANGES}
    assert {each.hit for each in found} == {*POINTS}


def test_each_way_on_is_of_an_error_that_there_is():
    assert all(issubclass(getattr(errors, name), errors.SparkEosError) for name in WAYS_ON)


def test_a_refusal_is_known_by_its_name_and_says_what_to_do():
    assert Refusal.of(SAYS).name == "SplitChanged"


@pytest.mark.parametrize(
    "error",
    [
        "java.lang.NullPointerException",
        SAYS.replace("What to do", ""),
        SAYS.replace("SplitChanged", "BrokerUnreachable"),
    ],
)
def test_other_errors_are_no_refusals(error):
    with pytest.raises(Anomaly):
        Refusal.of(error)


def test_a_life_survives_its_way_to_the_process_that_runs_it():
    life = Life(
        "stateless", "write", "b", "s", "s2", "t", "f", "c", "q", chunk=(0, 5), fault=Fault("before", "fence", "m")
    )
    assert Life.from_json(life.to_json()) == life


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutants_edits_are_up_to_date(mutant: Mutant, tmp_path: Path):
    mutant.write(tmp_path)
    assert set(mutant.trials) <= set(HEALTHY.trials)


def test_each_trial_can_be_and_has_its_refusals():
    assert TRIALS.keys() == HEALTHY_REFUSALS.keys()
    assert all(combination.possible for combination in TRIALS.values())
