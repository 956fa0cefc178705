"""The soak's verdict on growth."""

from __future__ import annotations

import pytest
from soak_trend import trends

HOUR = range(0, 3600, 10)


def samples(memory=300.0, ids=6, lag=0, times=HOUR):
    """An hour in which each figure is a number, or a function of the seconds since the start."""

    def at(figure, second):
        return figure(second) if callable(figure) else figure

    return [
        {
            "at": second,
            "broker": {"memory": at(memory, second), "files": 100, "threads": 50},
            "workers": None if second % 50 == 0 else {"memory": 100, "files": 10, "threads": 5},
            "topics": {"lag": at(lag, second)},
        }
        | ({"transactional ids": {"known": at(ids, second)}} if second % 60 == 0 else {})
        for second in times
    ]


def broken(*args, **figures):
    return [trend.name for trend in trends(samples(*args, **figures)) if trend.broken]


def test_every_figure_of_every_process_has_a_trend():
    found = {trend.name: (trend.before, trend.after) for trend in trends(samples())}
    assert found == {
        **{f"broker {name}": (value, value) for name, value in (("memory", 300), ("files", 100), ("threads", 50))},
        **{f"workers {name}": (value, value) for name, value in (("memory", 100), ("files", 10), ("threads", 5))},
        "transactional ids known": (6, 6),
        "topics lag": (0, 0),
    }
    assert broken() == []


@pytest.mark.parametrize(
    ("figures", "names"),
    [
        ({"memory": lambda s: 300 + s / 15}, ["broker memory"]),  # 120 MiB more after half an hour
        ({"memory": lambda s: 300 + s / 60}, []),  # 30 MiB: less than the bound
        ({"memory": lambda s: 3_000 + s / 20}, []),  # 90 MiB of 3 GiB
        ({"memory": lambda s: 900 if s < 900 else 300}, []),  # the first quarter is warming up
        ({"memory": lambda s: 300 if s < 900 else 900}, []),  # higher, and steady
        ({"memory": lambda s: 9_000 if s % 100 == 0 else 300}, []),  # a peak now and then
        ({"ids": lambda s: s // 60}, ["transactional ids known"]),
        ({"lag": lambda s: 10 * s}, ["topics lag"]),
    ],
)
def test_growth_counts_from_the_second_quarter_to_the_last_beyond_both_bounds(figures, names):
    assert broken(**figures) == names


def test_a_run_that_is_shorter_than_four_lives_of_the_driver_has_no_trend():
    assert trends(samples(memory=lambda s: s, times=range(0, 1190, 10))) == []
    assert trends([]) == []
