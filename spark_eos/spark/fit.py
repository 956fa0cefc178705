"""Decoded records as Arrow structs: each fits its Spark types, or is corrupt.

Arrow alone takes too much without a word: `pyarrow.array([1.5], int32())` is `[1]`, an int becomes a timestamp, and
text a list of letters (seen with pyarrow 26).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_eos.errors import SchemaError
from spark_eos.spark.versions import arrow_type

TAKES: Mapping[type[DataType], tuple[type, ...]] = {
    BooleanType: (bool,),
    ByteType: (int,),
    ShortType: (int,),
    IntegerType: (int,),
    LongType: (int,),
    FloatType: (float, int),
    DoubleType: (float, int),
    DecimalType: (Decimal, int),
    StringType: (str, UUID),
    BinaryType: (bytes,),
    DateType: (dt.date,),
    TimestampType: (dt.datetime,),
    TimestampNTZType: (dt.datetime,),
    DayTimeIntervalType: (dt.timedelta,),
}
"""Spark type to the Python types that are put into it: exactly these, a bool is no int. Arrow checks their range."""

COMPLAINT = 300
"""Characters that a corrupt record's complaint has at most."""

Decoded = tuple[Any, str | None]
"""A record's value, or None and what is wrong with it; a null record has neither."""


def structs(decoded: Sequence[Decoded], fields: StructType, corrupt_record: str) -> pa.StructArray:
    """Decoded records as an Arrow array, one struct each; null for a null record.

    Args:
        decoded: values are dicts of what `fit` takes.
        fields: what is taken from them.
        corrupt_record: the last field's name: None, or what is wrong with the record, also if it does not fit.
    """
    kind = arrow_type(fields)
    fitted = [_fitted(each, fields) for each in decoded]
    try:
        values = pa.array([value for value, _ in fitted], kind)
    except (ValueError, TypeError, OverflowError):
        # Arrow does not say which record it is that is out of range.
        fitted = [_converted(each, kind) for each in fitted]
        values = pa.array([value for value, _ in fitted], kind)
    errors = [error[:COMPLAINT] if error else None for _, error in fitted]
    return pa.StructArray.from_arrays(
        [*values.flatten(), pa.array(errors, pa.string())],
        fields=[*kind, pa.field(corrupt_record, pa.string())],
        mask=pa.array([value is None and error is None for value, error in fitted], pa.bool_()),
    )


def _fitted(decoded: Decoded, fields: StructType) -> Decoded:
    try:
        return fit(decoded[0], fields), decoded[1]
    except TypeError as error:
        return None, str(error)


def _converted(fitted: Decoded, kind: pa.DataType) -> Decoded:
    try:
        pa.array([fitted[0]], kind)
    except (ValueError, TypeError, OverflowError) as error:
        return None, str(error)
    return fitted


def fit(value: Any, kind: DataType, name: str = "the value") -> Any:
    """A decoded value, as Arrow takes it for a Spark type.

    Args:
        value: of scalars, dicts (a record or a map) and lists. A record's fields that the type lacks are left out.
        kind: its Spark type.
        name: what it is called in the error.

    Raises:
        TypeError: it is of another type; says which field.
    """
    if value is None:
        return None
    if isinstance(kind, StructType) and isinstance(value, dict):
        return {field.name: fit(value.get(field.name), field.dataType, field.name) for field in kind.fields}
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [fit(element, kind.elementType, name) for element in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return [(fit(key, kind.keyType, name), fit(each, kind.valueType, name)) for key, each in value.items()]
    if type(value) in TAKES.get(type(kind), ()):
        return str(value) if type(value) is UUID else value
    raise TypeError(f"{name} is of type {type(value).__name__}, which is no {kind.simpleString()}")


def check_supported(kind: DataType) -> None:
    """Refuse a type that no value fits.

    Raises:
        SchemaError: names the type.
    """
    if isinstance(kind, StructType):
        parts: tuple[DataType, ...] = tuple(field.dataType for field in kind.fields)
    elif isinstance(kind, MapType):
        parts = (kind.keyType, kind.valueType)
    else:
        parts = (kind.elementType,) if isinstance(kind, ArrayType) else ()
        if not parts and type(kind) not in TAKES:
            known = ", ".join(sorted(each.typeName() for each in TAKES))
            raise SchemaError(
                f"a field of type {kind.simpleString()} can't be decoded into", do=f"Use one of: {known}."
            )
    for part in parts:
        check_supported(part)
