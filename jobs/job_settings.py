"""The jobs' settings: validated models on one base, filled from TOML files and the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONF = Path(__file__).resolve().parent.parent / "conf"
AVAILABLE_NOW = "available-now"

Name = Annotated[str, Field(min_length=1)]


class SettingsError(ValueError):
    """A settings file or option is wrong. The text has one line per wrong key."""


class Table(BaseModel):
    """A table of a settings file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobSettings(Table):
    """What every job needs to know. A job adds keys of its own; its file in conf/ explains each."""

    file: ClassVar[str]
    """The job's default file in conf/, without `.toml`."""

    bootstrap_servers: Name = Field(description="Brokers: host:port,host:port.")
    kafka: dict[str, str] = {}

    @property
    def client(self) -> dict[str, str]:
        """Settings of a Kafka client, as librdkafka names them."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.kafka}

    @property
    def kafka_options(self) -> dict[str, str]:
        """Client settings as options of the connector."""
        return {f"kafka.{name}": value for name, value in self.client.items()}


class SparkSettings(JobSettings):
    """What a job needs that runs on Spark."""

    delta: ClassVar[bool] = False
    """Whether it needs Delta Lake."""

    master: Name = Field("local[2,4]", description="Spark master; not used under spark-submit.")


class StreamSettings(SparkSettings):
    """What a streaming job needs."""

    checkpoint: Name = Field(description="Checkpoint folder.")
    query_id: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="Stable name of the query.")
    max_offsets_per_trigger: int = Field(10_000, gt=0, strict=True, description="Events per batch, at most.")
    starting_offsets: str = Field(
        "earliest",
        pattern=r"^(earliest|latest|\{.*\})$",
        description="earliest, latest or JSON; first start only.",
    )
    trigger: str = Field("0 seconds", description=f"'5 seconds', or {AVAILABLE_NOW}.")

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, text: str) -> str:
        if text != AVAILABLE_NOW and not re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", text):
            raise ValueError(f"must be '{AVAILABLE_NOW}' or a processing time such as '5 seconds'")
        return text

    @property
    def trigger_options(self) -> dict[str, Any]:
        """Arguments of `DataStreamWriter.trigger`."""
        return {"availableNow": True} if self.trigger == AVAILABLE_NOW else {"processingTime": self.trigger}

    def source_options(self, topic: str) -> dict[str, str]:
        """Options of the `kafka-eos` source for a topic."""
        return self.kafka_options | {
            "subscribe": topic,
            "startingOffsets": self.starting_offsets,
            "maxOffsetsPerTrigger": str(self.max_offsets_per_trigger),
        }

    @property
    def sink_options(self) -> dict[str, str]:
        """Options of `KafkaSink`."""
        return self.kafka_options | {"query.id": self.query_id}


Settings = TypeVar("Settings", bound=JobSettings)


def load_settings(
    model: type[Settings], file: Path | None = None, options: Mapping[str, Any] | None = None
) -> Settings:
    """A job's settings from its default file, then `file`, then `options`; the later wins, key by key.

    Args:
        model: the job's settings.
        file: further TOML file, laid out as the default one.
        options: values by key, `topics.source` for a key of a table; None values count as not given.

    Raises:
        SettingsError: a file can't be read, a key is unknown or missing, or a value is wrong.
    """
    default = CONF / f"{model.file}.toml"
    merged = _read(default) if default.exists() else {}
    if file is not None:
        merged = _merge(merged, _read(file))
    for key, value in (options or {}).items():
        if value is not None:
            merged = _merge(merged, _nested(key, value))
    try:
        return model.model_validate(merged)
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
