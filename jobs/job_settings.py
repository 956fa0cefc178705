"""The jobs' settings: one validated model, filled from TOML files and the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_FILE = Path(__file__).resolve().parent.parent / "conf" / "settlements_to_refunds.toml"
AVAILABLE_NOW = "available-now"

Name = Annotated[str, Field(min_length=1)]


class SettingsError(ValueError):
    """A settings file or option is wrong. The text has one line per wrong key."""


class Topics(BaseModel):
    """Names of the topics: one in, three out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Name = "settlements"
    refunds: Name = "refunds-emitted"
    audit: Name = "refund-audit"
    dead_letter: Name = "settlements-dead-letter"

    @model_validator(mode="after")
    def _all_different(self) -> Topics:
        names = [self.source, self.refunds, self.audit, self.dead_letter]
        if len(set(names)) < len(names):
            raise ValueError("the four topics must have different names")
        return self


class JobSettings(BaseModel):
    """What a run needs to know. `conf/settlements_to_refunds.toml` explains each key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: Name
    checkpoint: Name
    query_id: Name = "refunds"
    max_offsets_per_trigger: Annotated[int, Field(gt=0, strict=True)] = 10_000
    starting_offsets: Annotated[str, Field(pattern=r"^(earliest|latest|\{.*\})$")] = "earliest"
    trigger: str = "0 seconds"
    master: Name = "local[2,4]"
    topics: Topics = Topics()
    kafka: dict[str, str] = {}

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, text: str) -> str:
        if text != AVAILABLE_NOW and not re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", text):
            raise ValueError(f"must be '{AVAILABLE_NOW}' or a processing time such as '5 seconds'")
        return text

    @property
    def kafka_options(self) -> dict[str, str]:
        """Client settings as options of the connector."""
        client = {"bootstrap.servers": self.bootstrap_servers, **self.kafka}
        return {f"kafka.{name}": value for name, value in client.items()}

    @property
    def trigger_options(self) -> dict[str, Any]:
        """Arguments of `DataStreamWriter.trigger`."""
        return {"availableNow": True} if self.trigger == AVAILABLE_NOW else {"processingTime": self.trigger}


def load_settings(file: Path | None = None, options: Mapping[str, Any] | None = None) -> JobSettings:
    """Settings from the default file, then `file`, then `options`; the later wins, key by key.

    Args:
        file: further TOML file, laid out as the default one.
        options: values by key, `topics.source` for a key of a table; None values count as not given.

    Raises:
        SettingsError: a file can't be read, a key is unknown or missing, or a value is wrong.
    """
    merged = _read(DEFAULT_FILE) if DEFAULT_FILE.exists() else {}
    if file is not None:
        merged = _merge(merged, _read(file))
    for key, value in (options or {}).items():
        if value is not None:
            merged = _merge(merged, _nested(key, value))
    try:
        return JobSettings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(problem) for problem in error.errors())) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOML and UTF-8 errors are ValueErrors
        raise SettingsError(f"settings file {file}: {error}") from None


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both_tables = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both_tables else value
    return merged


def _explain(problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "settings"
    if problem["type"] == "extra_forbidden":
        return f"{key}: there is no such key"
    if problem["type"] == "missing":
        return f"{key}: missing"
    text = f"{key}: {problem['msg'].removeprefix('Value error, ')}"
    secret = key.startswith("kafka.")  # client settings hold passwords
    return text if secret else f"{text} (given: {problem['input']!r})"
