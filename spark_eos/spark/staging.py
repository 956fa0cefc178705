"""A lane's rows, computed to the end before its transaction opens.

A transaction that is open holds read_committed readers of its partitions back, and the broker aborts it after
transaction.timeout.ms: so it should be open while rows are sent, and not while Spark computes them. `run_lane` asks
for the first rows before it fences; here they come only when the last ones have been computed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO

import pyarrow as pa
from pyarrow import ipc

from spark_eos.errors import StagingError

IN_MEMORY_BYTES = 8 << 20
"""A lane of at most this size is kept in memory: most lanes of a small batch never touch the disk."""

COMPRESSION = "lz4" if pa.Codec.is_available("lz4") else None
"""Costs no time (measured: less than the bytes it saves), and is in every wheel of pyarrow."""


def staged(batches: Iterator[pa.RecordBatch], in_memory_bytes: int = IN_MEMORY_BYTES) -> Iterator[pa.RecordBatch]:
    """The same batches in the same order; the first one when the last one has been computed.

    Memory: `in_memory_bytes` and one batch. What is more goes to a file in Spark's local folder, which has no name
    there: it is gone with the iterator, and with the process, however that ends.

    Args:
        batches: all of one schema.
        in_memory_bytes: size of a lane that needs no file.

    Raises:
        StagingError: the file can't be made or written.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > in_memory_bytes:
            break
    else:
        yield from _each_once(held)
        return
    folder = local_folder()
    with _nameless_file(folder) as file:
        _write(file, chain(_each_once(held), batches), batch.schema, folder)
        yield from ipc.open_stream(file, options=ipc.IpcReadOptions(use_threads=False))


def local_folder() -> str:
    """One of the folders that Spark has for such files; without Spark, the system's for temporary ones."""
    folders = [each for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    # As Spark spreads its own files: over the disks that it was given.
    return folders[os.getpid() % len(folders)] if folders else tempfile.gettempdir()


def _each_once(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch, forgotten as soon as it is handed on."""
    held.reverse()
    while held:
        yield held.pop()


def _nameless_file(folder: str) -> IO[bytes]:
    with _disk(folder):
        return tempfile.TemporaryFile(dir=folder)


def _write(file: IO[bytes], batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: str) -> None:
    with _disk(folder):
        options = ipc.IpcWriteOptions(compression=COMPRESSION, use_threads=False)
        writer = ipc.new_stream(file, schema, options=options)
    for batch in batches:
        # Not around the loop: an error in computing the rows is none of the disk's.
        with _disk(folder):
            writer.write_batch(batch)
    with _disk(folder):
        writer.close()
        file.seek(0)


@contextmanager
def _disk(folder: str) -> Iterator[None]:
    """What the disk refuses, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise StagingError(
            f"the lane's rows can't be staged in {folder}: {error.strerror or error}",
            do="Make room there, or set spark.local.dir (on YARN and Kubernetes: the cluster's own setting) to a disk "
            "with room for all lanes that an executor writes at once. Or leave out stage.rows, and set "
            "kafka.transaction.timeout.ms to longer than a lane takes. Nothing of the lane was written to Kafka.",
        ) from error
