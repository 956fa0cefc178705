"""The sink's columns: which a DataFrame must and may have, and their types."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_eos.errors import OptionError, SchemaError
from spark_eos.options import SinkOptions

TEXT_OR_BYTES = (StringType(), BinaryType())
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SOURCE = StructType(
    [StructField("topic", StringType()), StructField("partition", IntegerType()), StructField("offset", LongType())]
)

COLUMNS: dict[str, tuple[DataType, ...]] = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
    "timestamp": (TimestampType(),),
    "source": (SOURCE,),
}
"""Column to the types it may have: those of Spark's Kafka sink, and `timestamp` and `source`."""


def sink_columns(df: DataFrame, options: SinkOptions) -> DataFrame:
    """The DataFrame with the sink's columns only; errors as of `check_columns`."""
    found = check_columns(df.schema, options)
    # With an option topic the column is not read: rows go where the option says, as in Spark's sink.
    names = [name for name in COLUMNS if name in found and not (name == "topic" and options.topic)]
    return df.select(*names)


def check_columns(schema: StructType, options: SinkOptions) -> dict[str, DataType]:
    """The columns that the user writes, by name in lower case.

    Args:
        schema: of what the user writes.
        options: the sink's.

    Raises:
        SchemaError: a column is there twice; `value` is missing, or `topic` is and there is no option; a column that
            the sink does not know (it would be lost without a word); a wrong type.
        OptionError: on.other.checkpoint=adopt without the column source.
    """
    topic = options.topic
    _refuse_doubles([field.name for field in schema])
    found = {field.name.lower(): field.dataType for field in schema}
    for name in ("value",) if topic else ("value", "topic"):
        if name not in found:
            also = ", or set the option topic" if name == "topic" else ""
            raise SchemaError(f"column {name} is missing (there are: {', '.join(found)})", do=f"Add it{also}.")
    unknown = [name for name in found if name not in COLUMNS]
    if unknown:
        raise SchemaError(
            f"the sink does not know column {', '.join(unknown)}",
            do=f"Select only what is to be written: {', '.join(COLUMNS)}. Put the rest into value.",
        )
    for name, dtype in found.items():
        if not any(_same(dtype, allowed) for allowed in COLUMNS[name]):
            wanted = " or ".join(allowed.simpleString() for allowed in COLUMNS[name])
            raise SchemaError(
                f"column {name} has type {dtype.simpleString()} and must be {wanted}", do="Cast it, or to_json() it."
            )
    if options.adopts and "source" not in found:
        raise OptionError(
            "option on.other.checkpoint is 'adopt', and the rows have no column source to tell what was processed",
            do="Add source_position() to the rows, or give the query a new query.id.",
        )
    return found


def _refuse_doubles(names: list[str]) -> None:
    lower = [name.lower() for name in names]
    doubled = sorted({name for name in lower if lower.count(name) > 1})
    if doubled:
        raise SchemaError(
            f"column {', '.join(doubled)} is there more than once (names are matched without regard to case)",
            do="Select each of the sink's columns once.",
        )


def _same(one: DataType, other: DataType) -> bool:
    """Equal types, whatever may be null in them."""
    return one.simpleString() == other.simpleString()
