"""The format `kafka-eos`, with faults in its tasks: what `before_step` is to `KafkaSink`."""

from __future__ import annotations

from dataclasses import replace

from fault_points import WorkerFaults
from pyspark.sql.types import StructType

from spark_eos.spark.source import KafkaEosDataSource
from spark_eos.spark.writer import KafkaEosStreamWriter


def faulty_format(faults: WorkerFaults) -> type[KafkaEosDataSource]:
    """The data source `kafka-eos-faulty`, to be registered."""

    class FaultyFormat(KafkaEosDataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-eos-faulty"

        def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaEosStreamWriter:
            writer = super().streamWriter(schema, overwrite)
            opened = writer._opened
            if opened is not None:
                writer._opened = replace(opened, job=replace(opened.job, before_step=faults))
            return writer

    return FaultyFormat
