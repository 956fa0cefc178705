"""The format `kafka-eos`: reads committed records, with the columns of Spark's own Kafka source, and writes them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from spark_eos.errors import SchemaError, UnsupportedError
from spark_eos.source_options import SourceOptions
from spark_eos.spark.batch_reader import KafkaEosReader
from spark_eos.spark.stream_reader import KafkaEosStreamReader
from spark_eos.spark.versions import as_spark_asks
from spark_eos.spark.writer import KafkaEosStreamWriter, KafkaEosWriter


def source_schema(*, headers: bool) -> StructType:
    """Columns of Spark's Kafka source, in its order."""
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    header = StructType().add("key", StringType()).add("value", BinaryType())
    return schema.add("headers", ArrayType(header)) if headers else schema


class KafkaEosDataSource(DataSource):
    """`spark.readStream`, `spark.read`, `df.writeStream` and `df.write`, with `.format("kafka-eos")`.

    Options: `spark_eos.source_options.SOURCE_OPTIONS`, and of the writers `spark_eos.options.SINK_OPTIONS`.
    `trigger(once=True)`, deprecated by Spark, runs one batch,
    and a new stream's first batch is empty (see `spark_eos.spark.stream_reader`): use `trigger(availableNow=True)`.
    """

    _travelled = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Spark makes an object anew for each batch that is to be written, and pickles one to where it commits."""
        self.__dict__.update(state, _travelled=True)

    @classmethod
    def name(cls) -> str:
        return "kafka-eos"

    def schema(self) -> StructType:
        """The columns. Options are checked here, so that `load()` fails on a wrong one.

        Raises:
            OptionError: see `SourceOptions.of`.
        """
        return source_schema(headers=SourceOptions.of(self.options).include_headers)

    def reader(self, schema: StructType) -> KafkaEosReader:
        """The reader of a batch query.

        Raises:
            OptionError: see `SourceOptions.of`.
            SchemaError: the user gave another schema than the source has.
        """
        options = SourceOptions.of(self.options, "batch")
        _check_schema(schema, options)
        return KafkaEosReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream.

        Raises:
            OptionError: see `SourceOptions.of`.
            SchemaError: the user gave another schema than the source has.
        """
        options = SourceOptions.of(self.options, "stream")
        _check_schema(schema, options)
        return as_spark_asks(KafkaEosStreamReader(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaEosStreamWriter:  # noqa: ARG002
        """The writer of one batch of a stream. In output mode complete (`overwrite`) each batch has the whole result.

        Raises:
            SparkEosError: the options or the rows are wrong, or the batch can't be opened.
        """
        return KafkaEosStreamWriter(schema, dict(self.options), opens=not self._travelled)

    def writer(self, schema: StructType, overwrite: bool) -> KafkaEosWriter:
        """The writer of a batch query.

        Raises:
            UnsupportedError: mode overwrite: what is in a topic stays there.
            SparkEosError: the options or the rows are wrong, or the write can't begin.
        """
        if overwrite:
            raise UnsupportedError("records in a topic can't be overwritten", do='Use mode("append").')
        return KafkaEosWriter(schema, dict(self.options))


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    if schema != source_schema(headers=options.include_headers):
        raise SchemaError(
            f"the format kafka-eos has columns of its own, not {schema.simpleString()}",
            do="Leave out .schema(...), and parse the column value.",
        )
