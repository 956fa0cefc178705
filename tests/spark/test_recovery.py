"""Failures and recovery, both ways to write: each ends exact, or with a refusal that says how to go on.

docs/SINK.md lists them, each with its test here, in tests/contract/test_driver.py or in tests/contract/test_expiry.py.
By foreachBatch they are run in `make test-large`: what decides is the same code. Of tests that differ in degree only
one is run here, the others there.
"""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from spark_pipe import half_commit
from tests_support import Query

ADOPT = {"on.other.checkpoint": "adopt"}
START = {"on.missing.ledger": "start"}


@pytest.fixture
def written(either):
    """A query that has written two batches, with more to read than that."""
    either.feed("ab", 0)
    either.feed("cd", 1)
    either.run()
    return either


def test_a_half_committed_batch_is_finished_by_the_same_checkpoint(written):
    written.feed("e", 0)
    written.feed("f", 1)
    half_commit(written)
    assert sorted(written.values()) == list("abcde")
    written.run()
    assert sorted(written.values()) == list("abcdef")


@pytest.mark.parametrize("half", [pytest.param(False, marks=pytest.mark.large), True])
@pytest.mark.parametrize("start", ["earliest", "group"])
def test_a_lost_checkpoint_is_refused_and_adopted_from_earliest_and_from_group(written, tmp_path, start, half):
    written.feed("e", 0)
    written.feed("f", 1)
    if half:
        half_commit(written)
    written.checkpoint = tmp_path / "new"
    rows = written.rows(**{"startingOffsets": start, "kafka.group.id": written.query_id})
    written.refused(r"OtherCheckpoint.*on\.other\.checkpoint=adopt", rows)
    written.refused("no column source", rows.drop("source"), **ADOPT)
    written.run(rows, **ADOPT)
    assert sorted(written.values()) == list("abcdef")
    written.feed("g", 2)
    written.run(rows)
    assert sorted(written.values()) == list("abcdefg")


def test_a_checkpoint_that_starts_at_the_latest_offsets_is_not_adopted(written, tmp_path):
    """What came while the query was down would never be read."""
    written.feed("e", 0)
    written.checkpoint = tmp_path / "new"
    written.refused(
        r"leaves out the source offsets .*startingOffsets=group", written.rows(startingOffsets="latest"), **ADOPT
    )
    written.checkpoint = tmp_path / "newer"
    written.run(written.rows(startingOffsets="group", **{"kafka.group.id": written.query_id}), **ADOPT)
    assert sorted(written.values()) == list("abcde")


@pytest.mark.parametrize("batches", [1, pytest.param(10, marks=pytest.mark.large)])
def test_a_checkpoint_restored_from_a_backup_is_refused_and_adopted(written, tmp_path, batches):
    backup = tmp_path / "backup"
    shutil.copytree(written.checkpoint, backup)
    written.feed([f"x{n}" for n in range(batches)], 0)
    written.run(written.rows(maxOffsetsPerTrigger="1") if batches > 1 else None)
    written.feed("z", 1)
    done = written.values()
    written.checkpoint = backup
    written.refused(r"CheckpointBehind.*older copy.*on\.other\.checkpoint=adopt")
    shutil.rmtree(backup / "sources", ignore_errors=True)
    written.run(**ADOPT)
    assert sorted(written.values()) == sorted([*done, "z"])


def test_another_number_of_lanes_in_a_half_committed_batch_never_doubles_silently(written):
    written.feed("e", 0)
    written.feed("f", 1)
    half_commit(written)
    one = written.rows().coalesce(1)
    written.refused("SplitChanged|ReplayDiffers", one)
    written.run()
    assert sorted(written.values()) == list("abcdef")


def test_lanes_up_and_down_between_batches(written):
    written.feed("e", 0)
    written.run(written.rows().coalesce(1))
    written.feed("fg", 0)
    written.run(written.rows(maxRecordsPerPartition="1"))
    assert sorted(written.values()) == list("abcdefg")


def test_more_partitions_of_the_source_topic(written):
    admin = AdminClient({"bootstrap.servers": written.bootstrap})
    admin.create_partitions([NewPartitions(written.source, 5)])[written.source].result(20)
    written.feed("e", 4)
    written.run()
    assert sorted(written.values()) == list("abcde")
    assert Query(written.bootstrap, written.query_id, written.target).ledger.offsets([(written.source, 4)]) == {
        (written.source, 4): 1
    }


def test_a_deleted_group_is_refused_and_started_anew_when_asked(written):
    admin = AdminClient({"bootstrap.servers": written.bootstrap})
    admin.delete_consumer_groups([written.query_id])[written.query_id].result(20)
    written.feed("e")
    written.refused(r"LedgerLost.*group was deleted.*on\.missing\.ledger=start")
    written.run(**START)
    assert sorted(written.values()) == list("abcde")


def test_a_deleted_ledger_topic_is_refused_and_started_anew_when_asked(written, kafka, query_id):
    # A ledger of its own: other tests share the default one.
    own = {"ledger.topic": f"ledger-{query_id}"}
    written.feed("e")
    written.run(**own, **START)
    kafka.delete_topic(own["ledger.topic"])
    written.feed("f")
    written.refused(r"LedgerLost.*on\.missing\.ledger=start", **own)
    written.run(**own, **START)
    assert sorted(written.values()) == list("abcdef")
