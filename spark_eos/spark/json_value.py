"""JSON in a column, by Spark's own parser, with a column that says what could not be parsed."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from spark_eos.errors import SchemaError

END = "_spark_eos_end"


def from_json_value(column: str | Column, schema: str | StructType, corrupt_record: str = "_corrupt_record") -> Column:
    """Parse JSON documents into a struct; what is not such a document keeps its text.

        df.select(from_json_value("value", "account string, cents bigint").alias("refund")).select("refund.*")

    Parsed by Spark's `from_json`, and by its rules: a field that is missing is null, one that the schema does not
    name is left out, decimals are rounded to their scale, bytes are base64. One rule is added: `from_json` takes
    the first document of a text and ignores what follows it (seen with Spark 4.2); here such a text is corrupt.

    Args:
        column: JSON text, string or binary (UTF-8), one document a row.
        schema: the document's fields, as DDL or a StructType. All are nullable in the result.
        corrupt_record: name of the string field that is added at the end. It is null where the document was parsed,
            else the text as it came; fields that fit may be filled then.

    Returns:
        A struct of the schema's fields and `corrupt_record`; null where the column is null (a tombstone).

    Raises:
        SchemaError: the schema can't be read, or has a field named as `corrupt_record`.
    """
    fields = fields_of(schema, corrupt_record)
    whole = with_corrupt_record(fields, corrupt_record)
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    parsed = F.from_json(text, whole, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt_record})
    return F.when(text.isNull() | _is_one_document(text), parsed).otherwise(corrupt(fields, corrupt_record, text))


def _is_one_document(text: Column) -> Column:
    """Whether the text is one JSON value and nothing else: a mark put behind it is then the second of an array."""
    marked = F.concat(F.lit("["), text, F.lit(f',{{"{END}":true}}]'))
    elements = F.from_json(marked, ArrayType(StructType([StructField(END, BooleanType())])))
    return F.coalesce(F.get(elements, F.lit(1))[END], F.lit(False))


def fields_of(schema: str | StructType, corrupt_record: str) -> StructType:
    """The schema a user gave, every field nullable.

    Raises:
        SchemaError: see `from_json_value`.
    """
    try:
        fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        why = "it is no struct"
    except PySparkException as error:
        fields, why = None, str(error).strip().splitlines()[0]
    if not isinstance(fields, StructType):
        raise SchemaError(
            f"the schema {schema!r} can't be read: {why}",
            do="Write it as columns are declared, for example: account string, cents bigint.",
        )
    if corrupt_record.lower() in (name.lower() for name in fields.names):
        raise SchemaError(
            f"the schema has a field {corrupt_record}, where what can't be read is put",
            do="Give another name as corrupt_record.",
        )
    return fields.toNullable()


def corrupt(fields: StructType, corrupt_record: str, text: Column) -> Column:
    """A struct of nulls, with the text as its corrupt record."""
    nulls = (F.lit(None).cast(field.dataType).alias(field.name) for field in fields)
    return F.struct(*nulls, text.alias(corrupt_record))


def with_corrupt_record(fields: StructType, corrupt_record: str) -> StructType:
    """The fields, and behind them the one for what can't be read."""
    return StructType([*fields.fields, StructField(corrupt_record, StringType())])
