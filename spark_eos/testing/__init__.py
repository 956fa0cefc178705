"""What tests of spark-eos, and of queries that use it, run against."""

from spark_eos.testing.embedded import EmbeddedKafka
from spark_eos.testing.log_dump import log_of
from spark_eos.testing.markers import wait_for_markers
from spark_eos.testing.simulated.kafka import SimulatedKafka, SimulatedRecord
from spark_eos.testing.simulated.sink import SimulatedSink
from spark_eos.testing.worker_python import worker_python

__all__ = [
    "EmbeddedKafka",
    "SimulatedKafka",
    "SimulatedRecord",
    "SimulatedSink",
    "log_of",
    "wait_for_markers",
    "worker_python",
]
