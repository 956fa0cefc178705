"""What tests of spark-eos, and of queries that use it, run against."""

from spark_eos.testing.embedded import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
