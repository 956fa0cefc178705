"""Dangerous moments of a query on a real broker, without Spark; a process of its own, started by `mutants.py`.

    python reliability/mutant_trial.py FOLDER late-end,overtaken     # the package in a folder; a line of JSON for each

Each trial brings about one moment, finishes the query as Spark would (tasks are tried again, the driver is started
again where it fails), and has the independent checker judge what is in the topics. Whoever dies here leaves a producer
behind that says nothing more: to a broker that is what a SIGKILL looks like.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from confluent_kafka import Producer
from mutant_edits import must_be_in
from pipeline import CLUSTER
from proxy import Api, Armed, Effect, Proxy, proxied_kafka
from tests_support import SOURCE_TYPE, Query, before_commits

from spark_eos.checker import Findings, Watch, check
from spark_eos.errors import SparkEosError
from spark_eos.protocol.batch import BatchLog
from spark_eos.protocol.driver import QueryRun
from spark_eos.protocol.names import LaneTask
from spark_eos.protocol.transaction import LaneReport, Step, run_lane
from spark_eos.spark.rows import ArrowRows
from spark_eos.testing import EmbeddedKafka

BATCHES, LANES, ROWS = 2, 2, 3
RESTARTS = 4
ATTEMPTS = 2
CALL_S = 3.0
"""How long a client waits for a broker."""
CLIENT = {"transaction.timeout.ms": "10000", "socket.timeout.ms": "1000"}
NEVER_S = 30.0
MARKERS_S = 1.0
"""By how much they are late."""
LATE_S = 4.0
"""An EndTxn: its sender gives up after 1 s, asks again, and has written the next rows before it comes."""


class Died(Exception):
    """What becomes of an attempt, or of a driver."""


class Trial:
    """A query that copies its input to two topics; batch and lane by number, each lane an input partition.

    Args:
        kafka: where.
        proxy: between it and its clients.
        name: of the query, and beginning of the topics' names.
    """

    def __init__(self, kafka: EmbeddedKafka, proxy: Proxy, name: str) -> None:
        self.proxy, self.name, self.bootstrap = proxy, name, kafka.bootstrap_servers
        self.source, self.outputs = f"{name}-in", (f"{name}-a", f"{name}-b")
        for topic in (self.source, *self.outputs):
            kafka.create_topic(topic, LANES)
        self.query = Query(self.bootstrap, name, "", client=CLIENT, call_timeout_s=CALL_S)
        self.late: list[Armed] = []
        """What is to come before the driver's next commits."""
        self.query.open = before_commits(self.query.open, lambda: [each.wait(NEVER_S) for each in self.late])
        self.committed = 0
        self._feed()

    def opened(self) -> QueryRun:
        """A run that has opened the batch that comes."""
        run = self.query.run()
        self._skips(run)
        return run

    def attempt(
        self,
        run: QueryRun,
        lane: int,
        number: int = 0,
        before_step: Callable[[Step], None] = lambda _: None,
        stream: Iterator[ArrowRows] | None = None,
    ) -> LaneReport:
        """An attempt to write a lane of the batch that comes."""
        batch = self.committed
        task = LaneTask(run.run, batch, lane, LANES, number, f"content {batch}")
        rows = stream or iter([self.rows(batch, lane)])
        return run_lane(task, rows, self.query.ports, before_step=before_step)

    def seal(self, run: QueryRun, first: LaneReport) -> None:
        """The other lanes of the batch, its seal, and Spark's note that it is done."""
        reports = [first, *(self._tried(run, lane) for lane in range(1, LANES))]
        ends = {(self.source, lane): (self.committed + 1) * ROWS for lane in range(LANES)}
        run.seal(self.committed, LANES, reports, BatchLog(f"content {self.committed}", ends=ends))
        self.committed += 1

    def finish(self) -> None:
        """What is left, by a driver that is started again where it fails."""
        for _ in range(RESTARTS):
            with suppress(SparkEosError):
                self.finish_with(self.query.run())
                return

    def finish_with(self, run: QueryRun) -> None:
        """What is left, by this run."""
        while self.committed < BATCHES:
            if self._skips(run):
                self.committed += 1
            else:
                self.seal(run, self._tried(run, 0))

    def judged(self, watch: Watch) -> Findings:
        """What the checker finds."""
        return check(self.bootstrap, (self.source,), self.outputs, group=self.name, watch=watch, wait_s=NEVER_S)

    def watched(self) -> Watch:
        """The checker's watch, from `with` on."""
        return Watch(self.bootstrap, self.outputs, group=self.name, inputs=(self.source,))

    def rows(self, batch: int, lane: int) -> ArrowRows:
        """A lane's rows: each record once for each output."""
        offsets = [offset for offset in range(batch * ROWS, (batch + 1) * ROWS) for _ in self.outputs]
        columns = {
            "key": pa.array([f"k{lane}"] * len(offsets)),
            "value": pa.array([f"k{lane}:{offset}" for offset in offsets]),
            "topic": pa.array(list(self.outputs) * ROWS),
            "partition": pa.array([lane] * len(offsets), pa.int32()),
            "source": pa.array(
                [{"topic": self.source, "partition": lane, "offset": offset} for offset in offsets], SOURCE_TYPE
            ),
        }
        return ArrowRows(pa.RecordBatch.from_pydict(columns), None)

    def _skips(self, run: QueryRun) -> bool:
        """Open the batch that comes; whether it is sealed already."""
        return run.open(self.committed, LANES, BatchLog(f"content {self.committed}")).skip

    def _tried(self, run: QueryRun, lane: int) -> LaneReport:
        for number in range(ATTEMPTS):
            try:
                return self.attempt(run, lane, number)
            except SparkEosError:
                if number + 1 == ATTEMPTS:
                    raise
        raise AssertionError("a lane is tried once, at least")

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for lane in range(LANES):
            for offset in range(BATCHES * ROWS):
                producer.produce(self.source, f"k{lane}:{offset}", f"k{lane}", lane)
        if producer.flush(NEVER_S):
            raise TimeoutError("the input could not be written")


# --- moments -------------------------------------------------------------------------------------------------------


def overtaken(trial: Trial, at: Step = Step.WRITE) -> None:
    """An attempt stands still while another one does the lane's work, and then goes on."""
    run = trial.opened()
    reached, go_on = threading.Event(), threading.Event()

    def before_step(step: Step) -> None:
        if step is at:
            reached.set()
            go_on.wait(NEVER_S)

    def body() -> None:
        with suppress(SparkEosError):
            trial.attempt(run, 0, 0, before_step)

    slow = threading.Thread(target=body)
    slow.start()
    if not reached.wait(NEVER_S):
        raise TimeoutError(f"the attempt did not come to its {at.value}")
    report = trial.attempt(run, 0, 1)
    go_on.set()
    slow.join()
    trial.seal(run, report)


def overtaken_before_its_fence(trial: Trial) -> None:
    """The same, just before it fences."""
    overtaken(trial, Step.FENCE)


def late_markers(trial: Trial) -> None:
    """The brokers acknowledge commits and write their markers a moment later, all along. Each batch has a driver of its
    own, of whose signature its lanes must know."""
    late = trial.proxy.arm(Api.WRITE_TXN_MARKERS, Effect.DELAY, 1000, MARKERS_S)
    with suppress(SparkEosError):
        run = trial.opened()
        trial.seal(run, trial.attempt(run, 0))
    trial.finish()
    if not late.hits:
        raise TimeoutError("no markers were late")


def dies_before_its_commit(trial: Trial) -> None:
    """An attempt has sent rows and offsets, and dies. The next one comes."""
    run = trial.opened()

    def before_step(step: Step) -> None:
        if step is Step.COMMIT:
            raise Died

    with suppress(Died):
        trial.attempt(run, 0, 0, before_step)
    trial.seal(run, trial.attempt(run, 0, 1))


def late_end(trial: Trial) -> None:
    """An attempt fails and aborts; its EndTxn is late, so it is sent again. The late one comes when the next attempt
    in the same process has sent its rows (KAFKA-17754)."""
    run = trial.opened()
    late = trial.proxy.arm(Api.END_TXN, Effect.DELAY, 1, LATE_S, f"{trial.name}-0".encode())

    def stream() -> Iterator[ArrowRows]:
        yield trial.rows(0, 0)
        time.sleep(0.2)  # the rows are on their way: an abort before that is none of the broker's
        yield trial.rows(0, 0)
        raise Died

    def before_step(step: Step) -> None:
        if step is Step.OFFSETS:
            if late.over:
                raise TimeoutError("the late EndTxn was there too early")
            late.wait(NEVER_S)
            time.sleep(0.5)  # it came; the broker acts on it

    with suppress(Died):
        trial.attempt(run, 0, 0, stream=stream())
    trial.seal(run, trial.attempt(run, 0, 1, before_step))


def late_offsets(trial: Trial) -> None:
    """The driver's row and offsets are late, so they are sent again. The late ones come when it has sent the next
    seal's."""
    run = trial.opened()
    late = trial.proxy.arm(Api.TXN_OFFSET_COMMIT, Effect.DELAY, 1, LATE_S, f"{trial.name}-driver".encode())
    trial.seal(run, trial.attempt(run, 0))
    if late.over:
        raise TimeoutError("the late offsets were there too early")
    trial.late.append(late)
    trial.finish_with(run)


def no_answer_to_a_commit(trial: Trial) -> None:
    """A broker commits, and nobody hears of it."""
    trial.proxy.arm(Api.END_TXN, Effect.DROP_ANSWER, 1000, containing=f"{trial.name}-0".encode())
    _unconfirmed(trial)


def a_commit_that_never_arrives(trial: Trial) -> None:
    """No broker hears of a commit, and its sender does not know that."""
    trial.proxy.arm(Api.END_TXN, Effect.RESET_BEFORE, 1000, containing=f"{trial.name}-0".encode())
    _unconfirmed(trial)


def _unconfirmed(trial: Trial) -> None:
    run = trial.opened()
    report = None
    with suppress(SparkEosError):
        report = trial.attempt(run, 0, 0)
    trial.proxy.disarm()
    trial.seal(run, report or trial.attempt(run, 0, 1))


def dies_between_lanes(trial: Trial) -> None:
    """The first lane has committed, and the driver dies."""
    trial.attempt(trial.opened(), 0)


TRIALS: dict[str, Callable[[Trial], None]] = {
    moment.__name__.replace("_", "-"): moment
    for moment in (
        overtaken,
        overtaken_before_its_fence,
        late_markers,
        dies_before_its_commit,
        late_end,
        late_offsets,
        no_answer_to_a_commit,
        a_commit_that_never_arrives,
        dies_between_lanes,
    )
}


def tried(kafka: EmbeddedKafka, proxy: Proxy, name: str) -> Findings:
    """One trial, from its topics to its verdict."""
    trial = Trial(kafka, proxy, name)
    with trial.watched() as watch:
        try:
            # What a mutant makes of the moment may be an error, too; then Spark would start the query again.
            with suppress(SparkEosError):
                TRIALS[name](trial)
            trial.finish()
        finally:
            proxy.disarm()
        return trial.judged(watch)


if __name__ == "__main__":
    folder, names = sys.argv[1:]
    must_be_in(folder)
    with proxied_kafka(CLUSTER) as (kafka, proxy):
        for name in names.split(","):
            found = tried(kafka, proxy, name)
            print(json.dumps([name, found.anomalies]), flush=True)
