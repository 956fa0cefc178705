"""Mistakes that show in the way a query is used, as edits of the connector, each with the combination that notices it.

As in `mutant_edits.py`, an edit's old text must stand in its file exactly once. Where two checks hold the same thing,
a mutant is without both.
"""

from __future__ import annotations

from mutant_edits import Edit, Mutant
from ways_axes import AQE, CODE, CORES, GROUP, NOTHING, OLDER, QUERY, Combination
from ways_faults import AFTER, BEFORE, BETWEEN, SEALED
from ways_life import FOREACH, FORMAT, WRITE

TRIALS: dict[str, Combination] = {
    "half-batch": Combination("stateless", FOREACH, NOTHING, BETWEEN),
    "aqe-foreachBatch": Combination("repartition-key", FOREACH, CORES, BETWEEN, rows=12),
    "aqe-format": Combination("repartition-key", FORMAT, AQE, BETWEEN, rows=12),
    "code": Combination("stateless", FOREACH, CODE, BETWEEN),
    "files-cores": Combination("files", FOREACH, CORES, BETWEEN, rows=12),
    "files-older": Combination("files", FORMAT, OLDER, SEALED, early=True),
    "adopted": Combination("stateless", FOREACH, OLDER, SEALED, early=True, positions=True, second_way=True),
    "second-write": Combination("sink-twice", FOREACH, NOTHING, AFTER),
    "swallowed": Combination("swallow", FOREACH, NOTHING, BEFORE),
    "swallowed-half": Combination("swallow", FOREACH, NOTHING, BETWEEN),
    "other-group": Combination("stateless", FORMAT, GROUP, BETWEEN),
    "shared-group": Combination("stateless", WRITE, GROUP, BEFORE),
    "other-query": Combination("stateless", FOREACH, QUERY, BETWEEN),
}
"""Telling combinations, by name."""

HEALTHY_REFUSALS: dict[str, tuple[str, ...]] = {
    "half-batch": (),
    "aqe-foreachBatch": ("UnsupportedError",),
    "aqe-format": ("ReplayDiffers",),
    "code": ("ReplayDiffers",),
    "files-cores": ("SplitChanged",),
    "files-older": ("CheckpointBehind",),
    "adopted": ("CheckpointBehind",),
    "second-write": ("SecondWrite", "LedgerLost"),
    "swallowed": ("BatchAbandoned",),
    "swallowed-half": ("BatchAbandoned",),
    "other-group": ("LedgerLost",),
    "shared-group": ("OtherQuery", "OtherQuery"),
    "other-query": ("OtherQuery",),
}
"""What the connector as it is refuses in them, in order."""

CONTEXT, DECIDE, DRIVER, REPLAY = "spark/context.py", "protocol/decide.py", "protocol/driver.py", "protocol/replay.py"
POSITIONS, LOGGED, WRITER = "protocol/positions.py", "spark/logged.py", "spark/writer.py"

_NO_COMPARISON = Edit(
    REPLAY,
    "    lanes = committed.keys() | (found.keys() if sealed else set())\n",
    "    lanes: set[int] = set()\n",
)
_NO_SPLITS = Edit(
    DECIDE,
    "return {row.lanes for row in self._half_of_this if differ(row.lanes, self.lanes)}",
    "return set()",
)
_NO_GAPS = Edit(DECIDE, "and self.sealed < self.batch and not self.policy.may_pass", "and False")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "aqe-unseen",
        "adaptive execution in a stream is not seen",
        ("aqe-foreachBatch",),
        (Edit(CONTEXT, 'if "AdaptiveSparkPlan" in final else ()', "if not final else ()"),),
    ),
    Mutant(
        "split-unchecked",
        "a half-committed batch in other lanes is taken for the same: neither their number nor their rows are asked",
        ("files-cores",),
        (_NO_SPLITS, _NO_COMPARISON),
    ),
    Mutant(
        "second-write-sealed",
        "a second write in a batch is taken for the first one's repetition: sealed, skipped",
        ("second-write",),
        (Edit(DECIDE, "return self.is_sealed and not self.again and query", "return self.is_sealed and query"),),
    ),
    Mutant(
        "write-by-group",
        "a batch write is known by its group, and not by its write.id",
        ("shared-group",),
        (
            Edit(
                WRITER,
                'run = new_run(write, f"write {write}" if self._options.group_id else "write")',
                'run = new_run(self._options.group_id or write, "write")',
            ),
        ),
    ),
    Mutant(
        "digest-of-counts",
        "a lane's digest is of row counts and positions, not of what rows hold",
        ("code",),
        (
            Edit(POSITIONS, "        self._order.update(digests)\n", ""),
            Edit(POSITIONS, 'sum(memoryview(digests).cast("Q"))', "rows"),
        ),
    ),
    Mutant(
        "files-by-number",
        "of a batch of files only their list's number is its content",
        ("files-older",),
        (Edit(LOGGED, "return bool(offsets_in_log(end)) or of_delta", "return True"),),
    ),
    Mutant(
        "passed-over",
        "a batch that was never written may be passed over",
        ("swallowed",),
        (_NO_GAPS,),
    ),
    Mutant(
        "abandoned",
        "a half-committed batch may be left behind",
        ("swallowed-half",),
        (
            Edit(DECIDE, "return min(left, default=None)", "return None"),
            _NO_GAPS,
        ),
    ),
    Mutant(
        "offsets-back",
        "the seal of an adopted checkpoint moves committed offsets back",
        ("adopted",),
        (Edit(DRIVER, "return offsets_at_least(offsets, self._ledger.offsets(offsets))", "return offsets"),),
    ),
)

HEALTHY = Mutant("healthy", "none: the connector as it is", tuple(TRIALS), ())
"""To compare with: it must come out as HEALTHY_REFUSALS has it."""
