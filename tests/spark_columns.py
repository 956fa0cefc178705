"""A DataFrame of one column, and what becomes of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession


def column_of(spark: SparkSession, values: list[Any], kind: str = "binary") -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], f"value {kind}")


def rows(df: DataFrame, decoded: Column) -> list[Row | None]:
    return [row.found for row in df.coalesce(1).select(decoded.alias("found")).collect()]
