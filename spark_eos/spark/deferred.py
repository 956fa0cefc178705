"""A lane's rows on their way to the driver, which writes them once it knows that they are nowhere else.

Needed after a kill in the middle of a batch only, by the format, which can't be asked for a second pass over the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import ipc

from spark_eos.errors import StagingError
from spark_eos.protocol.transaction import LaneReport
from spark_eos.spark.lanes import LaneJob, task_context
from spark_eos.spark.staging import COMPRESSION

MOST_BYTES = 1 << 30
"""A task's result must stay below 2 GiB."""


@dataclass(frozen=True)
class Deferred:
    """A lane that is to be written by the driver.

    Args:
        job: of its batch.
        lane, attempt: which.
        rows: an Arrow stream, with the sink's columns in lower case.
    """

    job: LaneJob
    lane: int
    attempt: int
    rows: bytes

    @classmethod
    def of(cls, job: LaneJob, lane: int, batches: Iterator[pa.RecordBatch]) -> Deferred:
        """A lane's rows, computed to the end.

        Raises:
            StagingError: they are too many to be handed on.
        """
        buffer, options = pa.BufferOutputStream(), ipc.IpcWriteOptions(compression=COMPRESSION)
        writer: ipc.RecordBatchStreamWriter | None = None
        for batch in batches:
            writer = writer or ipc.new_stream(buffer, batch.schema, options=options)
            writer.write_batch(batch)
            if buffer.tell() > MOST_BYTES:
                raise _too_many().at(job.run.query, job.batch, lane)
        if writer is not None:
            writer.close()
        return cls(job, lane, task_context().attemptNumber(), buffer.getvalue().to_pybytes())

    def write(self) -> LaneReport:
        """Write the lane; errors as of `run_lane`."""
        batches = iter(ipc.open_stream(self.rows)) if self.rows else iter(())
        return self.job.write_as(self.lane, self.attempt, batches)


def _too_many() -> StagingError:
    return StagingError(
        f"the batch is half-committed, and this lane has more than {MOST_BYTES >> 20} MiB for the driver, which has to "
        "write it: the format can't know otherwise that none of its rows is in a committed lane",
        do="Finish this batch with foreachBatch(KafkaSink(...)) on the same checkpoint and with the same query.id: its "
        "tasks write it. Then the format goes on.",
    )
