"""Settings of Kafka's clients, and the file that an operator has them in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

Client = Mapping[str, str]
"""By librdkafka's names."""
Config = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        exists=True,
        dir_okay=False,
        help="File with settings of the client, NAME=VALUE on each line, by librdkafka's names: what the sink is "
        "given as kafka.NAME. Secrets belong there, and not on a command line.",
    ),
]


class NoSetting(ValueError):
    """A line that can't be read. The text names its place and not what it says, which may be a secret."""


def settings_of(file: Path) -> dict[str, str]:
    """What a file sets: NAME=VALUE on each line, and comments after # or !.

    Raises:
        NoSetting: a line is neither.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        name, given, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            if not given or not name.strip():
                raise NoSetting(f"{file}, line {number}, is no setting")
            found[name.strip()] = value.strip()
    return found
