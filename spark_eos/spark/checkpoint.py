"""A streaming query's checkpoint, as a folder: where Spark gives the sink nothing else to ask."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from spark_eos.errors import UnsupportedError
from spark_eos.spark.logged import LoggedBatch, SourceEnds, initial_offsets, listings

LOG_VERSIONS = {"v1", "v2"}


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
        """A batch's entry in the offset log.

        Raises:
            UnsupportedError: the log has a format that this version does not know.
        """
        metadata, ends = self._entry(batch)
        before = self._entry(batch - 1)[1] if batch and self._found(f"offsets/{batch - 1}") else {}
        found = listings(before, ends, self._text)
        planned_at, initial = metadata["batchTimestampMs"] / 1000, {} if batch else initial_offsets(ends, self._text)
        return LoggedBatch(ends, planned_at, before, found, self._found("state"), initial)

    def _entry(self, batch: int) -> tuple[dict[str, Any], SourceEnds]:
        """An entry's metadata, and its sources: a line each, in version 2 with the source's name before it."""
        version, metadata, *lines = self._read(f"offsets/{batch}").splitlines()
        if version not in LOG_VERSIONS:
            known = " and ".join(sorted(LOG_VERSIONS))
            raise UnsupportedError(
                f"the offset log of {self._location} has version {version}, and this spark-eos reads {known}",
                do="Use a version of spark-eos that was made for this version of Spark.",
            )
        numbered = enumerate(lines) if version == "v1" else (line.split(":", 1) for line in lines)
        return json.loads(metadata), {str(name): end for name, end in numbered if end != "-"}

    def _found(self, name: str) -> bool:
        return bool(self._files.get_file_info(f"{self._path}/{name}").type != pa.fs.FileType.NotFound)

    def _text(self, name: str) -> str | None:
        return self._read(name) if self._found(name) else None

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
