"""A cluster of two executors, which are processes of their own, and one is killed: `make test-large`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from spark_pipe import Pipe, wait_for
from tests_support import committed_values

pytestmark = pytest.mark.large

JOB = Path(__file__).parents[1] / "cluster_job.py"
ROWS = 300


@pytest.fixture
def start(kafka, topic, query_id, tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the job of `cluster_job.py`: its topics are those of `start.pipe`, its folder the test's."""
    pipe = Pipe(None, kafka.bootstrap_servers, query_id, topic(2, name="in"), topic(2, name="out"), tmp_path / "c")
    started: list[subprocess.Popen[str]] = []

    def job(way: str, **conf: str) -> subprocess.Popen[str]:
        places = [pipe.bootstrap, pipe.source, pipe.target, str(pipe.checkpoint), query_id, way, str(tmp_path)]
        given = " ".join(f"--conf {name}={value}" for name, value in conf.items())
        started.append(
            subprocess.Popen(
                [sys.executable, str(JOB), *places],
                env=os.environ | {"PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                cwd=tmp_path,
            )
        )
        return started[-1]

    job.pipe = pipe
    yield job
    for process in started:
        children = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        for each in children:
            each.kill()
        process.communicate(timeout=30)


def feed(pipe: Pipe) -> list[str]:
    """A large row each, in two partitions; the row `slow` is the last but one in partition 0."""
    producer = Producer({"bootstrap.servers": pipe.bootstrap})
    values = [f"{partition}-{row}" for partition in range(2) for row in range(ROWS)]
    for value in values:
        key = "slow" if value == f"0-{ROWS - 2}" else value
        producer.produce(pipe.source, value.ljust(2000), key, int(value[0]))
    assert producer.flush(30) == 0
    return sorted(values)


def found(pipe: Pipe) -> list[str]:
    return sorted(value.rstrip() for value in pipe.values())


def come_to_the_slow_row(process: subprocess.Popen[str], folder: Path) -> int:
    """The pid of the Python worker that waits there."""
    wait_for(lambda: (folder / "reached").exists() or process.poll() is not None, 120)
    assert process.poll() is None, process.stdout.read()
    return int((folder / "reached").read_text())


@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_an_executor_killed_in_the_middle_of_a_lane_costs_no_row_and_doubles_none(start, tmp_path, way):
    values = feed(start.pipe)
    process = start(way)
    worker = come_to_the_slow_row(process, tmp_path)

    def half_sent() -> bool:
        return any(
            value.startswith(b"0-")
            for value in committed_values(start.pipe.bootstrap, start.pipe.target, "read_uncommitted")
        )

    wait_for(half_sent, 60)
    (executor,) = [
        each for each in psutil.Process(worker).parents() if "CoarseGrainedExecutorBackend" in str(each.cmdline())
    ]
    executor.send_signal(signal.SIGKILL)
    told, _ = process.communicate(timeout=200)
    assert process.returncode == 0, told
    assert found(start.pipe) == values
