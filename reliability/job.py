"""The job of the proof, as a process of its own: each row of a topic to two topics, in one transaction.

    python job.py JSON

JSON is a `JobPlan`. Ends by itself once the input is processed; a continuous one ends on SIGTERM. Exits with 1 and the
error on stderr if the query fails.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from fault_points import DriverFaults, LaneFault, WorkerFaults
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_eos import BatchReport, KafkaSink, source_position

LOOK_EVERY_S = 0.5
LEFT_OVER_S = 5


@dataclass(frozen=True)
class JobPlan:
    """What the job does, and what is done to it.

    Args:
        bootstrap: brokers.
        source, outputs: topics.
        query_id: also the consumer group.
        folder: for the checkpoint, the marks of faults that happened, and the reports of batches.
        rows_per_batch: rows read for a micro-batch.
        master: Spark's. `local[2,10]` tries a task ten times.
        way: foreachBatch or format.
        continuous: run until SIGTERM.
        sink: options of the sink, beside servers and query id.
        conf: of Spark.
        lane_faults: batch to the faults of its lanes.
        driver_faults: batch to the point at which the driver is killed.
    """

    bootstrap: str
    source: str
    outputs: tuple[str, ...]
    query_id: str
    folder: str
    rows_per_batch: int
    master: str = "local[2,10]"
    way: str = "foreachBatch"
    continuous: bool = False
    sink: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    lane_faults: dict[int, list[LaneFault]] = field(default_factory=dict)
    driver_faults: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        given = json.loads(text)
        faults = {int(batch): [LaneFault(**each) for each in found] for batch, found in given["lane_faults"].items()}
        points = {int(batch): point for batch, point in given["driver_faults"].items()}
        return cls(**given | {"lane_faults": faults, "driver_faults": points})

    @property
    def kafka(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    @property
    def in_workers(self) -> WorkerFaults:
        return WorkerFaults(self.lane_faults, f"{self.folder}/marks")

    @property
    def in_driver(self) -> DriverFaults:
        return DriverFaults(self.driver_faults, f"{self.folder}/marks")


def session(plan: JobPlan) -> SparkSession:
    builder = SparkSession.builder.master(plan.master)
    # A lane is several batches of rows, so that some are sent while others are still to come.
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "5"}
    # When a batch was done is read from Spark's commit log.
    conf |= {"spark.sql.streaming.minBatchesToRetain": "100000"} | plan.conf
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(spark: SparkSession, plan: JobPlan) -> DataFrame:
    """Each row of the source once for each output, in the source's partitions."""
    options = plan.kafka | {
        "subscribe": plan.source,
        "startingOffsets": "earliest",
        # Both, so that a batch is what was fed for one, each partition's part of it.
        "minOffsetsPerTrigger": str(plan.rows_per_batch),
        "maxOffsetsPerTrigger": str(plan.rows_per_batch),
        # Shares of partitions that an outage has left uneven are rounded down, and the last rows are less than a batch.
        "maxTriggerDelay": f"{LEFT_OVER_S}s",
    }
    read = spark.readStream.format("kafka-eos").options(**options).load()
    topics = F.explode(F.array(*map(F.lit, plan.outputs)))
    return read.select("key", "value", topics.alias("topic"), source_position())


def start(spark: SparkSession, plan: JobPlan) -> StreamingQuery:
    options = plan.kafka | {"query.id": plan.query_id} | plan.sink
    writer = rows(spark, plan).writeStream.option("checkpointLocation", f"{plan.folder}/checkpoint")
    if plan.way == "format":
        from faulty_format import faulty_format  # noqa: PLC0415 (Spark's data source API, needed here only)

        spark.dataSource.register(faulty_format(plan.in_workers))
        writer = writer.format("kafka-eos-faulty").options(**options)
    else:
        faults, reports = plan.in_driver, Reports(f"{plan.folder}/reports.jsonl")

        def on_batch(report: BatchReport) -> None:
            reports(report)
            faults.sealed(report.batch)

        sink = KafkaSink(options, before_step=plan.in_workers, on_batch=on_batch)
        writer = writer.foreachBatch(faults.around(sink))
    trigger: dict[str, Any] = {"processingTime": "0 seconds"} if plan.continuous else {"availableNow": True}
    return writer.trigger(**trigger).start()


@dataclass(frozen=True)
class Reports:
    """Appends what each batch tells to a file, one JSON a line."""

    path: str

    def __call__(self, report: BatchReport) -> None:
        line = {"at": time.time(), "age": report.age} | report.fields()
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main(plan: JobPlan) -> None:
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    spark = session(plan)
    try:
        query = start(spark, plan)
        while not query.awaitTermination(LOOK_EVERY_S):
            if asked.is_set():
                query.stop()
    finally:
        spark.stop()


def workers_python(folder: Path) -> Path:
    """A script for PYSPARK_PYTHON: this Python, which finds the modules of the proof.

    As `spark_eos.testing.worker_python`, without the path that Spark gives to its workers: they start more quickly.
    """
    script = folder / "python"
    modules = shlex.quote(str(Path(__file__).parent))
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH={modules}\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script


def home(folder: Path) -> Path:
    """A SPARK_HOME, which a local cluster starts its executors from and writes their logs to: not into the package."""
    found = folder / "spark"
    found.mkdir(exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work" and not (found / entry.name).is_symlink():
            (found / entry.name).symlink_to(entry)
    return found


if __name__ == "__main__":
    job_plan = JobPlan.from_json(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = str(workers_python(Path(job_plan.folder)))
    if job_plan.master.startswith("local-cluster"):
        os.environ["SPARK_HOME"] = str(home(Path(job_plan.folder)))
    main(job_plan)
