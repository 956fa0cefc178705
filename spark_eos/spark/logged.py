"""What Spark's offset log says of a micro-batch: the end offsets of its sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.protocol.positions import Offsets, offsets_in_log


@dataclass(frozen=True)
class LoggedBatch:
    """An entry of the offset log.

    Args:
        sources: one JSON for each source, as Spark wrote it; None where the log can't be reached.
        planned_at: when Spark fixed which rows are in the batch, seconds since 1970; a batch that is done again keeps
            it.
    """

    sources: Sequence[str] | None
    planned_at: float | None = None

    @property
    def content(self) -> str | None:
        """Digest of what the batch is made of: equal ends of equal batch ids are equal batches."""
        if self.sources is None:
            return None
        return hashlib.sha256("\n".join(self.sources).encode()).hexdigest()[:16]

    @property
    def offsets(self) -> Offsets:
        """The end offsets of the sources that are Kafka."""
        offsets: Offsets = {}
        for text in self.sources or ():
            offsets |= offsets_in_log(json.loads(text))
        return offsets


UNKNOWN = LoggedBatch(None)
