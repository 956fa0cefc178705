"""A streaming query's checkpoint, as a folder: where Spark gives the sink nothing else to ask."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from spark_eos.errors import UnsupportedError
from spark_eos.spark.logged import UNKNOWN, LoggedBatch

LOG_VERSION = "v1"


class Checkpoint:
    """The folder of option checkpointLocation, read with pyarrow: a local path, or a URI that pyarrow knows.

    Args:
        location: as the user gave it.

    Raises:
        UnsupportedError: no folder, or none that can be read from here.
    """

    def __init__(self, location: str | None) -> None:
        if not location:
            raise self._unreadable("option checkpointLocation is not set on the query")
        self._location = location
        try:
            self._files, self._path = _opened(location)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._unreadable(f"checkpoint {location} can't be read from here: {error}") from error

    def query_id(self) -> str:
        """The id that Spark keeps in the checkpoint: the same in all runs on it."""
        return str(json.loads(self._read("metadata"))["id"])

    def newest(self) -> int:
        """The batch that was logged last: when a batch starts, Spark has just done so."""
        try:
            found = self._files.get_file_info(pa.fs.FileSelector(f"{self._path}/offsets"))
        except OSError as error:
            raise self._unreadable(f"checkpoint {self._location} can't be read from here: {error}") from error
        batches = [int(each.base_name) for each in found if each.base_name.isdigit()]
        if not batches:
            raise self._unreadable(f"checkpoint {self._location} has no batch in offsets/")
        return max(batches)

    def logged(self, batch: int) -> LoggedBatch:
        """A batch's entry in the offset log."""
        version, *rest = self._read(f"offsets/{batch}").splitlines()
        if version != LOG_VERSION:
            return UNKNOWN
        planned_at = json.loads(rest[0])["batchTimestampMs"] / 1000
        return LoggedBatch([each for each in rest[1:] if each != "-"], planned_at)

    def _read(self, name: str) -> str:
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                return str(stream.read().decode())
        except OSError as error:
            raise self._unreadable(f"checkpoint {self._location} can't be read from here: {error}") from error

    @staticmethod
    def _unreadable(why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{why}, and the writer format needs it to know the batch",
            do="Set option checkpointLocation to a path or a URI that the driver's Python can read, or write with "
            "foreachBatch(KafkaSink(...)), which asks Spark instead.",
        )


def _opened(location: str) -> tuple[pa.fs.FileSystem, str]:
    local = re.sub(r"^file:/*", "/", location)
    if re.match(r"^[a-z][a-z0-9+.-]+:", local):
        files, path = pa.fs.FileSystem.from_uri(location)
        return files, path.rstrip("/")
    return pa.fs.LocalFileSystem(), str(Path(local).absolute())
