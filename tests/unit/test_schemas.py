"""Decoded values against Spark types, the registry's settings, and what is imported when."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import uuid
from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_eos import from_confluent, from_json_value
from spark_eos.errors import OptionError, SchemaError
from spark_eos.options import ClientSettings
from spark_eos.spark.fit import COMPLAINT, check_supported, fit, structs

UTC = dt.timezone.utc
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ID = uuid.UUID(int=7)
A = StructType([StructField("a", IntegerType())])


@pytest.mark.parametrize(
    ("value", "kind", "fitted"),
    [
        (None, IntegerType(), None),
        (5, DoubleType(), 5),
        (5, DecimalType(10, 2), 5),
        (ID, StringType(), str(ID)),
        (NOON, TimestampType(), NOON),
        (NOON, TimestampNTZType(), NOON),
        (dt.timedelta(seconds=1), DayTimeIntervalType(), dt.timedelta(seconds=1)),
        ({"a": 1, "b": 2}, A, {"a": 1}),
        ({}, A, {"a": None}),
        ([{"a": 1}, None], ArrayType(A), [{"a": 1}, None]),
        ({"k": [1]}, MapType(StringType(), ArrayType(LongType())), [("k", [1])]),
    ],
)
def test_a_value_that_fits(value, kind, fitted):
    assert fit(value, kind) == fitted


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, IntegerType()),
        (1.0, LongType()),
        (True, IntegerType()),
        (1, BooleanType()),
        (1, StringType()),
        (b"x", StringType()),
        ("x", BinaryType()),
        (1.5, DecimalType(10, 2)),
        (Decimal("1.5"), DoubleType()),
        (5, TimestampType()),
        (dt.date(2026, 3, 1), TimestampType()),
        (NOON, DateType()),
        ("ab", ArrayType(StringType())),
        ({"a": 1}, ArrayType(A)),
        ([("a", 1)], A),
        (7, A),
    ],
)
def test_a_value_that_does_not_fit_is_not_converted(value, kind):
    with pytest.raises(TypeError, match="which is no"):
        fit(value, kind)


def test_rows_that_arrow_refuses_are_corrupt_and_the_others_are_not():
    fields = StructType([StructField("n", IntegerType()), StructField("d", DecimalType(4, 2))])
    rows = [
        ({"n": 1, "d": Decimal("1.5")}, None),
        ({"n": 2**40}, None),
        ({"d": Decimal("1.234")}, None),
        ({"n": "1"}, None),
        (None, "x" * 1000),
        (None, None),
    ]
    good, large, exact, typed, known, null = structs(rows, fields, "bad").to_pylist()
    assert good == {"n": 1, "d": Decimal("1.50"), "bad": None}
    assert large == {"n": None, "d": None, "bad": "Value 1099511627776 too large to fit in C integer type"}
    assert "data loss" in exact["bad"]
    assert typed["bad"] == "n is of type str, which is no int"
    assert known["bad"] == "x" * COMPLAINT
    assert null is None


def test_a_record_can_not_fill_the_corrupt_record_itself():
    assert structs([({"a": 1, "bad": "oh"}, None)], A, "bad").to_pylist() == [{"a": 1, "bad": None}]


def test_no_rows():
    assert structs([], A, "bad").to_pylist() == []


@pytest.mark.parametrize("kind", [VariantType(), CalendarIntervalType()])
def test_types_that_nothing_is_decoded_into_are_refused_wherever_they_stand(kind):
    for nested in (kind, ArrayType(kind), MapType(StringType(), kind), StructType([StructField("x", kind)])):
        with pytest.raises(SchemaError, match="can't be decoded into"):
            check_supported(StructType([StructField("a", nested)]))


# --- What a user gets wrong ---


@pytest.mark.parametrize("name", ["_corrupt_record", "_Corrupt_Record"])
def test_the_schema_must_leave_the_corrupt_records_name_free(name):
    schema = StructType([StructField(name, StringType())])
    with pytest.raises(SchemaError, match="Give another name as corrupt_record"):
        from_json_value("value", schema)
    with pytest.raises(SchemaError, match="Give another name as corrupt_record"):
        from_confluent("value", schema, {"url": "http://127.0.0.1:9"})


def test_another_format_is_refused_and_protobuf_needs_its_message():
    registry = {"url": "http://127.0.0.1:9"}
    with pytest.raises(OptionError, match=r"'thrift' is not known. What to do: Use one of: avro, protobuf, json"):
        from_confluent("value", A, registry, "thrift")
    with pytest.raises(OptionError, match="protoc"):
        from_confluent("value", A, registry, "protobuf")
    with pytest.raises(OptionError, match="protoc"):
        from_confluent("value", A, registry, "avro", message=object)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "url is required"),
        ({"url": "http://127.0.0.1:9", "basic.auth": "me:geheim"}, "Unrecognized properties: basic.auth"),
        ({"url": "http://127.0.0.1:9", "basic.auth.user.info": "geheim"}, "must be in the form of"),
        ({"url": "http://127.0.0.1:9", "max.retries": "geheim"}, "max.retries must be a number"),
        ({"url": "me:geheim@registry/"}, "settings url (ValueError)"),
        ({"url": "http://127.0.0.1:9,me:geheim@registry/"}, "settings url (ValueError)"),
        ({"url": "http://127.0.0.1:9", "proxy": "gopher://me:geheim@proxy"}, "settings proxy, url (ValueError)"),
        ({"url": "http://127.0.0.1:9", "ssl.ca.location": "/no/such/geheim"}, "FileNotFoundError"),
    ],
)
def test_settings_that_the_client_does_not_take_are_refused_without_their_values(settings, said):
    with pytest.raises(OptionError) as caught:
        from_confluent("value", A, settings)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_settings_show_their_names_only_also_in_another_process():
    settings = pickle.loads(pickle.dumps(ClientSettings({"url": "http://me:geheim@registry"})))
    assert repr(settings) == "ClientSettings(url)"


# --- The extra ---

WITHOUT_EXTRA = """
import sys
sys.modules["httpx2"] = sys.modules["httpx"] = sys.modules["fastavro"] = None
from pyspark.sql.types import StructType
from spark_eos import from_confluent
from spark_eos.errors import UsageError
try:
    from_confluent("value", StructType(), {"url": "http://127.0.0.1:9"})
except UsageError as error:
    print(error)
"""

IMPORTED = """
import sys, spark_eos
print([name for name in sys.modules if name.split(".")[0] in ("httpx2", "authlib", "fastavro", "jsonschema", "google")])
"""


def output_of(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_without_the_extra_the_error_says_what_to_install():
    said = output_of(WITHOUT_EXTRA)
    assert "pip install spark-eos[schema-registry]" in said


def test_the_package_does_not_import_what_comes_with_the_extra():
    assert output_of(IMPORTED) == "[]"
