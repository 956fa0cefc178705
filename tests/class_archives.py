"""Archives of the classes that brokers and Spark's drivers load: with them a JVM of the tests starts in half the time.

    python class_archives.py FOLDER

makes them, by a job on a broker (JEP 350, dynamic class data sharing). A JVM that one does not fit does without.
Two runs of `pipe_job.py` took 13.5 s and 16.4 s with them, 20.7 s and 32.7 s without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from spark_eos.testing import EmbeddedKafka

JOB = Path(__file__).with_name("pipe_job.py")


def environment(folder: Path, option: str = "SharedArchiveFile") -> dict[str, str]:
    """What tells JVMs to use the archives of a folder, if it is there; or to make them, with `ArchiveClassesAtExit`."""
    if not folder.exists():
        return {}
    names = {"KAFKA_OPTS": "kafka.jsa", "SPARK_SUBMIT_OPTS": "spark.jsa"}
    return {variable: f"-XX:{option}={folder / name} -Xlog:disable" for variable, name in names.items()}


def make(folder: Path) -> None:
    """Let the JVMs of one job write them as they end."""
    folder.mkdir(exist_ok=True)
    os.environ |= environment(folder, "ArchiveClassesAtExit")
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as scratch:
        for topic in ("in", "out"):
            kafka.create_topic(topic)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("in", b"value")
        producer.flush()
        del producer
        job = [sys.executable, str(JOB), kafka.bootstrap_servers, "in", "out", f"{scratch}/checkpoint", "query"]
        subprocess.run(job, cwd=scratch, check=True, capture_output=True)  # until the JVM has ended, too
        kafka.stop_broker(0)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
