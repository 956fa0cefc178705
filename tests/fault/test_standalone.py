"""`./spark-submit.sh`: what it does alone, and on a standalone master with two workers, where an executor is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import group_leash
import psutil
import pytest
from check_refunds import check
from demo_runs import Checkpoint
from generate_settlements import generate, send
from spark_pipe import wait_for
from standalone_cluster import StandaloneCluster, end_group
from warehouse_files import fill, ids_in

from spark_eos.checker.topic_log import Topics

ROOT = Path(__file__).parents[2]
SUBMIT = str(ROOT / "spark-submit.sh")
JOB = "jobs/settlements_to_refunds.py"
WAREHOUSE = "jobs/refunds_to_warehouse.py"
SETTLEMENTS = 24_000
PER_BATCH = 2_000
# One core each; what makes so short a life shorter.
SMALL = ["--driver-memory", "700m", "--executor-memory", "512m", "--executor-cores", "1"]
QUICK = ["spark.ui.enabled=false", "spark.sql.codegen.wholeStage=false"]
QUICK += [f"spark.{side}.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1" for side in ("driver", "executor")]


@contextmanager
def submitted(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The script as a process on a leash; its output goes to submit.log."""
    command = [sys.executable, group_leash.__file__, str(os.getpid()), SUBMIT, *arguments]
    with (folder / "submit.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_group(process)
        process.wait(30)


class Refunds:
    """The job's topics, settings and checkpoint."""

    def __init__(self, bootstrap: str, topic, query_id: str, folder: Path) -> None:
        self.bootstrap, self.query_id, self.folder = bootstrap, query_id, folder
        self.names = {"source": topic(2, name="settlements"), "refunds": topic(2, name="refunds")}
        self.names |= {"audit": topic(2, name="audit"), "dead_letter": topic(1, name="dead")}
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.written = Topics(bootstrap, (self.names["refunds"],))

    def arguments(self, trigger: str) -> list[str]:
        """Of the job. Each record is a request of its own, so that a batch takes long enough to be hit."""
        toml = {"bootstrap_servers": self.bootstrap, "query_id": self.query_id, "max_offsets_per_trigger": PER_BATCH}
        toml |= {"checkpoint": str(self.checkpoint.folder), "trigger": trigger}
        tables = {"topics": self.names, "kafka": {"batch.num.messages": "1"}}
        lines = [f"{key} = {json.dumps(value)}" for key, value in toml.items()]
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items())]
        config = self.folder / "job.toml"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [JOB, "--config", str(config)]

    def settle(self, seed: int, count: int) -> None:
        send({"bootstrap.servers": self.bootstrap}, self.names["source"], generate(seed, count, 40))


@pytest.fixture
def refunds(kafka, topic, query_id, tmp_path) -> Refunds:
    return Refunds(kafka.bootstrap_servers, topic, query_id, tmp_path)


def log_of(folder: Path) -> str:
    return (folder / "submit.log").read_text(encoding="utf-8", errors="replace")


def conf(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--conf", setting)]


# Alone


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [SUBMIT, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_help() -> None:
    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("./spark-submit.sh [--master URL]")
    assert run().returncode == 2


def test_without_the_archive_it_says_what_to_make(tmp_path) -> None:
    (tmp_path / "spark-submit.sh").symlink_to(SUBMIT)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    for given in (["--master", "spark://host:7077"], ["--conf", "spark.master=yarn"], ["--master=k8s://host"]):
        command = [str(tmp_path / "spark-submit.sh"), "--verbose", *given, JOB]
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "run 'make archive' first" in refused.stderr


def test_in_one_process(tmp_path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import sys, os\n"
        "from pyspark import SparkConf, SparkContext\n"
        "SparkContext._ensure_initialized()\n"
        "names = 'spark.master', 'spark.speculation', 'spark.archives'\n"
        "print([SparkConf().get(name) for name in names], os.environ['PYSPARK_PYTHON'] == sys.executable)\n"
        "print(sys.argv[1:])\n"
    )
    done = run("--master", "local[2,4]", *conf(QUICK), str(job), "--master", "spark://of.the.job")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['local[2,4]', 'false', None] True\n['--master', 'spark://of.the.job']\n"


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_to_the_job_and_its_exit_code_comes_back(asked, tmp_path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [SUBMIT, *conf(QUICK), str(job)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as script:
        assert script.stdout.readline() == b"up\n"
        if asked == signal.SIGINT:
            os.killpg(script.pid, asked)  # as Ctrl-C does it
        else:
            script.send_signal(asked)
        assert script.wait(60) == 3


@pytest.mark.large
def test_a_job_that_is_asked_to_stop_ends_its_batch(refunds, tmp_path) -> None:
    refunds.settle(1, 2_000)
    options = ["--master", "local[2,4]", *SMALL[:2], *conf(QUICK)]
    with submitted([*options, *refunds.arguments("0 seconds")], tmp_path) as process:
        wait_for(lambda: "batch 1:" in log_of(tmp_path) or process.poll() is not None, 120)
        assert process.poll() is None, log_of(tmp_path)
        (script,) = psutil.Process(process.pid).children()
        script.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log_of(tmp_path)
    assert "ended" in log_of(tmp_path)
    assert "Traceback" not in log_of(tmp_path)
    assert refunds.checkpoint.open_batch is None
    figures = check(refunds.bootstrap, **refunds.names)
    assert figures.aborted_rows == 0


# On a cluster


@pytest.fixture(scope="module")
def archive() -> None:
    """As `make test-large` has made it; else it is made here."""
    subprocess.run(["make", "--silent", "archive"], cwd=ROOT, check=True, timeout=280)


def clients_of(executors: list[psutil.Process]) -> dict[int, set[str]]:
    """By executor: the files of the Kafka client that its Python workers run."""
    found: dict[int, set[str]] = {}
    for executor in executors:
        try:
            maps = [each.path for worker in executor.children(recursive=True) for each in worker.memory_maps()]
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if files := {path for path in maps if "librdkafka" in path}:
            found[executor.pid] = files
    return found


def in_the_middle_of_a_batch(refunds: Refunds, process: subprocess.Popen[bytes]) -> int:
    """Waits until both lanes of a batch have some of their rows in the log, and not half of them; its id.

    By their keys, settlements of one partition become refunds of one partition: what a lane has written shows by that.
    """
    batch, begun = refunds.checkpoint.last_planned, None

    def caught() -> bool:
        nonlocal batch, begun
        assert process.poll() is None, log_of(refunds.folder)
        now = refunds.written.ends()
        if refunds.checkpoint.last_planned > batch:
            batch, begun = refunds.checkpoint.last_planned, now
        if begun is None:
            return False
        grown = [now[place] - begun[place] for place in now]
        return min(grown) > 20 and max(grown) < PER_BATCH / 8

    wait_for(caught, 100)
    return batch


@pytest.mark.large
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("archive")
def test_an_executor_killed_in_the_middle_of_a_batch_costs_no_refund_and_doubles_none(refunds, tmp_path) -> None:
    refunds.settle(2, SETTLEMENTS)
    options = [*SMALL, *conf(QUICK)]
    with (
        StandaloneCluster(tmp_path) as cluster,
        submitted(["--master", cluster.url, *options, *refunds.arguments("available-now")], tmp_path) as process,
    ):
        wait_for(lambda: len(clients_of(cluster.executors())) == 2 or process.poll() is not None, 150)
        clients, victim = clients_of(cluster.executors()), cluster.executors()[0]
        batch = in_the_middle_of_a_batch(refunds, process)
        victim.kill()
        assert refunds.checkpoint.last_done < batch
        deadline = time.monotonic() + 200
        while process.poll() is None:
            assert time.monotonic() < deadline, log_of(tmp_path)
            clients |= clients_of(cluster.executors())
            time.sleep(0.2)
        assert process.returncode == 0, log_of(tmp_path)
    assert victim.pid in clients
    assert len(clients) == 3, "the executor that took its place did none of the work"
    for file in set().union(*clients.values()):
        assert file.startswith(str(tmp_path)), file
        assert "/.venv/lib/confluent_kafka.libs/" in file
    assert "ExecutorLostFailure" in log_of(tmp_path)
    figures = check(refunds.bootstrap, **refunds.names, group=refunds.query_id)
    assert figures.faults == {}
    assert figures.settlements == SETTLEMENTS
    assert figures.refunds_found > SETTLEMENTS / 3
    assert figures.aborted_rows > 0, "it was not killed while it wrote"


@pytest.mark.large
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("archive")
def test_the_warehouse_job_has_delta_lake_on_the_cluster(kafka, topic, query_id, tmp_path) -> None:
    refunds, table = topic(2, name="refunds"), tmp_path / "table"
    expected = fill(kafka.bootstrap_servers, refunds, 2, 500)
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--query-id", query_id, "--topic", refunds]
    arguments += ["--table", str(table), "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    arguments += ["--max-offsets-per-trigger", "400"]
    with (
        StandaloneCluster(tmp_path) as cluster,
        submitted(["--master", cluster.url, *SMALL, *conf(QUICK), WAREHOUSE, *arguments], tmp_path) as process,
    ):
        wait_for(lambda: len(cluster.executors()) == 2 or process.poll() is not None, 150)
        assert process.wait(250) == 0, log_of(tmp_path)
    assert ids_in(table) == expected
