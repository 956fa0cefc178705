"""Settings of the jobs: layered, validated, errors that name the key; and how a job is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from job_runner import Gate, StopRequested
from job_settings import DEFAULT_FILE, JobSettings, SettingsError, load_settings
from typer.testing import CliRunner


def written(folder: Path, text: str) -> Path:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_default_file_is_complete() -> None:
    settings = load_settings()
    assert settings == JobSettings(bootstrap_servers="localhost:9092", checkpoint="checkpoints/refunds")
    text = DEFAULT_FILE.read_text(encoding="utf-8")
    assert [key for key in JobSettings.model_fields if key not in text] == []


def test_options_win_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, 'query_id = "mine"\n[topics]\nrefunds = "r"\naudit = "a"\n')
    settings = load_settings(file, {"topics.audit": "other", "trigger": "available-now", "checkpoint": None})
    assert (settings.query_id, settings.checkpoint) == ("mine", "checkpoints/refunds")
    assert (settings.topics.source, settings.topics.refunds, settings.topics.audit) == ("settlements", "r", "other")
    assert settings.trigger_options == {"availableNow": True}


def test_client_settings_become_options_of_the_connector(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, '[kafka]\n"security.protocol" = "SSL"\n'))
    assert settings.kafka_options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SSL",
    }
    assert settings.trigger_options == {"processingTime": "0 seconds"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"querry_id": "x"}, "querry_id: there is no such key"),
        ({"topics.sauce": "x"}, "topics.sauce: there is no such key"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger: .* greater than 0 .*given: 0"),
        ({"max_offsets_per_trigger": "many"}, "max_offsets_per_trigger: .* integer .*given: 'many'"),
        ({"trigger": "often"}, "trigger: must be 'available-now' or .*given: 'often'"),
        ({"starting_offsets": "middle"}, "starting_offsets: "),
        ({"bootstrap_servers": ""}, "bootstrap_servers: "),
        ({"topics.audit": "refunds-emitted"}, "topics: the four topics must have different names"),
    ],
)
def test_errors_name_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}"):
        load_settings(options=options)


def test_a_client_setting_is_never_shown() -> None:
    with pytest.raises(SettingsError, match=r"^kafka\.sasl\.password: ") as error:
        load_settings(options={"kafka": {"sasl.password": 12345}})
    assert "12345" not in str(error.value)


def test_a_missing_or_broken_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings file .*none"):
        load_settings(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match=r"settings file .*job\.toml"):
        load_settings(written(tmp_path, "query_id = \n"))


@pytest.mark.parametrize("job", ["settlements_to_refunds", "settlements_to_refunds_at_least_once"])
def test_wrong_settings_end_a_job_with_code_2_before_spark_starts(job: str) -> None:
    import importlib

    app = importlib.import_module(job).app
    result = CliRunner().invoke(app, ["--trigger", "often"])
    assert result.exit_code == 2
    assert "trigger: must be" in result.output


def test_a_closed_gate_begins_no_batch() -> None:
    began: list[int] = []
    quieted: list[bool] = []
    gate = Gate(lambda _df, batch: began.append(batch), lambda: quieted.append(True))
    gate(None, 0)  # type: ignore[arg-type]
    gate.close()
    with pytest.raises(StopRequested, match="batch 1"):
        gate(None, 1)  # type: ignore[arg-type]
    assert (began, gate.refused, quieted) == ([0], True, [True])
