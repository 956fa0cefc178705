"""The simulation can fail: it notices each of ten ways to get exactly-once wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutant_edits import HEALTHY, MUTANTS, Edit, Mutant, OutOfDate
from mutants import hunted


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_simulation_notices(mutant):
    _, anomaly = hunted(mutant)
    assert anomaly, mutant.what


def test_it_is_the_mistake_that_it_notices():
    assert hunted(HEALTHY, 100) == (100, "")


@pytest.mark.parametrize("old", ["no such text", "import"])
def test_an_edit_that_does_not_stand_there_once_is_an_error(tmp_path: Path, old):
    with pytest.raises(OutOfDate):
        Mutant("stale", "", (), (Edit("protocol/transaction.py", old, ""),)).write(tmp_path)
