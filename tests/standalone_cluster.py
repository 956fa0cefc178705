"""A standalone master and its workers on loopback, as pyspark's own classes run them, and what runs on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import group_leash
import psutil
import pyspark
from spark_pipe import wait_for

from spark_eos.testing.ports import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
BACKEND = "CoarseGrainedExecutorBackend"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for what a process on a `group_leash` has left, it or its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class StandaloneCluster:
    """A master and workers of one core each. Use it in a `with` statement.

    Args:
        folder: for logs, and the workers' folders.
        workers: how many.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._started: list[subprocess.Popen[bytes]] = []
        self.url = f"spark://127.0.0.1:{free_ports(1)[0]}"

    def __enter__(self) -> StandaloneCluster:
        try:
            self._start("master", "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2], "--webui-port", "0")
            for number in range(self._workers):
                name = f"worker-{number}"
                places = ["--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self._folder / name)]
                self._start(name, *places, "--cores", "1", "--memory", "1g", self.url)
            log = self._folder / "master.log"
            wait_for(lambda: log.read_text(encoding="utf-8").count("Registering worker") == self._workers, 120)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in reversed(self._started):
            process.terminate()
            process.wait(60)
            end_group(process)

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors, each a child of its worker."""
        found = []
        for process in self._started:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                        if any(word.endswith(BACKEND) for word in child.cmdline()):
                            found.append(child)
        return found

    def _start(self, name: str, *arguments: str) -> None:
        """`sbin/start-master.sh` and `start-worker.sh`, which are not in the wheel, call the same class."""
        kind = "master.Master" if name == "master" else "worker.Worker"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        (self._folder / "conf").mkdir(exist_ok=True)
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    [sys.executable, group_leash.__file__, str(os.getpid()), *command],
                    cwd=self._folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _environment(self) -> dict[str, str]:
        """Of the daemons, and so of executors: nothing of this process's Python but its folder on the path."""
        return {
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "PATH": os.pathsep.join([f"{sys.base_prefix}/bin", os.environ["PATH"]]),
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(self._folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
