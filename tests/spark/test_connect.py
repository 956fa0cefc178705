"""Both ways to write in Spark Connect sessions, on a real Connect server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from quick_spark import QUICK
from spark_pipe import WAYS, wait_for

from spark_eos.testing.ports import free_ports

TESTS = Path(__file__).parents[1]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[str]:
    """The address of a Connect server, which is a process of its own."""
    import pyspark

    folder: Path = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    settings = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1"}
    settings |= {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g"}
    settings |= QUICK
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2,4]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = (folder / "log").open("w")
    # A Connect server has classic sessions inside; what this process is set to must not reach it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_SUBMIT")}
    process = subprocess.Popen(
        [*command, "--class", SERVER, "spark-internal"],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
    )

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(answers)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        log.close()


@pytest.fixture(params=WAYS)
def connect(request, server, kafka, topic, query_id, tmp_path):
    """Runs the job of `connect_job.py` to its end, and returns what it said; feeds and reads as `Pipe` does."""
    from spark_pipe import Pipe

    pipe = Pipe(None, kafka.bootstrap_servers, query_id, topic(2, name="in"), topic(2, name="out"), tmp_path / "c")

    def run(**options: str) -> str:
        places = [server, pipe.bootstrap, pipe.source, pipe.target, str(pipe.checkpoint), query_id, request.param]
        given = [f"{name}={value}" for name, value in options.items()]
        job = [sys.executable, str(TESTS / "connect_job.py"), *places, *given]
        done = subprocess.run(job, capture_output=True, text=True, timeout=200, check=False)
        assert (done.returncode == 0) == ("error" not in done.stdout), done.stderr[-3000:]
        return done.stdout

    pipe.run = run
    return pipe


def test_rows_are_written_once_over_restarts_and_a_seal_that_spark_did_not_note(connect):
    connect.feed("ab", 0)
    connect.feed("cd", 1)
    assert connect.run() == ""
    assert sorted(connect.values()) == list("abcd")
    connect.forget_commit(connect.batches()[-1])
    connect.feed("e", 0)
    assert connect.run() == ""
    assert sorted(connect.values()) == list("abcde")


def test_what_is_wrong_is_said_by_name(connect):
    connect.feed("a")
    assert "TopicMissing" in connect.run(topic="no-such-topic")
    assert connect.values() == []
    assert connect.run() == ""
    assert connect.values() == ["a"]


def test_an_older_copy_of_the_checkpoint_is_refused(connect, tmp_path):
    """By foreachBatch nothing is known of the batch but its rows."""
    connect.feed("a")
    assert connect.run() == ""
    backup = tmp_path / "backup"
    shutil.copytree(connect.checkpoint, backup)
    connect.feed("b")
    assert connect.run() == ""
    newest = connect.checkpoint.rename(tmp_path / "newest")
    backup.rename(connect.checkpoint)
    connect.feed("c")
    assert re.search("CheckpointBehind|ReplayDiffers", connect.run())
    assert sorted(connect.values()) == ["a", "b"]
    shutil.rmtree(connect.checkpoint)
    newest.rename(connect.checkpoint)
    assert connect.run() == ""
    assert sorted(connect.values()) == ["a", "b", "c"]
