"""One comparison of a reconciliation: rows that are due against rows that are there, by id and by content."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KINDS = {
    "pending": "due, and the query that makes it has not come so far",
    "lost": "due, and not there",
    "doubled": "there more often than due",
    "wrong": "there, with another content than due",
    "unknown": "there, and nothing calls for it",
}
"""What can differ."""
EXAMPLES = 3


@dataclass(frozen=True)
class Leg:
    """What was found of one kind of rows."""

    name: str
    due: int
    found: int
    paise_due: int | None
    paise_found: int | None
    differences: dict[str, int]
    """How many rows (ids, for "wrong") of each of KINDS."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some ids of each kind that there is."""

    def is_fine(self, allow_pending: bool) -> bool:
        """Whether nothing differs; what is pending may be allowed to."""
        return not any(n for kind, n in self.differences.items() if not (allow_pending and kind == "pending"))


def compare(name: str, due: DataFrame, found: DataFrame) -> Leg:
    """Compare rows by id.

    Args:
        name: what they are.
        due: id, content (anything that can be compared), paise (null where no money is meant), pending (whether the row
            may not be there yet). An id may be due more than once.
        found: id, content, paise.
    """
    sides = due.select("id", "content", "paise", "pending", F.lit(1).alias("is_due"), F.lit(0).alias("is_found"))
    sides = sides.unionAll(
        found.select("id", "content", "paise", F.lit(False), F.lit(0).alias("is_due"), F.lit(1).alias("is_found"))
    )
    by_id = _by_id(sides).persist()
    try:
        counts = (F.sum(name).alias(name) for name in ("due", "found", "paise_due", "paise_found", *KINDS))
        (row,) = by_id.agg(*counts).collect()
        totals = row.asDict()
        differences = {kind: totals[kind] or 0 for kind in KINDS}
        examples = {kind: _examples(by_id, kind) for kind, count in differences.items() if count}
    finally:
        by_id.unpersist()
    money = totals["paise_due"], totals["paise_found"]
    return Leg(name, totals["due"] or 0, totals["found"] or 0, *money, differences, examples)


def _by_id(sides: DataFrame) -> DataFrame:
    due, found = F.col("is_due") == 1, F.col("is_found") == 1
    ids = sides.groupBy("id").agg(
        F.sum("is_due").alias("due"),
        F.sum("is_found").alias("found"),
        F.sum(F.when(due, F.col("paise"))).alias("paise_due"),
        F.sum(F.when(found, F.col("paise"))).alias("paise_found"),
        F.collect_set(F.when(due, F.col("content"))).alias("contents_due"),
        F.collect_set(F.when(found, F.col("content"))).alias("contents_found"),
        F.bool_or("pending").alias("may_wait"),
    )
    return ids.select(
        "id", "due", "found", "paise_due", "paise_found", *(rule.alias(k) for k, rule in _rules().items())
    )


def _rules() -> dict[str, Column]:
    is_due, missing = F.col("due") > 0, F.greatest(F.col("due") - F.col("found"), F.lit(0))
    differs = F.size(F.array_except("contents_found", "contents_due")) > 0
    return {
        "pending": F.when(F.col("may_wait"), missing).otherwise(0),
        "lost": F.when(F.col("may_wait"), 0).otherwise(missing),
        "doubled": F.when(is_due, F.greatest(F.col("found") - F.col("due"), F.lit(0))).otherwise(0),
        "wrong": F.when(is_due & differs, 1).otherwise(0),
        "unknown": F.when(is_due, 0).otherwise(F.col("found")),
    }


def _examples(by_id: DataFrame, kind: str) -> list[str]:
    return [row.id for row in by_id.where(F.col(kind) > 0).select("id").sort("id").limit(EXAMPLES).collect()]
