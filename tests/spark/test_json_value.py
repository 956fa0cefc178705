"""JSON as structs: what is parsed, and what is corrupt."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from spark_columns import column_of, rows

from spark_eos import from_json_value
from spark_eos.errors import SchemaError

CORRUPT = "_corrupt_record"
FIELDS = "account string, cents bigint, at timestamp, day date, rate decimal(6,3), lines array<struct<n int>>"
GOOD_JSON = (
    '{"account": "a-1", "cents": 1250, "at": "2026-03-01T12:00:00.5Z", "day": "2026-03-01", "rate": 0.125,'
    ' "lines": [{"n": 1}], "unknown": {}}'
)


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_json_is_parsed_null_stays_null_and_the_rest_keeps_its_text(spark: SparkSession, kind: str) -> None:
    texts = [GOOD_JSON, None, '{"account": "a-1"', "", "no json", '{"account": "a-2", "cents": "12"}']
    values = [text.encode() if text is not None and kind == "binary" else text for text in texts]
    good, null, *bad = rows(column_of(spark, values, kind), from_json_value("value", FIELDS))
    noon, day = dt.datetime(2026, 3, 1, 12, 0, 0, 500000), dt.date(2026, 3, 1)
    assert tuple(good) == ("a-1", 1250, noon, day, Decimal("0.125"), [Row(n=1)], None)
    assert null is None
    assert [row[CORRUPT] for row in bad] == texts[2:]
    assert [row.cents for row in bad] == [None] * 4


def test_what_spark_takes_for_one_document_is_not_corrupt(spark: SparkSession) -> None:
    texts = ["{}", ' {"a": 1}\n', '{"a": NaN}', "{'a': 1}", '{"a": {"_spark_eos_end": 7}}', '{"_spark_eos_end": "x"}']
    found = rows(column_of(spark, texts, "string"), from_json_value("value", "a string"))
    assert [row[CORRUPT] for row in found] == [None] * len(texts)


BEHIND = [" x", '{"a": 2}', "}", "]", "] x", ', {"a": 2}', ', {"a": 2}] x', " null", " // what?", "\u0000"]


def test_text_behind_a_document_is_corrupt_though_spark_ignores_it(spark: SparkSession) -> None:
    texts = ['{"a": 1}' + behind for behind in BEHIND]
    df = column_of(spark, texts, "string")
    assert set(rows(df, F.from_json("value", "a int"))) == {Row(a=1)}, "Spark minds it now: leave it to Spark"
    assert rows(df, from_json_value("value", "a int", "bad")) == [Row(a=None, bad=text) for text in texts]


def test_json_that_is_no_object_is_corrupt(spark: SparkSession) -> None:
    texts = ["null", "5", '"a"', "[]", '[{"a": 1}]', '[{"a": 1}, {"a": 2}]']
    found = rows(column_of(spark, texts, "string"), from_json_value("value", "a int", "bad"))
    assert found == [Row(a=None, bad=text) for text in texts]


@pytest.mark.parametrize("schema", ["account strin", "a int,,", "array<int>"])
def test_a_schema_that_can_not_be_read_is_refused(spark: SparkSession, schema: str) -> None:
    assert spark
    with pytest.raises(SchemaError, match=r"can't be read: .*What to do: Write it as columns"):
        from_json_value("value", schema)


def test_fields_are_nullable_whatever_the_schema_says(spark: SparkSession) -> None:
    df = column_of(spark, ["x", None], "string").select(from_json_value("value", "a int not null").alias("found"))
    assert df.select("found.a").schema.simpleString() == "struct<a:int>"
    assert df.schema["found"].dataType["a"].nullable
    assert df.where("found.a is null").count() == 2
