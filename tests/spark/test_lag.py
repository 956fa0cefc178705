"""The lag of a query, as Kafka's own `kafka-consumer-groups` tells it while the query runs."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.compute as pc
import pytest
from spark_pipe import wait_for

from spark_eos.testing.broker import run_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def described(pipe) -> dict[tuple[str, int], tuple[str, str, str]]:
    """Topic and partition to current offset, log end offset and lag, of the query's group."""
    printed = run_tool(TOOL, ["--bootstrap-server", pipe.bootstrap, "--describe", "--group", pipe.query_id])
    cells = [line.split() for line in printed.splitlines() if line.startswith(pipe.query_id)]
    return {(row[1], int(row[2])): (row[3], row[4], row[5]) for row in cells}


@pytest.mark.parametrize("positions", [True, False])
def test_the_lag_is_right_while_a_batch_runs_and_after_it(either, tmp_path, positions):
    gate = str(tmp_path / "gate")

    def held(batches):
        for batch in batches:
            while pc.any(pc.equal(batch.column("value"), b"wait")).as_py() and not Path(gate).exists():
                time.sleep(0.05)
            yield batch

    rows = either.rows()
    rows = rows.mapInArrow(held, rows.schema)
    rows = rows if positions else rows.drop("source")
    either.feed("abc", 0)
    either.feed("d", 1)
    writer = rows.writeStream.option("checkpointLocation", str(either.checkpoint))
    writer = (
        writer.format("kafka-eos").options(**either.given())
        if either.way == "format"
        else writer.foreachBatch(either.sink())
    )
    query = writer.start()
    try:
        wait_for(lambda: len(either.values()) == 4)
        either.feed(["wait", "x"], 0)
        wait_for(lambda: query.status["isTriggerActive"] and (either.checkpoint / "offsets" / "2").exists())
        found = described(either)
        assert found[either.source, 0] == ("3", "5", "2")
        assert found[either.source, 1] == ("1", "1", "0")
        assert found["spark-eos-ledger", 0][0] == "2", "batches 0 and 1 are sealed"
        Path(gate).touch()
        wait_for(lambda: len(either.values()) == 6 and described(either)[either.source, 0] == ("5", "5", "0"))
    finally:
        query.stop()
