"""Refunds in the Delta table: each once, whatever is run again, lost or replaced; or a refusal that says why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from jobs_pipeline import JobsPipeline
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.large, pytest.mark.delta]

COLUMNS = "refund_id string, merchant string, amount_paise bigint, at timestamp"
AT = "2026-01-01T09:30:00Z"


@pytest.fixture
def pipeline(spark, kafka, topic, query_id, tmp_path) -> JobsPipeline:
    return JobsPipeline(spark, kafka.bootstrap_servers, topic, tmp_path, query_id)


def emit(pipeline: JobsPipeline, *numbers: int, **more: str) -> None:
    """Refunds, by number, in turns into both partitions."""
    for number in numbers:
        refund = {"refund_id": f"RFD-{number}", "merchant": "MER-1", "amount_paise": number, "at": AT}
        pipeline.write("refunds", refund | more, b"MER-1", number % 2)


def stored(pipeline: JobsPipeline) -> list[str]:
    return sorted(row.refund_id for row in pipeline.rows().select("refund_id").collect())


def ids(*numbers: int) -> list[str]:
    return sorted(f"RFD-{number}" for number in numbers)


def checkpoint(pipeline: JobsPipeline) -> Path:
    return pipeline.folder / "checkpoint-warehouse"


def renew(pipeline: JobsPipeline) -> None:
    """The next run has a new checkpoint."""
    shutil.rmtree(checkpoint(pipeline))


def run_last_batch_again(pipeline: JobsPipeline) -> None:
    """As after a crash between the table's commit and Spark's."""
    commits = checkpoint(pipeline) / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


def test_each_refund_is_in_the_table_once(pipeline):
    emit(pipeline, 1, 2, 3)
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2, 3)
    run_last_batch_again(pipeline)
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2, 3)
    emit(pipeline, 4, 5)
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2, 3, 4, 5)
    row = pipeline.rows().where("refund_id = 'RFD-4'").first()
    assert (row.amount_paise, row.at.isoformat()) == (4, "2026-01-01T09:30:00")
    assert (row.kafka_topic, row.kafka_partition, row.kafka_offset) == (pipeline.topics["refunds"], 0, 1)


def test_what_is_no_refund_is_kept_as_it_came(pipeline):
    emit(pipeline, 1)
    pipeline.write("refunds", b"no refund")
    pipeline.store(columns=COLUMNS)
    (row,) = pipeline.rows().where("refund_id is null").collect()
    assert (row._corrupt_record, row.kafka_offset) == ("no refund", 0)


def test_a_new_checkpoint_is_refused_and_adopted_when_asked(pipeline):
    emit(pipeline, 1, 2)
    pipeline.store(columns=COLUMNS)
    lost = checkpoint(pipeline).rename(pipeline.folder / "lost")
    emit(pipeline, 3, 4)
    with pytest.raises(PySparkException, match=r"(?s)is written from checkpoint .*on_other_checkpoint = 'adopt'"):
        pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2), "nothing is doubled"
    pipeline.store(columns=COLUMNS, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(1, 2, 3, 4), "nothing is skipped"
    emit(pipeline, 5)
    with pytest.raises(PySparkException, match="is written from checkpoint"):
        pipeline.store(columns=COLUMNS, checkpoint=str(lost))
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2, 3, 4, 5)


def test_a_checkpoint_that_starts_before_the_tables_end_writes_nothing_twice(pipeline):
    emit(pipeline, 1, 2)
    pipeline.store(columns=COLUMNS)
    newer = str(pipeline.folder / "newer")
    with pytest.raises(PySparkException, match="is written from checkpoint"):
        pipeline.store(columns=COLUMNS, checkpoint=newer)  # its log says from here on that it starts at 3
    emit(pipeline, 3, 4)
    pipeline.store(columns=COLUMNS)
    emit(pipeline, 5, 6)
    pipeline.store(columns=COLUMNS, checkpoint=newer, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("numbers", [(7,), (7, 8, 9, 10)], ids=["fewer", "as many"])
def test_a_topic_that_is_new_to_the_table_is_read_from_its_start(pipeline, topic, numbers):
    emit(pipeline, 1, 2, 3, 4)
    pipeline.store(columns=COLUMNS)
    pipeline.topics["refunds"] = topic(2, name="renamed")
    emit(pipeline, *numbers)
    renew(pipeline)
    pipeline.store(columns=COLUMNS, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(1, 2, 3, 4, *numbers)


def test_a_topic_that_is_new_to_the_table_keeps_to_starting_offsets_and_the_refusals(pipeline, topic):
    emit(pipeline, 1, 2, 3, 4)
    pipeline.store(columns=COLUMNS)
    pipeline.topics["refunds"] = renamed = topic(2, name="renamed")
    emit(pipeline, 5, 6, 7, 8)
    with pytest.raises(PySparkException, match="DataLoss"):  # the checkpoint has the old topic
        pipeline.store(columns=COLUMNS)
    renew(pipeline)
    starts = json.dumps({renamed: {"0": 1, "1": -2}})
    with pytest.raises(PySparkException, match="is written from checkpoint"):
        pipeline.store(columns=COLUMNS, starting_offsets=starts)
    assert stored(pipeline) == ids(1, 2, 3, 4)
    pipeline.store(columns=COLUMNS, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(1, 2, 3, 4, 5, 7, 8)
    emit(pipeline, 9, 10)
    renew(pipeline)
    pipeline.store(columns=COLUMNS, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(1, 2, 3, 4, 5, 7, 8, 9, 10), "on behind the rows of both"


def test_what_kafka_has_deleted_before_a_checkpoint_was_adopted_is_told(pipeline):
    emit(pipeline, 2)
    pipeline.store(columns=COLUMNS)
    emit(pipeline, 4, 6)
    partition = TopicPartition(pipeline.topics["refunds"], 0, 2)
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    admin.delete_records([partition])[partition].result(30)
    shutil.rmtree(checkpoint(pipeline))
    with pytest.raises(PySparkException, match="to be read from offset 1, starts at 2"):
        pipeline.store(columns=COLUMNS, on_other_checkpoint="adopt")
    assert stored(pipeline) == ids(2)


def test_a_table_that_was_made_anew_is_not_gone_on_with(pipeline):
    emit(pipeline, 1)
    pipeline.store(columns=COLUMNS)
    shutil.rmtree(pipeline.table)
    emit(pipeline, 2)
    with pytest.raises(PySparkException, match="knows nothing of the batches before"):
        pipeline.store(columns=COLUMNS)
    shutil.rmtree(checkpoint(pipeline))
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2)


def test_a_new_field_becomes_a_column(pipeline):
    emit(pipeline, 1)
    pipeline.store(columns=COLUMNS)
    emit(pipeline, 2, currency="INR")
    pipeline.store(columns=f"{COLUMNS}, currency string")
    found = {row.refund_id: row.currency for row in pipeline.rows().collect()}
    assert found == {"RFD-1": None, "RFD-2": "INR"}


def test_a_field_of_another_type_is_refused(pipeline):
    emit(pipeline, 1)
    pipeline.store(columns=COLUMNS)
    emit(pipeline, 2)
    with pytest.raises(PySparkException, match="amount_paise"):
        pipeline.store(columns=COLUMNS.replace("amount_paise bigint", "amount_paise array<string>"))
    assert stored(pipeline) == ids(1)
    pipeline.store(columns=COLUMNS)
    assert stored(pipeline) == ids(1, 2)
