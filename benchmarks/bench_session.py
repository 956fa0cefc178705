"""A Spark session that reads Kafka both ways, with Spark's own connector and with spark-eos."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builtin_kafka import builtin_kafka_jars
from pyspark.sql import SparkSession

from spark_eos.testing import worker_python


@contextmanager
def session() -> Iterator[SparkSession]:
    """local[2] with 2 GiB for the driver."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
        os.environ["PYSPARK_PYTHON"] = str(worker_python(Path(folder)))
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
