"""One comparison of a reconciliation: rows that are due against rows that are there.

They are counted by id, content and amount. Of an id that is due with contents A and B,

    A, B, or B, A    found: nothing differs;
    A, A             found: B is lost, and A doubled;
    A, C             found: C is wrong, and stands for the B that is missing, so nothing is lost;
    A, B, C          found: C is wrong, and stands for nothing, so a row of this id is doubled.

So due + doubled + unknown = found + lost + pending, always.
"""

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
NO_ID = "(no id)"
"""Stands for a null id among examples."""
MONEY = {"paise_due": "due", "paise_found": "found", "paise_pending": "waits"}
"""Sums of money, by the count of the rows that are meant."""
SUMS = ("due", "found", *MONEY)


@dataclass(frozen=True)
class Leg:
    """What was found of one kind of rows."""

    name: str
    due: int
    found: int
    paise_due: int | None
    paise_found: int | None
    paise_pending: int | None
    """Of what is due: what may still come, and is not there."""
    differences: dict[str, int]
    """How many rows (ids, for "wrong") of each of KINDS."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some ids of each kind that there is."""

    def is_fine(self, allow_pending: bool) -> bool:
        """Whether nothing differs, the sums of money neither; what is pending may be allowed to."""
        if any(n for kind, n in self.differences.items() if not (allow_pending and kind == "pending")):
            return False
        return (self.paise_due or 0) - (self.paise_pending or 0) == (self.paise_found or 0)


def compare(name: str, due: DataFrame, found: DataFrame) -> Leg:
    """Compare rows by id, content and amount.

    Args:
        name: what they are.
        due: id, content (anything that can be grouped by), paise (null where no money is meant), pending (whether the
            row may not be there yet). An id may be due more than once, with the same content or others. A null is a
            value as any other, of an id too.
        found: id, content, paise.
    """
    sides = due.select("id", "content", "paise", "pending", F.lit(True).alias("is_due"))
    sides = sides.unionAll(found.select("id", "content", "paise", F.lit(False), F.lit(False)))
    by_id = _by_id(_by_content(sides)).persist()
    try:
        counts = (F.sum(name).alias(name) for name in (*SUMS, *KINDS))
        (row,) = by_id.agg(*counts).collect()
        totals = row.asDict()
        differences = {kind: totals[kind] or 0 for kind in KINDS}
        examples = {kind: _examples(by_id, kind) for kind, count in differences.items() if count}
    finally:
        by_id.unpersist()
    money = {each: totals[each] for each in MONEY}
    return Leg(name, totals["due"] or 0, totals["found"] or 0, **money, differences=differences, examples=examples)


def _by_content(sides: DataFrame) -> DataFrame:
    """For each id, content and amount, how many rows are due and found, and what is made of the difference."""
    due, found = F.col("due"), F.col("found")
    rows = sides.groupBy("id", "content", "paise").agg(
        F.count_if("is_due").alias("due"),
        F.count_if(~F.col("is_due")).alias("found"),
        F.count_if("pending").alias("may_wait"),
    )
    missing, over = _above_0(due - found), _above_0(found - due)
    # Rows of one content can't be told apart: those that are there are the ones that had to be.
    rows = rows.withColumn("waits", F.least(missing, F.col("may_wait")))
    return rows.select(
        "id",
        "due",
        "found",
        "waits",
        (missing - F.col("waits")).alias("gone"),
        F.when(due > 0, over).otherwise(0).alias("again"),
        F.when(due > 0, 0).otherwise(found).alias("other"),
        *(F.when(F.col(n) > 0, F.col("paise") * F.col(n)).alias(sum_) for sum_, n in MONEY.items()),
    )


def _by_id(contents: DataFrame) -> DataFrame:
    parts = (*SUMS, "waits", "gone", "again", "other")
    ids = contents.groupBy("id").agg(*(F.sum(part).alias(part) for part in parts))
    return ids.select("id", *SUMS, *(rule.alias(kind) for kind, rule in _rules().items()))


def _rules() -> dict[str, Column]:
    """Rows with contents that are not due for their id stand for those that are missing: for the lost ones first."""
    is_due, other = F.col("due") > 0, F.col("other")
    for_waits = _above_0(other - F.col("gone"))
    return {
        "pending": _above_0(F.col("waits") - for_waits),
        "lost": _above_0(F.col("gone") - other),
        "doubled": F.when(is_due, F.col("again") + _above_0(for_waits - F.col("waits"))).otherwise(0),
        "wrong": F.when(is_due & (other > 0), 1).otherwise(0),
        "unknown": F.when(is_due, 0).otherwise(F.col("found")),
    }


def _above_0(count: Column) -> Column:
    return F.greatest(count, F.lit(0))


def _examples(by_id: DataFrame, kind: str) -> list[str]:
    rows = by_id.where(F.col(kind) > 0).select("id").sort("id").limit(EXAMPLES).collect()
    return [NO_ID if row.id is None else row.id for row in rows]
