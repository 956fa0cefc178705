"""The scenarios, as demonstrations: each tells what it does, shows it in the dump of Kafka's log, and checks it.

    make scenarios ARGS="--only 3,11"

Their numbers are those of docs/SCENARIOS.md. Exit code 1 if a promise was not kept, and which.
"""

from __future__ import annotations

import time
from typing import Annotated

import scenario_abort
import scenario_expiry
import scenario_failover
import scenario_fencing
import scenario_pods
import typer
from pipeline import World
from scenario import Scenario, Story

SCENARIOS: dict[int, Scenario] = {
    3: scenario_fencing.SCENARIO,
    4: scenario_pods.SCENARIO,
    8: scenario_abort.SCENARIO,
    9: scenario_expiry.SCENARIO,
    11: scenario_failover.SCENARIO,
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def run(number: int, scenario: Scenario) -> list[str]:
    """Tell one scenario on a cluster of its own; the promises that were not kept."""
    story = Story(number)
    print(f"\n{number}. {scenario.title}\n", flush=True)
    began = time.monotonic()
    with World.open(scenario.brokers, scenario.config) as world:
        scenario.tell(story, world)
    story.say(f"({time.monotonic() - began:.0f} s)")
    return story.broken


def chosen(only: str) -> list[int]:
    """Numbers from the option; all of them if it is empty."""
    try:
        wanted = [int(each) for each in only.split(",")] if only else list(SCENARIOS)
    except ValueError:
        raise typer.BadParameter(f"numbers with commas between, not {only!r}") from None
    if unknown := [number for number in wanted if number not in SCENARIOS]:
        raise typer.BadParameter(f"no scenario {unknown[0]}; there are {', '.join(map(str, SCENARIOS))}")
    return wanted


@app.command()
def main(only: Annotated[str, typer.Option(help="Numbers, with commas between. Default: all.")] = "") -> None:
    """Runs the scenarios of docs/SCENARIOS.md. Exit code 1 if a promise was not kept."""
    wanted = chosen(only)
    broken = [promise for number in wanted for promise in run(number, SCENARIOS[number])]
    print()
    for promise in broken:
        print(f"NOT KEPT {promise}")
    print(f"scenarios: {len(wanted)} told, {len(broken)} promises not kept")
    raise typer.Exit(1 if broken else 0)


if __name__ == "__main__":
    app()
