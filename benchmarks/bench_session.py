"""A Spark session that reads Kafka both ways, with Spark's own connector and with spark-eos."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builtin_kafka import builtin_kafka_jars
from pyspark.sql import SparkSession


@contextmanager
def session() -> Iterator[SparkSession]:
    """local[2] with 2 GiB for the driver.

    Workers run this Python without the pyspark.zip that Spark puts on their path: from it, each Python process that a
    query starts would compile pyspark anew, for more than a second. The installed one is compiled already.
    """
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
        os.environ["PYSPARK_PYTHON"] = str(_worker_python(Path(folder)))
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master("local[2]").appName("spark-eos bench")
        builder = builder.config("spark.jars", builtin_kafka_jars(Path(tempfile.gettempdir()) / "spark-eos-bench-jars"))
        builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.ui.showConsoleProgress", "false"
        )
        builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()


def _worker_python(folder: Path) -> Path:
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script
