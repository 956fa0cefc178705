"""Installs Apache Kafka: its JARs, by the Ivy that ships in pyspark, into a cache folder.

Nothing but a JDK is needed. The cache is `$SPARK_EOS_CACHE`, by default `~/.cache/spark-eos`.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from spark_eos.errors import EmbeddedKafkaError

KAFKA_VERSION = os.environ.get("SPARK_EOS_KAFKA_VERSION", "4.2.0")
"""Not 4.3 or 4.4.0: those lose markers of committed transactions, see docs/SINK.md, "What Kafka must hold"."""
MIN_JAVA = 17
DOWNLOAD_TIMEOUT_S = 900

log = logging.getLogger("spark_eos.testing")

# kafka-tools alone, without its dependencies: they are the 50 JARs of Kafka Connect, which no tool used here needs.
# log4j-slf4j-impl, since Kafka's POM names no logging backend: without it the broker logs nothing.
IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="spark-eos" module="embedded-kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}" transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def cache_dir() -> Path:
    """The folder that everything downloaded lives in."""
    return Path(os.environ.get("SPARK_EOS_CACHE") or Path.home() / ".cache" / "spark-eos").expanduser()


@functools.cache
def java() -> str:
    """Path of a `java` that is new enough: the one of `JAVA_HOME`, else the one on the PATH.

    Raises:
        EmbeddedKafkaError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    place = f"JAVA_HOME ({home})" if home else "the PATH"
    do = f"install a JDK {MIN_JAVA} or newer, and point JAVA_HOME or the PATH to it."
    if path is None:
        raise EmbeddedKafkaError(f"no java was found in {place}", do=do)
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < MIN_JAVA:
        first = answer.strip().splitlines()[:1]
        raise EmbeddedKafkaError(f"{path} is no JDK {MIN_JAVA} or newer: it says {first}", do=do)
    return path


def kafka_jars() -> Path:
    """The folder with Kafka's JARs, downloaded at the first call (about 40 MB, half a minute).

    Several processes may call at once: one downloads, the others wait.

    Raises:
        EmbeddedKafkaError: the JARs could not be downloaded.
    """
    folder = cache_dir() / f"kafka-{KAFKA_VERSION}"
    if not folder.exists():
        with _locked(cache_dir() / "install.lock"):
            if not folder.exists():
                _download(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file closes, also when the process dies
        yield


def _download(folder: Path) -> None:
    log.info("downloading Apache Kafka %s to %s, once (about 40 MB)", KAFKA_VERSION, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as temp:
        definition = Path(temp, "ivy.xml")
        definition.write_text(IVY_FILE)
        jars = Path(temp, "jars")
        _run_ivy(definition, jars)
        jars.rename(folder)  # atomic: the folder is whole, or not there
    log.info("Apache Kafka %s is installed", KAFKA_VERSION)


def _run_ivy(definition: Path, jars: Path) -> None:
    home = cache_dir() / "ivy"
    command = [java(), f"-Divy.home={home}", "-jar", str(_ivy_jar())]
    command += ["-cache", str(home / "cache"), "-ivy", str(definition), "-confs", "default"]
    # snappy-java is packaged as a "bundle"
    command += ["-types", "jar", "bundle", "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        end, output = f"exit code {ran.returncode}", ran.stdout
    except subprocess.TimeoutExpired as error:
        end, output = f"stopped after {DOWNLOAD_TIMEOUT_S} s", _text(error.output)
    # Ivy also ends with 0 when it was told to fetch nothing, hence the look at the result.
    if end != "exit code 0" or not (jars / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        tail = "\n".join(output.splitlines()[-20:])
        raise EmbeddedKafkaError(
            f"Ivy could not download Apache Kafka {KAFKA_VERSION} ({end}). Its last lines:\n{tail}\n",
            do="check the network and try again. Behind a proxy, set JDK_JAVA_OPTIONS to "
            "'-Dhttps.proxyHost=... -Dhttps.proxyPort=...'. Without a network, copy the folder "
            f"{cache_dir()} from a machine that has it, or point SPARK_EOS_CACHE to such a copy.",
        )


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    found = [jar for folder in folders or [] for jar in sorted(Path(folder, "jars").glob("ivy-*.jar"))]
    if not found:
        raise EmbeddedKafkaError(
            "the Ivy JAR that pyspark ships with was not found in pyspark/jars",
            do="install pyspark from its wheel (pip install pyspark), not as a bare source tree.",
        )
    return found[-1]
