"""A batch that comes again is split as it was, or nothing is written: whatever decides the split."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from spark_pipe import half_commit

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
CORES = "spark.sql.files.minPartitionNum"
"""A file source takes the number of cores for it where it is not set."""


@pytest.fixture
def conf(spark):
    """Sets settings of the session; at the end all are as they were."""
    names: set[str] = set()

    def set_to(**settings: str) -> None:
        for name, value in settings.items():
            names.add(name.replace("__", "."))
            spark.conf.set(name.replace("__", "."), value)

    yield set_to
    for name in names:
        spark.conf.unset(name)


class Files:
    """A query that reads text files, of which none is in more than one batch."""

    def __init__(self, pipe, folder) -> None:
        self.pipe, self.folder = pipe, folder
        folder.mkdir()

    def add(self, name: str, *values: str) -> None:
        draft = self.folder / f".{name}"
        draft.write_text("".join(f"{value}\n" for value in values))
        draft.rename(self.folder / name)

    def rows(self, bad: str | None = None):
        text = self.pipe.spark.readStream.text(str(self.folder)).select("value", F.lit(self.pipe.target).alias("topic"))
        return text.withColumn("partition", F.when(F.col("value") == bad, 99).cast("int")) if bad else text

    def run(self, bad: str | None = None, **options: str) -> None:
        self.pipe.run(self.rows(bad), **options)


@pytest.fixture
def files(both, tmp_path) -> Files:
    return Files(both, tmp_path / "files")


@pytest.fixture
def some_files(either, tmp_path) -> Files:
    return Files(either, tmp_path / "files")


@pytest.fixture
def small_splits(conf):
    """Each line of some 20 bytes is a partition, or two of them are."""
    conf(spark__sql__files__openCostInBytes="1", spark__sql__files__maxPartitionBytes="1000")
    return conf


def lines(first: int, last: int) -> list[str]:
    return [f"{number:020d}" for number in range(first, last)]


def half_commit_files(files: Files, bad: str) -> None:
    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        files.run(bad)


def test_a_half_committed_batch_that_is_split_by_other_cores_is_refused_and_goes_on_as_it_was(files, small_splits):
    small_splits(**{CORES: "2"})
    files.add("a", *lines(0, 8))
    half_commit_files(files, bad=lines(7, 8)[0])
    before = sorted(files.pipe.values())
    assert before, "the first lane is committed"
    for cores in ("8", "1"):
        small_splits(**{CORES: cores})
        with pytest.raises(PySparkException, match=r"(SplitChanged|ReplayDiffers).*What to do.*number of cores"):
            files.run()
        assert sorted(files.pipe.values()) == before
    small_splits(**{CORES: "2"})
    files.run()
    assert sorted(files.pipe.values()) == lines(0, 8)
    small_splits(**{CORES: "8"})
    files.add("b", *lines(8, 16))
    files.run()
    assert sorted(files.pipe.values()) == lines(0, 16)


def test_a_lane_that_was_committed_and_is_empty_now_is_noticed(either):
    """Its rows are in another lane: the lane itself would not look into the ledger."""
    either.feed("ab", 0)
    either.feed("cd", 1)
    half_commit(either)
    before = either.values()
    assert sorted(before) == ["a", "b"]
    either.refused("ReplayDiffers.*had 2 rows.*has no rows", either.rows().where("source.partition > 0"))
    either.run()
    assert sorted(either.values()) == list("abcd")


@pytest.mark.parametrize("rows", [pytest.param("swapped", marks=pytest.mark.large), "doubled"])
def test_other_rows_with_equal_counts_and_ends_are_noticed(either, rows):
    either.feed("abcd", 0)
    either.feed("ef", 1)
    half_commit(either)
    assert sorted(either.values()) == list("abcd")
    changed = either.rows()
    if rows == "doubled":  # as many rows, with the same first and last position
        changed = changed.withColumn("value", F.expr("cast(replace(cast(value as string), 'c', 'b') as binary)"))
    else:
        changed = changed.withColumn("headers", F.expr("array(named_struct('key', 'h', 'value', cast('1' as binary)))"))
    either.refused("ReplayDiffers", changed)
    either.run()
    assert sorted(either.values()) == list("abcdef")


def test_what_was_committed_is_kept_where_it_is_asked_for(either):
    either.feed("abcd", 0)
    either.feed("ef", 1)
    half_commit(either)
    gone = either.rows().where("source.partition = 1 or source.offset > 1")
    either.refused(r"ReplayDiffers.*on\.replay\.differs=keep", gone)
    either.run(gone, **{"on.replay.differs": "keep"})
    assert sorted(either.values()) == list("abcdef")


def test_a_stream_that_adaptive_execution_splits_is_refused_and_goes_on_without(pipe, conf):
    pipe.feed(range(20))
    rows = pipe.rows().repartition("key")
    pipe.refused(rf"UnsupportedError.*adaptive query execution.*Set {STATELESS_AQE}=false", rows)
    conf(**{STATELESS_AQE: "false"})
    pipe.run(rows)
    assert sorted(map(int, pipe.values())) == list(range(20))


def test_a_shuffle_into_a_fixed_number_is_no_matter_for_adaptive_execution(pipe):
    pipe.feed(range(20))
    pipe.run(pipe.rows().repartition(3))
    pipe.feed(range(20, 30))
    pipe.run(pipe.rows().repartition("key"), **{"commit.scope": "batch"})
    pipe.feed(range(30, 40))
    table = pipe.spark.range(100).selectExpr("cast(id as string) as k").groupBy("k").count()
    joined = pipe.rows().join(F.broadcast(table), F.col("key").cast("string") == F.col("k"))
    pipe.run(joined.select("key", "value", "topic", "source"))
    assert sorted(map(int, pipe.values())) == list(range(40))


def test_a_half_committed_batch_of_a_shuffle_is_finished(either, conf):
    """Its rows may come in another order."""
    conf(**{STATELESS_AQE: "false"})
    either.feed(range(40), 0)
    either.feed(range(40, 80), 1)
    rows = either.rows().repartition(4, "key")
    bad = F.when(F.spark_partition_id() == 3, 99).cast("int")
    with pytest.raises(PySparkException, match="PartitionOutOfRange"):
        either.run(rows.withColumn("partition", bad))
    assert either.values()
    either.run(rows)
    assert sorted(map(int, either.values())) == list(range(80))


def test_a_file_sources_older_checkpoint_is_refused(some_files, tmp_path):
    import shutil

    some_files.add("a", "a")
    some_files.run()
    backup = tmp_path / "backup"
    shutil.copytree(some_files.pipe.checkpoint, backup)
    some_files.add("b", "b")
    some_files.run()
    newest, some_files.pipe.checkpoint = some_files.pipe.checkpoint, backup
    some_files.add("c", "c")
    with pytest.raises(PySparkException, match=r"(?s)CheckpointBehind.*other source offsets.*newest checkpoint"):
        some_files.run()
    some_files.pipe.checkpoint = newest
    some_files.run()
    assert sorted(some_files.pipe.values()) == ["a", "b", "c"]
