"""The pipelines: what each makes of the numbers that are fed, in Spark and in plain Python.

A source gives numbers, 0 and up, in chunks of equal size; a chunk is what is fed at once, and a micro-batch as a rule.
A pipeline makes rows with a text `out` of them. `outputs` says in plain Python which texts come of each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from ways_life import Life

Chunks = Sequence[Sequence[int]]
Build = Callable[["Frames"], DataFrame]
Outputs = Callable[[Chunks], list[list[str]]]

KAFKA, FILE, RATE, TABLE = "kafka", "file", "rate", "table"
"""What a pipeline reads."""
KEYS = "abcde"


@dataclass(frozen=True)
class Pipeline:
    """A query, and what is to come of it.

    Args:
        build: its rows, with a column `out`; and topic, partition and offset where rows have positions.
        outputs: the texts that come of each chunk.
        reads: KAFKA, FILE, RATE or TABLE.
        mode: output mode.
        shuffles: whether lanes are made by a shuffle whose partitions are a setting.
        stateful: whether the query has state.
        positions: whether rows can carry their source positions.
        by_batch: what comes depends on how batches are cut.
        lanes: whether a batch can have more than one with rows.
        use: how the user's function calls the sink, see `ways_uses.USES`; foreachBatch only, unless it is "one".
        connect: whether it is tried in Spark Connect, too.
        writes: whether it is tried with `df.write`, too.
        conf: settings of its own.
    """

    build: Build
    outputs: Outputs
    reads: str = KAFKA
    mode: str = "append"
    shuffles: bool = False
    stateful: bool = False
    positions: bool = False
    by_batch: bool = False
    use: str = "one"
    connect: bool = False
    writes: bool = False
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Frames:
    """What a query can read."""

    spark: SparkSession
    life: Life

    def numbers(self, topic: str | None = None) -> DataFrame:
        """A topic's records: number, topic, partition, offset; of a `df.write`, the numbers of its chunk."""
        if self.life.chunk:
            first, last = self.life.chunk
            return self.spark.range(first, last + 1).select(F.col("id").cast("int").alias("number"))
        limit = {"maxOffsetsPerTrigger": str(self.life.limit)} if self.life.limit else {}
        options = self.life.kafka | limit | {"startingOffsets": "earliest", "subscribe": topic or self.life.source}
        read = self.spark.readStream.format("kafka-eos").options(**options).load()
        return read.select(F.col("value").cast("string").cast("int").alias("number"), "topic", "partition", "offset")

    def second(self) -> DataFrame:
        """The second topic's records."""
        return self.numbers(self.life.second)

    def lines(self) -> DataFrame:
        """Numbers from text files."""
        read = self.spark.readStream.format("text").load(f"{self.life.folder}/files")
        return read.select(F.col("value").cast("int").alias("number"))

    def ticks(self) -> DataFrame:
        """Numbers that Spark makes, as many for each batch; partitioned by cores."""
        options = {"rowsPerBatch": "9", "startTimestamp": "0", "advanceMillisPerBatch": "1000"}
        read = self.spark.readStream.format("rate-micro-batch").options(**options).load()
        return read.select(F.col("value").cast("int").alias("number"))

    def table(self) -> DataFrame:
        """Numbers from a Delta table."""
        return self.spark.readStream.format("delta").load(f"{self.life.folder}/table").select("number")


def out(df: DataFrame, text: str = "cast(number as string)") -> DataFrame:
    """With the column `out`, by an expression."""
    return df.withColumn("out", F.expr(text))


def each(text: Callable[[int], str] = str) -> Outputs:
    """A row for each number."""
    return lambda chunks: [[text(number) for number in chunk] for chunk in chunks]


def _many(*suffixes: str) -> Outputs:
    return lambda chunks: [[f"{number}{s}" for number in chunk for s in suffixes] for chunk in chunks]


def _filtered(frames: Frames) -> DataFrame:
    """The second lane never has a row; nor does the first batch, if it is six numbers."""
    return out(frames.numbers().where("number >= 6 and number % 3 != 1"))


def _filtered_outputs(chunks: Chunks) -> list[list[str]]:
    return [[str(number) for number in chunk if number >= 6 and number % 3 != 1] for chunk in chunks]


def _exploded(frames: Frames) -> DataFrame:
    return out(frames.numbers().withColumn("part", F.explode(F.array(F.lit("x"), F.lit("y")))), "number || '-' || part")


def _joined(frames: Frames) -> DataFrame:
    """With a table that is at rest; both are shuffled."""
    letters = frames.spark.range(len(KEYS)).select(
        F.col("id").cast("int").alias("id"), F.expr(f"substring('{KEYS}', cast(id as int) + 1, 1)").alias("letter")
    )
    numbers = frames.numbers()
    return out(numbers.join(letters, numbers.number % len(KEYS) == letters.id), "number || ':' || letter")


def _united(frames: Frames) -> DataFrame:
    left, right = out(frames.numbers(), "number || '-l'"), out(frames.second(), "number || '-r'")
    return left.unionByName(right)


def _united_with_itself(frames: Frames) -> DataFrame:
    return out(frames.numbers(), "number || '-l'").unionByName(out(frames.numbers(), "number || '-r'"))


def _stateless(frames: Frames) -> DataFrame:
    return out(frames.numbers())


_BY_KEY = {"spark.sql.shuffle.partitions": "8"}

STATELESS: dict[str, Pipeline] = {
    "stateless": Pipeline(_stateless, each(), positions=True, connect=True, writes=True),
    "filtered": Pipeline(_filtered, _filtered_outputs, positions=True),
    "exploded": Pipeline(_exploded, _many("-x", "-y"), positions=True, connect=True, writes=True),
    "repartition-number": Pipeline(
        lambda frames: out(frames.numbers().repartition(4)), each(), positions=True, shuffles=True, writes=True
    ),
    "repartition-key": Pipeline(
        lambda frames: out(frames.numbers().repartition("number")),
        each(),
        positions=True,
        shuffles=True,
        connect=True,
        writes=True,
        conf=_BY_KEY,
    ),
    "coalesce": Pipeline(lambda frames: out(frames.numbers().coalesce(2)), each(), positions=True, connect=True),
    "join-static": Pipeline(
        _joined, each(lambda number: f"{number}:{KEYS[number % 5]}"), positions=True, shuffles=True, writes=True
    ),
    "union": Pipeline(_united, _many("-l", "-r"), positions=True, connect=True),
    "self-union": Pipeline(_united_with_itself, _many("-l", "-r"), positions=True),
    "files": Pipeline(lambda frames: out(frames.lines()), each(), reads=FILE, connect=True),
    "rate": Pipeline(lambda frames: out(frames.ticks()), each(), reads=RATE),
    "delta": Pipeline(lambda frames: out(frames.table()), each(), reads=TABLE),
}
"""Queries without state, one sink."""

USES: dict[str, Pipeline] = {
    name: Pipeline(_stateless, outputs, positions=True, use=name)
    for name, outputs in {
        "two-sinks": _many("-a", "-b"),
        "two-sinks-one-id": _many("-a", "-b"),
        "sink-twice": _many("-a", "-b"),
        "same-twice": each(),
        "late": each(),
        "left-out": each(),
        "swallow": each(),
    }.items()
}
"""What a user's function does with sinks."""
OF_TWO = ("two-sinks", "two-sinks-one-id", "sink-twice")
"""Of which each text ends with its sink: two queries in the end, which can be of different versions in a batch."""


def by_sink(texts: Sequence[str]) -> list[list[str]]:
    """A chunk's texts of OF_TWO, sink by sink."""
    return [[text for text in texts if text.endswith(suffix)] for suffix in ("-a", "-b")]
