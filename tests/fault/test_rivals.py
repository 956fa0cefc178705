"""Two drivers on one checkpoint and one query id: the output is exact, and the loser says which run took over."""

from __future__ import annotations

import pytest
from spark_pipe import Pipe, wait_for


@pytest.mark.timeout(600)  # two Sparks start here beside others, on a machine that may be busy
@pytest.mark.parametrize("step", ["offsets", pytest.param("report", marks=pytest.mark.large)])
def test_two_drivers_at_once(pipe: Pipe, tmp_path, step):
    pipe.feed("abc", 0)
    pipe.feed("xyz", 1)
    first = pipe.process(step, str(tmp_path))
    try:
        wait_for(lambda: (tmp_path / "reached").exists() or first.poll() is not None, 200)
        second = pipe.process()
        second_says, _ = second.communicate(timeout=200)
        assert second.returncode == 0, second_says
        (tmp_path / "go").touch()
        first_says, _ = first.communicate(timeout=200)
    finally:
        first.kill()
        first.wait()
    run = second_says.split()[1]
    assert first.returncode == 1, first_says
    assert f"run {run} took over this query at" in first_says
    assert sorted(pipe.values()) == list("abcxyz")
