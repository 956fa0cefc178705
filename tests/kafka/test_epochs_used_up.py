"""A transactional.id that has used up its epochs: a producer id has 32,767 of them, nine hours at one batch a second.

Then the broker gives the id another one, and begins at epoch 0. Whoever has the older one must be fenced as ever.
"""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from clusters import RealCluster
from proxy import Api
from tests_support import Query, rows_of

from spark_eos.errors import Fenced
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import driver_transactional_id, lane_transactional_id
from spark_eos.protocol.transaction import LaneReport, Outcome, Step
from spark_eos.testing.log_dump import dumped_records

LAST_EPOCH = 32_766
"""The last one that a producer gets; the broker keeps 32,767 to fence with."""
BATCHES = 6


class Connection:
    """Speaks Kafka's protocol with one broker, for a request that librdkafka makes one of a client only."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def init_producer_id(self, transactional_id: str) -> tuple[int, int, int]:
        """Error code, producer id and epoch."""
        name = transactional_id.encode()
        body = struct.pack(">hhih", Api.INIT_PRODUCER_ID, 0, 0, -1) + struct.pack(">h", len(name)) + name
        body += struct.pack(">i", 60_000)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (length,) = struct.unpack(">i", self._answers.read(4))
        found: tuple[int, int, int] = struct.unpack_from(">hqh", self._answers.read(length), 8)
        return found


def use_up(bootstrap: str, last: int, transactional_id: str) -> None:
    """Take epochs until this one is taken: 0.4 ms each."""
    with Connection(bootstrap) as connection:
        error, epoch = 0, -1
        while not error and epoch < last:
            error, _, epoch = connection.init_producer_id(transactional_id)
        assert (error, epoch) == (0, last)


def producers(query: Query, brokers: RealCluster) -> list[tuple[int, int]]:
    """Producer id and epoch of each transaction in the output's log, in order."""
    found = (batch for batch, _ in dumped_records(brokers.dump(query.topic)))
    return list(dict.fromkeys((int(each["producerId"]), int(each["producerEpoch"])) for each in found))


def overtaken(query: Query, run: QueryRun, batch: int) -> None:
    """One batch, whose first attempt is overtaken by a second one just before it commits."""
    rows = [f"{batch}-{number}" for number in range(3)]
    run.open(batch, 1)
    reports: list[LaneReport] = []

    def newer(reached: Step) -> None:
        if reached is (Step.OFFSETS, Step.COMMIT)[batch % 2]:
            reports.append(query.lane(run, batch, [rows_of(rows)]))

    with pytest.raises(Fenced):
        query.lane(run, batch, [rows_of(rows)], before_step=newer)
    assert [report.outcome for report in reports] == [Outcome.COMMITTED]
    run.seal(batch, 1, reports, {})


@pytest.mark.parametrize(
    "left", [9, pytest.param(8, marks=pytest.mark.large), pytest.param(7, marks=pytest.mark.large)]
)
def test_each_row_is_written_once_while_the_epochs_run_out(kafka, topic, query_id, left) -> None:
    """A batch takes three epochs of its lane, so that each of its attempts is the last one once."""
    query, brokers = Query(kafka.bootstrap_servers, query_id, topic()), RealCluster(kafka)
    ids = driver_transactional_id(query_id), lane_transactional_id(query_id, 0)
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(use_up, kafka.bootstrap_servers, LAST_EPOCH - left), ids))
    run = query.run()
    for batch in range(BATCHES):
        overtaken(query, run, batch)
    expected = sorted(f"{batch}-{number}" for batch in range(BATCHES) for number in range(3))
    assert query.values() == expected
    assert sorted(query.uncommitted()) == sorted(2 * expected)
    used = producers(query, brokers)
    first, second = dict.fromkeys(producer for producer, _ in used)
    assert (first, LAST_EPOCH) in used
    assert (second, 0) in used
