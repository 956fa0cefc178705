"""A pod of scenario 4: a process that does the work of shard 0, one after the other of a deployment.

    python scenario_pod.py JSON

JSON is a `Pod`. It writes every record of its shard in one transaction. Once that is open it waits until the pod after
it has opened its own, which is a deployment at its worst, and commits. Prints how that ended.
"""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from scenario import wait_until
from tests_support import Query, committed_values, rows_of

from spark_eos.errors import SparkEosError

CALL_S = 30
NEVER_S = 60
QUERY = "lane"
"""The way whose transactional.id is made from the query and the lane; any other is a pod's own name."""


@dataclass(frozen=True)
class Pod:
    """What one pod does.

    Args:
        number: from 0, in the order of their start.
        pods: how many there are.
        way: what its transactional.id is made of: uuid, hostname or lane.
        bootstrap: the broker.
        source, target: topics of one partition.
        folder: in which pods tell each other that their transaction is open.
    """

    number: int
    pods: int
    way: str
    bootstrap: str
    source: str
    target: str
    folder: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def work(self) -> str:
        """How it ended: committed, skipped, or the error."""
        values = [value.decode() for value in committed_values(self.bootstrap, self.source)]
        try:
            return self._lane(values) if self.way == QUERY else self._plain(values)
        except (KafkaException, SparkEosError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"

    @property
    def is_open(self) -> bool:
        """Whether its transaction is, or was."""
        return self._mark(self.number).exists()

    def meet(self) -> None:
        """Tell that the transaction is open, and wait for the pod after this one."""
        self._mark(self.number).touch()
        if self.number + 1 < self.pods:
            wait_until(self._mark(self.number + 1).exists, NEVER_S)

    def _mark(self, number: int) -> Path:
        return Path(self.folder, f"{self.way}-{number}")

    def _plain(self, values: list[str]) -> str:
        name = str(uuid.uuid4()) if self.way == "uuid" else f"refunds-7d9f6c-pod{self.number}-0"
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(CALL_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.target, value, partition=0)
        producer.flush(CALL_S)
        self.meet()
        producer.commit_transaction(CALL_S)
        return "committed"

    def _lane(self, values: list[str]) -> str:
        query = Query(self.bootstrap, "refunds", self.target)
        run = query.run(f"pod-{self.number}")
        if run.open(0, 1).skip:
            return "skipped: the batch is sealed"
        rows = [rows_of(values, (self.source, 0, 0))]
        report = query.lane(run, 0, rows, before_step=lambda step: self.meet() if step == "commit" else None)
        run.seal(0, 1, [report])
        return str(report.outcome.value)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        print(Pod(**json.loads(sys.argv[1])).work())
