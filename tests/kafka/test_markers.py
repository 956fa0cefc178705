"""`wait_for_markers`: what was committed can be read when it returns, and an open transaction is named."""

from __future__ import annotations

import pytest
from kafka_log import Log

from spark_eos.errors import SparkEosError
from spark_eos.testing import wait_for_markers


def test_what_was_committed_can_be_read(log: Log) -> None:
    with log.transaction("a", "b") as producer:
        with pytest.raises(SparkEosError, match=f"topic {log.topic}: a transaction is still open after 0.1 s"):
            wait_for_markers(log.bootstrap, log.topic, timeout_s=0.1)
        producer.commit_transaction(10)
    wait_for_markers(log.bootstrap, log.topic)
    assert log.bounds().end == 3
