"""The JARs of Spark's own Kafka source and sink, for comparison only; spark-eos itself needs none.

Fetched one by one through the Ivy that ships with pyspark: one of the dependencies that the connector names can be
had as 4.0.0 only, so resolving them together fails. The mix works.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark

CONNECTORS = {"4.1": "4.1.3", "4.2": "4.2.0"}
"""By version of Spark: the newest that every index has."""

ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTORS[pyspark.__version__[:3]]),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def builtin_kafka_jars(cache: Path) -> str:
    """Paths for `spark.jars`, fetched into a folder unless they are there.

    Args:
        cache: a folder that is kept.

    Raises:
        RuntimeError: one can't be fetched; with the end of Ivy's output.
    """
    found = [_jar(cache, *artifact) for artifact in ARTIFACTS]
    return ",".join(str(jar) for jar in found)


def _jar(cache: Path, organisation: str, module: str, revision: str) -> Path:
    jar = cache / f"{module}-{revision}.jar"
    if not jar.exists():
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        command = ["java", "-jar", str(ivy), "-dependency", organisation, module, revision, "-notransitive"]
        command += ["-confs", "default", "-types", "jar", "-cache", str(cache / "ivy")]
        command += ["-retrieve", str(cache / "[artifact]-[revision].[ext]")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not jar.exists():
            raise RuntimeError(f"Ivy could not fetch {module} {revision}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return jar
