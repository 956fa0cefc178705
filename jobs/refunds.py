"""Settlements to refunds: what is written for each settlement, as DataFrame expressions only.

No Python runs per row, so executors need nothing of this folder. The rules, in the order they are looked at; the
first that is broken makes the event a dead letter, with that rule as its reason:

    empty value              the value is null or has no bytes
    not UTF-8                the value is not UTF-8 text
    not JSON                 the text is not one JSON value (doubled names in an object are refused too)
    not an object            it is JSON, but no object
    bad settlement_id        missing, or not a string with something in it
    bad merchant             the same
    bad sequence             missing, or not an integer from 0 that fits 64 bits
    bad amount_paise         missing, or not an integer from 1
    bad refund_paise         missing, or not an integer from 0
    bad reason               missing, or not a string with something in it
    bad at                   missing, or not a UTC time such as 2026-01-01T09:30:00Z
    refund above amount      refund_paise is larger than amount_paise
    key is not the merchant  order is kept per key, so the key has to be the merchant

A good settlement with `refund_paise` above 0 becomes a refund and its audit row, one after the other, in the same
partition of the DataFrame (there is no shuffle), so in the same transaction. One with 0 becomes nothing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_eos import source_position

ACTOR = "refunds-job"
UTC_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z\z"
HEADERS = "array<struct<key:string,value:binary>>"
TEXT_FIELDS = ("settlement_id", "merchant", "reason", "at")
NUMBER_FIELDS = ("sequence", "amount_paise", "refund_paise")


def output_rows(settlements: DataFrame, refunds: str, audit: str, dead_letter: str) -> DataFrame:
    """Every row to write for these settlements.

    Args:
        settlements: rows of a Kafka source: key, value, topic, partition, offset, optional headers.
        refunds, audit, dead_letter: names of the output topics.

    Returns:
        key, value, topic, headers, source: one dead letter, or a refund and its audit row, or nothing per event.
    """
    parsed = _parse(settlements).withColumn("broken", _broken_rule())
    wanted = (
        F.when(F.col("broken").isNotNull(), F.array(_dead_letter(dead_letter, "headers" in parsed.columns)))
        .when(F.col("refund_paise") > 0, F.array(_refund(refunds), _audit(audit)))
        .otherwise(F.array())
    )
    return parsed.select(F.explode(wanted).alias("row"), source_position()).select(
        "row.key", "row.value", "row.topic", "row.headers", "source"
    )


def refund_id(settlement_id: Column) -> Column:
    """Made from the settlement alone, so a replay makes the same one."""
    return F.concat(F.lit("RFD-"), F.substring(F.sha2(settlement_id, 256), 1, 16))


def _parse(settlements: DataFrame) -> DataFrame:
    """The event's fields as columns, null where missing or of another type.

    Spark's JSON parsers stop after the first value and ignore what follows it (`{"a":1} junk` is "good"). So the
    text is parsed as the first of two array elements, the second a checksum that can't be there by chance.
    """
    text = F.col("value").cast("string")
    checksum = F.crc32(F.col("value"))
    framed = settlements.withColumn(
        "json", F.try_parse_json(F.concat(F.lit("["), text, F.lit(","), checksum, F.lit("]")))
    )
    event = framed.withColumn(
        "json",
        F.when(F.try_variant_get("json", "$[1]", "bigint") == checksum, F.try_variant_get("json", "$[0]", "variant")),
    )
    return event.select(
        "*",
        *(_field(f, "STRING", "string") for f in TEXT_FIELDS),
        *(_field(f, "BIGINT", "bigint") for f in NUMBER_FIELDS),
    )


def _field(name: str, kind: str, cast: str) -> Column:
    """A field of exactly this type: `variant_get` by itself would turn "250000" and 2.5e5 into numbers."""
    found = F.try_variant_get("json", f"$.{name}", "variant")
    return F.when(F.schema_of_variant(found) == kind, F.try_variant_get(found, "$", cast)).alias(name)


def _broken_rule() -> Column:
    """Name of the first rule that the event breaks; null for a good settlement."""
    value = F.col("value")
    rules: list[tuple[str, Column]] = [
        ("empty value", value.isNull() | (F.octet_length(value) == 0)),
        ("not UTF-8", ~F.is_valid_utf8(value.cast("string"))),
        ("not JSON", F.col("json").isNull()),
        ("not an object", ~F.schema_of_variant("json").startswith("OBJECT")),
        ("bad settlement_id", _absent("settlement_id")),
        ("bad merchant", _absent("merchant")),
        ("bad sequence", _below("sequence", 0)),
        ("bad amount_paise", _below("amount_paise", 1)),
        ("bad refund_paise", _below("refund_paise", 0)),
        ("bad reason", _absent("reason")),
        ("bad at", ~F.coalesce(F.col("at").rlike(UTC_TIME), F.lit(False))),
        ("refund above amount", F.col("refund_paise") > F.col("amount_paise")),
        ("key is not the merchant", ~F.col("key").eqNullSafe(F.col("merchant").cast("binary"))),
    ]
    return F.coalesce(*(F.when(broken, F.lit(name)) for name, broken in rules))


def _absent(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("")) == ""


def _below(name: str, least: int) -> Column:
    return F.coalesce(F.col(name), F.lit(-1)) < least


def _refund(topic: str) -> Column:
    return _row(topic, F.col("refund_paise").alias("amount_paise"), F.col("at"))


def _audit(topic: str) -> Column:
    return _row(topic, F.lit(ACTOR).alias("actor"), F.col("reason"))


def _row(topic: str, *own: Column) -> Column:
    """A row of the refunds or the audit topic: what both carry, then its own fields."""
    both = [refund_id(F.col("settlement_id")).alias("refund_id")]
    both += [F.col(name) for name in ("settlement_id", "merchant", "sequence")]
    return F.struct(
        F.col("key"),
        F.to_json(F.struct(*both, *own)).cast("binary").alias("value"),
        F.lit(topic).alias("topic"),
        F.lit(None).cast(HEADERS).alias("headers"),
    )


def _dead_letter(topic: str, has_headers: bool) -> Column:
    """The event as it came, with headers that say why it is here and where it came from."""
    about = F.array(
        _header("reason", F.col("broken")),
        _header("source.topic", F.col("topic")),
        _header("source.partition", F.col("partition").cast("string")),
        _header("source.offset", F.col("offset").cast("string")),
    ).cast(HEADERS)
    came_with = F.coalesce(F.col("headers").cast(HEADERS), F.array().cast(HEADERS))
    return F.struct(
        F.col("key"),
        F.col("value"),
        F.lit(topic).alias("topic"),
        (F.concat(came_with, about) if has_headers else about).alias("headers"),
    )


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
