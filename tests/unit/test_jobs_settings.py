"""Settings of the jobs: layered, validated, errors that name the key; and how a job is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from generate_settlements import GeneratorSettings
from job_runner import Gate, StopRequested
from job_settings import CONF, JobSettings, SettingsError, load_settings
from merchant_notifications import NotificationSettings
from reconcile import ReconcileSettings
from refunds_to_warehouse import WarehouseSettings
from settlements_job import RefundsSettings
from typer.testing import CliRunner


def written(folder: Path, text: str) -> Path:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


MODELS = [RefundsSettings, GeneratorSettings, WarehouseSettings, NotificationSettings, ReconcileSettings]
JOBS = ["settlements_to_refunds_at_least_once", *(model.file for model in MODELS)]


def test_the_default_file_says_what_the_model_says() -> None:
    given = {"bootstrap_servers": "localhost:9092", "checkpoint": "checkpoints/refunds", "query_id": "refunds"}
    assert load_settings(RefundsSettings) == RefundsSettings(**given)


@pytest.mark.parametrize("model", MODELS)
def test_each_default_file_is_complete(model: type[JobSettings]) -> None:
    assert load_settings(model).bootstrap_servers == "localhost:9092"
    text = (CONF / f"{model.file}.toml").read_text(encoding="utf-8")
    assert [key for key in model.model_fields if key not in text] == []


def test_the_jobs_fit_together() -> None:
    refunds, warehouse = load_settings(RefundsSettings), load_settings(WarehouseSettings)
    notifications, whole = load_settings(NotificationSettings), load_settings(ReconcileSettings)
    assert load_settings(GeneratorSettings).topic == refunds.topics.source
    assert refunds.topics.refunds == warehouse.topic == notifications.topics.source
    assert whole.topics.model_dump() == refunds.topics.model_dump() | {
        "notifications": notifications.topics.notifications
    }
    assert whole.query_id == refunds.query_id
    assert (whole.window, whole.lateness) == (notifications.window, notifications.lateness)
    assert (whole.table, whole.columns) == (warehouse.table, warehouse.columns)
    assert len({each.checkpoint for each in (refunds, warehouse, notifications)}) == 3


def test_options_win_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, 'query_id = "mine"\n[topics]\nrefunds = "r"\naudit = "a"\n')
    settings = load_settings(
        RefundsSettings, file, {"topics.audit": "other", "trigger": "available-now", "checkpoint": None}
    )
    assert (settings.query_id, settings.checkpoint) == ("mine", "checkpoints/refunds")
    assert (settings.topics.source, settings.topics.refunds, settings.topics.audit) == ("settlements", "r", "other")
    assert settings.trigger_options == {"availableNow": True}


def test_client_settings_become_options_of_the_connector(tmp_path: Path) -> None:
    settings = load_settings(RefundsSettings, written(tmp_path, '[kafka]\n"security.protocol" = "SSL"\n'))
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
        ({"query_id": "it's"}, "query_id: "),
        ({"trigger": "often"}, "trigger: must be 'available-now' or .*given: 'often'"),
        ({"starting_offsets": "middle"}, "starting_offsets: "),
        ({"bootstrap_servers": ""}, "bootstrap_servers: "),
        ({"topics.audit": "refunds-emitted"}, "topics: the four topics must have different names"),
    ],
)
def test_errors_name_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}"):
        load_settings(RefundsSettings, options=options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (WarehouseSettings, {"on_other_checkpoint": "perhaps"}, "on_other_checkpoint: .*'fail' or 'adopt'"),
        (WarehouseSettings, {"table": ""}, "table: "),
        (NotificationSettings, {"window": "ten minutes"}, "window: "),
        (ReconcileSettings, {"report": "prose"}, "report: "),
    ],
)
def test_errors_of_the_other_jobs(model: type[JobSettings], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}"):
        load_settings(model, options=options)


def test_a_client_setting_is_never_shown() -> None:
    with pytest.raises(SettingsError, match=r"^kafka\.sasl\.password: ") as error:
        load_settings(RefundsSettings, options={"kafka": {"sasl.password": 12345}})
    assert "12345" not in str(error.value)


def test_a_missing_or_broken_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings file .*none"):
        load_settings(RefundsSettings, tmp_path / "none.toml")
    with pytest.raises(SettingsError, match=r"settings file .*job\.toml"):
        load_settings(RefundsSettings, written(tmp_path, "query_id = \n"))


@pytest.mark.parametrize("job", JOBS)
def test_wrong_settings_end_a_job_with_code_2_before_it_starts(job: str) -> None:
    import importlib

    app = importlib.import_module(job).app
    result = CliRunner().invoke(app, ["--bootstrap-servers", ""])
    assert result.exit_code == 2
    assert "wrong settings:\nbootstrap_servers: " in result.output


def test_options_are_made_of_the_settings() -> None:
    from settlements_to_refunds import app

    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for option in ("--config", "--max-offsets-per-trigger", "--dead-letter-topic", "available-now"):
        assert option in shown
    assert "--kafka" not in shown, "client settings hold passwords"


def test_a_closed_gate_begins_no_batch() -> None:
    began: list[int] = []
    quieted: list[bool] = []
    gate = Gate(lambda _df, batch: began.append(batch), lambda: quieted.append(True))
    gate(None, 0)  # type: ignore[arg-type]
    gate.close()
    with pytest.raises(StopRequested, match="batch 1"):
        gate(None, 1)  # type: ignore[arg-type]
    assert (began, gate.refused, quieted) == ([0], True, [True])
