"""The processes that have Spark, one for each master, and a Connect server: started when they are first needed."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark
from ways_life import Life

from spark_eos.testing import leash
from spark_eos.testing.ports import free_ports

HERE = Path(__file__).parent
CONNECT_MASTER = "connect"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 120.0
LOOK_EVERY_S = 0.1

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Compiling costs more than it saves in lives that are so short.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Of every application."""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


class Workers:
    """Runs lives where they belong, between `open` and `close`.

    Args:
        folder: for logs and scripts.
        package: a folder with another package `spark_eos` (a mutant's), or None for this one's.
        delta: whether sessions know Delta tables.
    """

    def __init__(self, folder: Path, package: Path | None = None, *, delta: bool = False) -> None:
        self._folder, self._conf = folder, CONF | (DELTA if delta else {})
        self._paths = [str(path) for path in (package, HERE, HERE.parent) if path]
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._server: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Make what processes need; they are started later."""
        self._python = self._worker_python()

    def close(self) -> None:
        """End them."""
        for process in self._running.values():
            with suppress(OSError):
                process.stdin.close()
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
            process.stdout.close()
        if self._server:
            self._server.terminate()
            self._server.wait(30)

    def run(self, master: str, life: Life) -> str | None:
        """The error of a life on a master, or on the Connect server where that is CONNECT_MASTER; None at its end."""
        if master not in self._running:
            self._running[master] = self._start(master)
            self._answer(master)
        process = self._running[master]
        process.stdin.write(life.to_json() + "\n")
        process.stdin.flush()
        return self._answer(master)

    def _answer(self, master: str) -> str | None:
        line = self._running[master].stdout.readline()
        if not line:
            raise ChildProcessError(f"the process of {master} has ended; its log is {self._log(master)}")
        error: str | None = json.loads(line)["error"]
        return error

    def _start(self, master: str) -> subprocess.Popen[str]:
        url = self._connect() if master == CONNECT_MASTER else master
        given = [f"{name}={value}" for name, value in self._conf.items()]
        command = [sys.executable, str(HERE / "ways_worker.py"), url, *given]
        with self._log(master).open("w") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
                cwd=self._folder,
            )

    def _connect(self) -> str:
        """Start the server; its address."""
        (port,) = free_ports(1)
        settings = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1"}
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
        for name, value in (settings | self._conf).items():
            command += ["--conf", f"{name}={value}"]
        command = [sys.executable, leash.__file__, str(os.getpid()), "", *command, "--class", SERVER, "spark-internal"]
        with self._log("server").open("wb") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment(), cwd=self._folder)
        deadline = time.monotonic() + START_S
        while not self._listens(port):
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise ChildProcessError(f"the Connect server does not answer; its log is {self._log('server')}")
            time.sleep(LOOK_EVERY_S)
        return f"sc://127.0.0.1:{port}"

    @staticmethod
    def _listens(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def _log(self, name: str) -> Path:
        return self._folder / f"{name.replace('[', '-').replace(']', '')}.log"

    def _environment(self) -> Mapping[str, str]:
        python = {"PYSPARK_PYTHON": str(self._python), "PYTHONPATH": os.pathsep.join(self._paths)}
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_SUBMIT")}
        return ours | python | {"SPARK_LOCAL_IP": "127.0.0.1"}

    def _worker_python(self) -> Path:
        """As `spark_eos.testing.worker_python`, with this package and these modules on the path of Spark's workers."""
        script = self._folder / "python"
        path = shlex.quote(os.pathsep.join(self._paths))
        script.write_text(f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {shlex.quote(sys.executable)} "$@"\n')
        script.chmod(0o755)
        return script
