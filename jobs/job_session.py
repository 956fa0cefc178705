"""A job's Spark session, and where it logs to."""

from __future__ import annotations

import logging
import os
import sys

from delta import configure_spark_with_delta_pip
from job_settings import SparkSettings
from pyspark.sql import SparkSession

log = logging.getLogger("job")

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(settings: SparkSettings, name: str) -> SparkSession:
    """Spark, with Delta Lake where the job needs it. spark-submit knows the master and the packages by itself."""
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    if settings.delta:
        builder = with_delta(builder)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit
        builder = builder.master(settings.master)
        # The workers need the packages of this Python, and Spark would take the first python3 of the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable if settings.master.startswith("local") else "python3")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    """A session with Delta Lake, whose JARs Spark downloads once; spark-submit has to be told of them."""
    return configure_spark_with_delta_pip(builder.config(map=DELTA))


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log.setLevel(logging.INFO)
