"""Ten ways to get exactly-once wrong, as edits of the connector's source.

The simulation and the trials on a real broker must notice each. An edit's old text must stand in its file exactly once:
else the mutant is out of date, and that is an error, never a pass. Where the real client and the simulated one each
hold the behaviour, both are edited. Where librdkafka refuses to do the wrong thing literally (it begins no transaction
before `init_transactions`), the mutant makes the nearest mistake that a person would make, and `what` says which.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import spark_eos

TRANSACTION = "protocol/transaction.py"
NAMES, LEASE, DRIVER = "protocol/names.py", "protocol/lease.py", "protocol/driver.py"
PRODUCER, LEDGER = "kafka/producer.py", "kafka/ledger.py"
SIMULATED_CLIENT, SIMULATED_LEDGER = "testing/simulated/client.py", "testing/simulated/ledger.py"


class OutOfDate(Exception):
    """The source has changed since a mutant was written: an edit's old text is not there exactly once."""


@dataclass(frozen=True)
class Edit:
    """One replacement.

    Args:
        file: below `spark_eos/`.
        old, new: text.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A connector with one mistake.

    Args:
        name: as commands take it.
        what: the mistake.
        edits: which make it.
        trials: on a real broker, in which it is seen; names of `mutant_trial.py`.
    """

    name: str
    what: str
    trials: tuple[str, ...]
    edits: tuple[Edit, ...]

    def write(self, folder: Path) -> None:
        """Put a copy of the package with the mistake into a folder, to be first on PYTHONPATH.

        Raises:
            OutOfDate: an edit does not apply.
        """
        package = folder / "spark_eos"
        source = Path(spark_eos.__file__).parent
        shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in self.edits:
            file = package / edit.file
            text = file.read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise OutOfDate(f"{self.name}: {text.count(edit.old)} times in {edit.file}: {edit.old!r}")
            file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def must_be_in(folder: str) -> None:
    """In a process with a mutant: make sure that it has the mutant, and not the connector as it is."""
    if not Path(spark_eos.__file__).is_relative_to(folder):
        raise SystemExit(f"{spark_eos.__file__} is not the package in {folder}")


_ID = "return lane_transactional_id(self.run.query, self.lane)\n"

FENCE_OMITTED = Mutant(
    "fence-omitted",
    "fence omitted: the transactional.id carries the attempt's number, so an attempt fences no earlier one",
    ("overtaken",),
    (Edit(NAMES, _ID, 'return f"{lane_transactional_id(self.run.query, self.lane)}-{self.attempt}"\n'),),
)

READ_BEFORE_FENCE = Mutant(
    "read-before-fence",
    "ledger read before the fence",
    ("overtaken-before-its-fence",),
    (
        Edit(
            TRANSACTION,
            """\
        self.before_step(Step.FENCE)
        with self.ports.open_transaction(self.task.transactional_id) as transaction:
            transaction.fence()
            self.before_step(Step.CHECK)
            query, row = self.ports.ledger.lane(self.task.lane)
""",
            """\
        self.before_step(Step.CHECK)
        query, row = self.ports.ledger.lane(self.task.lane)
        self.before_step(Step.FENCE)
        with self.ports.open_transaction(self.task.transactional_id) as transaction:
            transaction.fence()
""",
        ),
    ),
)

_QUERY = "return self._read([QUERY_PARTITION], stable=True).query"
_LANE = "view = self._read((QUERY_PARTITION, lane_partition(lane)), stable=True)"
_SIMULATED_LANE = "view = self._read([QUERY_PARTITION, lane_partition(lane)], stable=True)"


def _unstable(file: str, *olds: str) -> tuple[Edit, ...]:
    return tuple(Edit(file, old, old.replace("stable=True", "stable=False")) for old in olds)


_VIEW = "return self._read(range(wanted), stable)"
_SIMULATED_VIEW = "return self._read(range(count if lanes is None else min(count, lane_partition(lanes))), stable)"

UNSTABLE_READ = Mutant(
    "unstable-read",
    "unstable read: the ledger's rows are read without waiting for transactions that are open on them",
    ("late-markers",),
    (
        *_unstable(LEDGER, _QUERY, _LANE),
        Edit(LEDGER, _VIEW, _VIEW.replace("stable)", "stable=False)")),
        *_unstable(SIMULATED_LEDGER, _QUERY, _SIMULATED_LANE),
        Edit(SIMULATED_LEDGER, _SIMULATED_VIEW, _SIMULATED_VIEW.replace(", stable)", ", stable=False)")),
    ),
)

OFFSETS_OUTSIDE = Mutant(
    "offsets-outside",
    "offsets sent outside the transaction: a consumer commits them, ledger rows and all, just before the rows' commit",
    ("dies-before-its-commit",),
    (
        Edit(
            PRODUCER,
            "self._producer.send_offsets_to_transaction(ledger + source, metadata, timeout_s)",
            """\
from confluent_kafka import Consumer

            group = metadata[11:].split(b"\\0")[0].decode()  # behind its magic and a generation
            servers = self._factory.client["bootstrap.servers"]
            consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
            consumer.commit(offsets=ledger + source, asynchronous=False)
            consumer.close()""",
        ),
        Edit(SIMULATED_CLIENT, "        self._add(Api.ADD_OFFSETS, self._client.group)\n", ""),
        Edit(SIMULATED_CLIENT, "group.commit_in_transaction(producer, found, verify)", "group.commit(found)"),
    ),
)

RANDOM_ID = Mutant(
    "random-id",
    "random transactional.id: each attempt has one of its own",
    ("overtaken",),
    (
        Edit(NAMES, _ID, 'return f"{lane_transactional_id(self.run.query, self.lane)}-{_DICE.randrange(10**12)}"\n'),
        # The same ones each time in the simulation, which must be able to repeat a run; others in each real process.
        Edit(
            NAMES,
            "from dataclasses import dataclass\n",
            """\
import os
import random
from dataclasses import dataclass

_DICE = random.Random(os.environ.get("MUTANT_DICE"))
""",
        ),
    ),
)

PRODUCER_REUSED = Mutant(
    "producer-reused",
    "producer reused after an error: one for all attempts and batches of a lane in a process, fenced once",
    ("late-end",),
    (
        Edit(PRODUCER, "Deliveries = list[", "_KEPT: dict[str, KafkaTransaction] = {}\nDeliveries = list["),
        Edit(
            PRODUCER,
            """\
        transaction = KafkaTransaction(self, transactional_id, topics, letters)
        try:
            yield transaction
        finally:
            transaction.drop()
""",
            """\
        transaction = _KEPT.pop(transactional_id, None)
        if transaction is None:
            transaction = KafkaTransaction(self, transactional_id, topics, letters)
        try:
            yield transaction
        finally:
            _KEPT[transactional_id] = transaction
""",
        ),
        Edit(
            PRODUCER,
            '        self._call(self._producer.init_transactions, "fencing older producers (init_transactions)")\n',
            """\
        if "_begun" not in self.__dict__:
            self._call(self._producer.init_transactions, "fencing older producers (init_transactions)")
            self._begun = True
""",
        ),
        Edit(
            PRODUCER, "    def begin(self) -> None:\n", "    def begin(self) -> None:\n        self._failed.clear()\n"
        ),
        Edit(
            SIMULATED_CLIENT,
            "        yield SimulatedTransaction(self, id_, topics, letters)\n",
            """\
        kept = self.__dict__.setdefault("kept", {})
        transaction = kept.pop(id_, None) or SimulatedTransaction(self, id_, topics, letters)
        try:
            yield transaction
        except Exception:  # a process that is killed keeps nothing
            kept[id_] = transaction
            raise
        kept[id_] = transaction
""",
        ),
        Edit(
            SIMULATED_CLIENT,
            "        brokers = self._network.brokers\n        ask = partial(self._asked, Api.INIT_PRODUCER_ID)\n",
            """\
        if self._producer is not None:
            return
        brokers = self._network.brokers
        ask = partial(self._asked, Api.INIT_PRODUCER_ID)
""",
        ),
    ),
)

LEASE_KEPT = Mutant(
    "lease-kept",
    "driver's producer kept: one for all seals of a run",
    ("late-offsets",),
    (
        Edit(
            LEASE,
            "            if not self._fresh or self._transaction.disconnected:\n",
            "            if self._held is None or self._transaction.disconnected:\n",
        ),
        Edit(DRIVER, "        self._lease.renew()\n        # In this run", "        # In this run"),
    ),
)

_IMPORT = "from spark_eos.errors import Fenced, SparkEosError\n"
_WITH_UNCONFIRMED = Edit(TRANSACTION, _IMPORT, _IMPORT.replace("SparkEosError", "SparkEosError, Unconfirmed"))

TAKEN_AS_ABORTED = Mutant(
    "unconfirmed-as-aborted",
    "UNCONFIRMED taken as aborted: the rows are written again at once, without a look into the ledger",
    ("no-answer-to-a-commit",),
    (
        _WITH_UNCONFIRMED,
        Edit(
            TRANSACTION,
            "            self._transact(transaction, stream, query.adoptions if query else 0)\n",
            """\
            rows = list(stream)
            try:
                self._transact(transaction, iter(rows), query.adoptions if query else 0)
            except Unconfirmed:
                self.tally = Tally()
                with self.ports.open_transaction(self.task.transactional_id) as again:
                    again.fence()
                    self._transact(again, iter(rows), query.adoptions if query else 0)
""",
        ),
    ),
)

TAKEN_AS_COMMITTED = Mutant(
    "unconfirmed-as-committed",
    "UNCONFIRMED taken as committed: the lane reports that it has committed",
    ("a-commit-that-never-arrives",),
    (
        _WITH_UNCONFIRMED,
        Edit(
            TRANSACTION,
            "            transaction.commit()\n",
            """\
            try:
                transaction.commit()
            except Unconfirmed:
                pass
""",
        ),
    ),
)

SEALED_EARLY = Mutant(
    "sealed-early",
    "seal before all lanes: the first lane that commits seals the batch in its transaction",
    ("dies-between-lanes",),
    (
        Edit(
            TRANSACTION,
            "            self._transact(transaction, stream, query.adoptions if query else 0)\n",
            "            self.query = query\n"
            "            self._transact(transaction, stream, query.adoptions if query else 0)\n",
        ),
        Edit(
            TRANSACTION,
            "transaction.commit_offsets([self._row(adoptions)], self._offsets())",
            """\
from dataclasses import replace

                sealed = replace(self.query, next_batch=self.task.batch + 1, content=self.task.content)
                rows = [self._row(adoptions), sealed]
                transaction.commit_offsets(rows, self._offsets())""",
        ),
    ),
)

MUTANTS = (
    FENCE_OMITTED,
    READ_BEFORE_FENCE,
    UNSTABLE_READ,
    OFFSETS_OUTSIDE,
    RANDOM_ID,
    PRODUCER_REUSED,
    LEASE_KEPT,
    TAKEN_AS_ABORTED,
    TAKEN_AS_COMMITTED,
    SEALED_EARLY,
)

ALL_TRIALS = tuple(dict.fromkeys(trial for mutant in MUTANTS for trial in mutant.trials))

HEALTHY = Mutant("healthy", "none: the connector as it is", ALL_TRIALS, ())
"""To compare with: it must come out clean where the mutants do not."""
