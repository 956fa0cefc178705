"""The independent checker: whether every input record came out exactly once, from the topics alone.

It uses plain Kafka clients and no code of the connector, so that the two have no mistake in common: librdkafka, and
if asked for Kafka's own in Java. What it checks stands in check.py, by number.
"""

from spark_eos.checker.check import check
from spark_eos.checker.expected import ExpectedRow
from spark_eos.checker.findings import PROPERTIES, Findings
from spark_eos.checker.java_reader import JavaReader
from spark_eos.checker.reader import CannotCheck
from spark_eos.checker.topic_log import Entry, TopicsMissing
from spark_eos.checker.watch import Watch

__all__ = [
    "PROPERTIES",
    "CannotCheck",
    "Entry",
    "ExpectedRow",
    "Findings",
    "JavaReader",
    "TopicsMissing",
    "Watch",
    "check",
]
