"""Staged rows: the same rows later, in bounded memory, with no file that outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_eos.errors import StagingError
from spark_eos.spark.staging import staged

SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("source", pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])),
    ]
)

PROGRAM = """
import os, signal, sys
import pyarrow as pa
from spark_eos.spark.staging import staged
from pathlib import Path
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
count = int(sys.argv[1])
batches = (pa.RecordBatch.from_pydict({"value": [os.urandom(1000) for _ in range(1000)]}) for _ in range(count))
"""
"""A process with `count` batches of 1 MB each, and its peak resident memory in MiB."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def batch(first: int, rows: int = 100) -> pa.RecordBatch:
    """Rows with nulls and nested columns; about 12 KB."""
    offsets = range(first, first + rows)
    columns = {
        "value": [None if i % 7 == 0 else str(i).encode() * 20 for i in offsets],
        "headers": [None if i % 3 else [{"key": "k", "value": None}, {"key": "l", "value": b"v"}] for i in offsets],
        "source": [None if i % 5 == 0 else {"topic": "t", "partition": 1, "offset": i} for i in offsets],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def opened_in(folder: Path, process: str = "self") -> list[str]:
    """The files that a process has open in a folder, whether they have a name there or not."""
    links = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            links.append(os.readlink(each))
        except FileNotFoundError:  # the listing's own
            continue
    return [link for link in links if link.startswith(str(folder))]


def run(folder: Path, program: str, count: int) -> subprocess.Popen[str]:
    environment = os.environ | {"SPARK_LOCAL_DIRS": str(folder)}
    command = [sys.executable, "-c", PROGRAM + program, str(count)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("limit", [0, 50_000, 10**9], ids=["file", "file after some", "memory"])
def test_the_same_batches_in_the_same_order_once_the_last_is_computed(folder, limit):
    batches = [batch(first) for first in range(0, 1500, 100)] + [batch(0, rows=0), batch(7, rows=1)]
    computed = []
    stream = staged((computed.append(each) or each for each in batches), limit)
    first = next(stream)
    assert len(computed) == len(batches)
    assert bool(opened_in(folder)) == (limit < 10**9)
    assert list(folder.iterdir()) == []
    assert [first, *stream] == batches
    assert opened_in(folder) == []


def test_a_lane_without_rows_stays_one():
    assert list(staged(iter([]))) == []


def test_a_stream_that_is_dropped_half_way_leaves_no_file_open(folder):
    stream = staged((batch(first) for first in range(0, 1000, 100)), 0)
    next(stream)
    assert opened_in(folder)
    del stream
    assert opened_in(folder) == []


def test_an_error_in_computing_the_rows_is_not_taken_for_one_of_the_disk(folder):
    def failing():
        yield batch(0)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        list(staged(failing(), 0))
    assert opened_in(folder) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    with pytest.raises(StagingError, match=r"gone: No such file.*spark\.local\.dir"):
        list(staged(iter([batch(0)]), 0))


def test_a_full_disk_is_told_with_what_to_do(folder):
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))\nlist(staged(batches))"
    job = run(folder, limited, 40)
    _, says = job.communicate(timeout=60)
    assert job.returncode == 1
    assert f"StagingError: the lane's rows can't be staged in {folder}: File too large. What to do: Make room" in says


def test_a_lane_of_500_mb_needs_little_memory(folder):
    job = run(folder, "before = peak()\nprint(sum(each.num_rows for each in staged(batches)), peak() - before)", 500)
    out, says = job.communicate(timeout=120)
    assert job.returncode == 0, says
    rows, more_mib = out.split()
    assert int(rows) == 500_000
    assert float(more_mib) < 80


def test_a_killed_process_leaves_nothing_behind(folder):
    job = run(folder, "stream = staged(batches); next(stream); print('staged', flush=True); signal.pause()", 20)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "staged\n"
        assert opened_in(folder, str(job.pid))
        assert list(folder.iterdir()) == []
    finally:
        job.send_signal(signal.SIGKILL)
        job.communicate()
    assert list(folder.iterdir()) == []
