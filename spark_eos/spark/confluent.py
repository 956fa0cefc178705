"""Records in the Confluent wire format (Avro, Protobuf, JSON Schema) as Spark structs."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from spark_eos.errors import OptionError, SchemaError, UsageError
from spark_eos.options import ClientSettings
from spark_eos.spark.fit import check_supported, structs
from spark_eos.spark.json_value import corrupt, fields_of, from_json_value, with_corrupt_record

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

TEXT = StructType([StructField("text", StringType())])
ERROR = "error"


def from_confluent(
    column: str | Column,
    schema: str | StructType,
    registry: Mapping[str, Any],
    format: Literal["avro", "protobuf", "json"] = "avro",
    *,
    message: type[Any] | None = None,
    corrupt_record: str = "_corrupt_record",
) -> Column:
    """Decode records in the Confluent wire format: a zero byte, a schema id, what that schema describes.

        refund = from_confluent("value", "account string, cents bigint", {"url": "http://registry:8081"})
        df.select(refund.alias("refund")).select("refund.*")

    Decoded on the workers by the deserializers of confluent-kafka, each record with the schema that it was written
    with; fields are matched to `schema` by name. A record that can't be decoded, or does not fit, is corrupt, and its
    row says why. A registry that does not answer, or refuses, fails the task: it makes no record corrupt.
    Rules of data contracts (field encryption, migrations) are not run.

    Args:
        column: binary, keys as well as values.
        schema: the fields wanted, as DDL or a StructType; all are nullable in the result. Values are not converted
            to other types, but for int to floating point or decimal, and Avro's UUID to string. Avro's and
            Protobuf's timestamps are UTC, enums are strings (their names). JSON is parsed as by `from_json_value`.
        registry: settings of confluent_kafka.schema_registry.SchemaRegistryClient: "url", "basic.auth.user.info",
            ... A request is given 30 s unless "timeout" says otherwise. Shown nowhere, but sent to the workers.
        format: what the registry has for these records.
        message: for protobuf, the class that protoc generated for the records. Workers import it, as they do any module
            of yours (`SparkContext.addPyFile`).
        corrupt_record: name of the string field that is added at the end. It is null where the record was decoded,
            else what is wrong with it, for example "schema id 7 is not in the registry"; the text of a JSON document
            that has its JSON Schema's form and does not fit `schema`.

    Returns:
        A struct of the schema's fields and `corrupt_record`; null where the column is null (a tombstone).

    Raises:
        SchemaError: the schema can't be read, has a type that can't be decoded into, or a field named as
            `corrupt_record`. On a worker: the column is not binary.
        OptionError: another format, protobuf without a message, or settings that the client does not take.
        UsageError: the extra `schema-registry` is not installed.
        RegistryError: on a worker, the registry did not answer, or refused.
    """
    fields, settings = fields_of(schema, corrupt_record), ClientSettings(registry)
    _check_format(format, message)
    _client().decoder(format, settings, message)  # it refuses wrong settings here, and not on a worker

    def decode(fields: StructType, corrupt_record: str) -> Column:
        return _on_workers(format, settings, message, fields, corrupt_record)(column)

    if format == "json":
        return _from_text(decode(TEXT, ERROR), fields, corrupt_record)
    check_supported(fields)
    return decode(fields, corrupt_record)


def _check_format(format: str, message: type[Any] | None) -> None:
    formats = _client().FORMATS
    if format not in formats:
        raise OptionError(f"format {format!r} is not known", do=f"Use one of: {', '.join(formats)}.")
    if (format == "protobuf") != (message is not None):
        raise OptionError(
            f"format {format!r} and message {message} do not go together",
            do="Give message the class that protoc generated with format='protobuf', and only then.",
        )


def _on_workers(
    format: str, settings: ClientSettings, message: type[Any] | None, fields: StructType, corrupt_record: str
) -> UserDefinedFunctionLike:
    """Binary records to structs, on Spark's workers."""

    def decode_confluent(records: pa.Array) -> pa.Array:
        if not (pa.types.is_binary(records.type) or pa.types.is_large_binary(records.type)):
            raise SchemaError(f"from_confluent was given a column of {records.type}", do="Give it a binary column.")
        decoder = _client().decoder(format, settings, message)
        return structs(decoder(records.to_pylist()), fields, corrupt_record)

    # Spark's stubs ask for a function type; given one, arrow_udf warns that it takes type hints.
    udf: UserDefinedFunctionLike = arrow_udf(decode_confluent, with_corrupt_record(fields, corrupt_record))  # type: ignore[call-overload]
    # Else a filter on the result is pushed below it, and every record decoded twice.
    return udf.asNondeterministic()


def _from_text(decoded: Column, fields: StructType, corrupt_record: str) -> Column:
    """JSON has no decimals, dates and timestamps of its own: Spark's parser knows how to read them from text."""

    def parse(one: Column) -> Column:
        parsed = from_json_value(one["text"], fields, corrupt_record)
        return F.when(one[ERROR].isNull(), parsed).otherwise(corrupt(fields, corrupt_record, one[ERROR]))

    # As an element it is decoded once, however often it is named.
    return F.transform(F.array(decoded), parse)[0]


def _client() -> ModuleType:
    """What needs the extra; asked for where it is used, on the driver and on each worker."""
    try:
        from spark_eos.kafka import registry  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"from_confluent needs packages that are not installed here (no {error.name})",
            do="pip install spark-eos[schema-registry], for the driver and for every worker.",
        ) from None
    return registry
