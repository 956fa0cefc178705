"""A job's command line, made from its settings: an option for each key, which wins over the file and the default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from job_settings import JobSettings, Settings, Table, load_settings
from pydantic.fields import FieldInfo

WRONG_SETTINGS = 2
"""Exit code."""


def job_app(model: type[Settings], doc: str, prepare: Callable[[Settings], Callable[[], None]]) -> typer.Typer:
    """A command line for a job.

    Args:
        model: its settings. A key `topics.source` becomes the option --source-topic.
        doc: what the job does, for --help.
        prepare: makes what runs the job. A ValueError that it raises is about the settings, as the connector's own
            for its options.
    """
    keys = {option: key for option, key, _ in _keys(model)}

    def main(config: Path | None, **options: Any) -> None:
        try:
            run = prepare(load_settings(model, config, {keys[option]: value for option, value in options.items()}))
        except ValueError as error:
            typer.echo(f"wrong settings:\n{error}", err=True)
            raise typer.Exit(WRONG_SETTINGS) from None
        run()

    help_text = f"TOML file, laid out as conf/{model.file}.toml."
    parameters = [_parameter("config", Path, help_text)]
    parameters += [_parameter(option, _type(field), field.description) for option, _, field in _keys(model)]
    main.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    main.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=doc)(main)
    return app


def _keys(model: type[JobSettings]) -> Iterator[tuple[str, str, FieldInfo]]:
    """Option, key and field of what can be set on the command line: not client settings, which hold passwords."""
    for key, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Table):
            for inner, its_field in kind.model_fields.items():
                yield f"{inner}_{key.removesuffix('s')}", f"{key}.{inner}", its_field
        elif field.description:
            yield key, key, field


def _type(field: FieldInfo) -> type:
    """Numbers and switches are parsed by the command line; of all else the settings know what is right."""
    return field.annotation if field.annotation in {int, bool} else str


def _parameter(name: str, kind: type, text: str | None) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(help=text)]  # type: ignore[operator]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
