"""The checker of a job that writes what its input records call for exactly once, all in one transaction.

A job that copies has every input record in each of its outputs: key, value and headers unchanged, the timestamp too
where that is asked for; records are unique. Of any other job a function says what is expected (expected.py). What it
checks, by number (labels of findings in brackets):

  1. no input record is missing in all outputs (lost);
  2. none is there more often than in the input (duplicated);
  3. no output has a row that no input record calls for: another key, value or headers (foreign);
  4. no input record is in one output and not in another (torn);
  5. a read_committed reader that ran all along saw no row that is not in the log in the end, or has other content,
     headers or timestamp there (aborted-seen), and missed none (missed);
  6. within an output, a key's rows stand in one partition, in the order of the input partition they came from
     (disordered);
  7. the group's committed offsets, of the inputs and of the ledger, never moved back while they were watched
     (moved-back);
  8. for each row that the reader got, the last stable offset was above it right afterwards (early);
  9. in the end, the group's committed offsets cover every input record (uncovered);
 10. no transaction is left open, so nothing holds readers back (hanging);
 11. Kafka's own client, in Java, reads the same rows of the outputs as librdkafka: the same offsets, keys, values,
     headers and timestamps (readers-differ).

What is in a topic is what a read_committed reader gets. 5, 7 and 8 need a `Watch`, 7 and 9 a group, 11 a `JavaReader`;
else their figures are None. So are 4 and 6 where what is expected does not say enough for them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import Message

from spark_eos.checker.expected import Expectation, Expects
from spark_eos.checker.findings import Findings, at
from spark_eos.checker.java_reader import JavaReader
from spark_eos.checker.judge import Copies, Due, Log, compare_readers, compare_seen
from spark_eos.checker.rows import WHOLE, Columns, Place, Rows, below, digest, position
from spark_eos.checker.settings import Client
from spark_eos.checker.topic_log import Entry, Topics
from spark_eos.checker.watch import Watch

WAIT_S = 90.0
"""How long to wait for open transactions: transaction.timeout.ms is 60 s, and the broker looks every 10 s."""

Offsets = Mapping[Place, "array[int]"]


def check(
    bootstrap_servers: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    *,
    group: str | None = None,
    watch: Watch | None = None,
    java_reader: JavaReader | None = None,
    headers: bool = True,
    timestamps: bool = False,
    expected: Expects | None = None,
    wait_s: float = WAIT_S,
    client: Client | None = None,
) -> Findings:
    """All findings, from the topics as they are now.

    A job that is no copy, here one that leaves out empty values and writes the others in upper case:

        def expected(records: Iterator[Entry]) -> Iterator[ExpectedRow]:
            for record in records:
                if record.value:
                    yield ExpectedRow("out", record.key, record.value.upper(), source=record, ordered=True)

        check("broker:9092", ("in",), ("out",), expected=expected)

    Args:
        bootstrap_servers: `host:port`, with commas between.
        inputs: topics whose records are due.
        outputs: topics, in each of which they are due.
        group: consumer group that the job commits its offsets to; without it they are not looked at.
        watch: what watched while the job ran. Its watching ends here.
        java_reader: reads the outputs once more.
        headers: a copy has the headers of its input record.
        timestamps: a copy has its timestamp, too. Kafka gives one of its own to what is written without.
        expected: what must be in the outputs, from the input records, for a job that does not copy. Each partition's
            records come in the order of their offsets, those of several partitions mixed.
        wait_s: how long to wait, in seconds, for transactions that are open, and for brokers that do not answer.
        client: further settings of the clients, by librdkafka's names, to log in with.

    Raises:
        CannotCheck: a topic does not exist, nobody answers, the login is refused, a watcher died, or Java's client
            could not read.
        ValueError: `expected` yields rows that do not fit together, see `Expectation`, or is given together with
            `headers` or `timestamps`.
    """
    if expected and (timestamps or not headers):
        raise ValueError("the rows that are expected say themselves which headers and timestamps they have")
    written, read = (Topics(bootstrap_servers, names, wait_s, client) for names in (outputs, inputs))
    findings = Findings()
    if watch is not None:
        watch.finish(wait_s)
    findings.looked_at("hanging")
    for topic, partition in written.hanging(0 if watch else wait_s):
        findings.add("hanging", f"{topic}[{partition}]")
    starts, ends = written.starts(), written.stable_ends()
    columns = Columns(headers, timestamps)
    judge, due = _expected(read, outputs, expected) if expected else _copies(read, outputs, columns)
    log, whole = _committed(written, judge.columns, whole=bool(watch or java_reader))
    judge.judge(log, findings)
    _count_rows(findings, due, log, written)
    if group is not None:
        _offsets(findings, due, read, group)
    if watch is not None:
        _watched(findings, whole, watch)
    if java_reader is not None:
        javas = java_reader.read(starts, ends, wait_s)
        compare_readers(below(whole, ends), javas, findings)
        findings.figures["rows read by Java's client"] = sum(map(len, javas.values()))
    return findings


def _copies(read: Topics, outputs: tuple[str, ...], columns: Columns) -> tuple[Copies, Offsets]:
    rows: dict[Place, Rows] = {}
    keys: dict[Place, array[int]] = {}
    for message in read.messages():
        key, (topic, partition, offset) = message.key(), position(message)
        place = topic, partition
        rows.setdefault(place, Rows()).add(offset, columns.digest(message))
        keys.setdefault(place, array("Q")).append(0 if key is None else digest(key, None))
    together = array("Q")
    for each in keys.values():
        together.extend(each)
    return Copies(Due(rows, together), outputs, columns), {place: each.offsets for place, each in rows.items()}


def _expected(read: Topics, outputs: tuple[str, ...], expected: Expects) -> tuple[Expectation, Offsets]:
    offsets: dict[Place, array[int]] = {}

    def noted(messages: Iterator[Message]) -> Iterator[Entry]:
        for entry in map(Entry.of, messages):
            offsets.setdefault((entry.topic, entry.partition), array("q")).append(entry.offset)
            yield entry

    records = noted(read.messages())
    expectation = Expectation(expected(records), outputs)
    deque(records, maxlen=0)  # those that the function did not ask for
    return expectation, offsets


def _committed(written: Topics, columns: Callable[[str], Columns], whole: bool) -> tuple[Log, Log]:
    """The outputs' rows: with digests of what is judged, and with those of all that they have, if these are needed."""
    judged: dict[Place, Rows] = {}
    wholes: dict[Place, Rows] = {}
    for message in written.messages():
        topic, partition, offset = position(message)
        judged.setdefault((topic, partition), Rows()).add(offset, columns(topic).digest(message))
        if whole:
            wholes.setdefault((topic, partition), Rows()).add(offset, WHOLE.digest(message))
    return judged, wholes


def _count_rows(findings: Findings, due: Offsets, log: Log, written: Topics) -> None:
    findings.figures["input records"] = sum(map(len, due.values()))
    committed = {name: sum(len(rows) for (topic, _), rows in log.items() if topic == name) for name in written.names}
    findings.figures |= {f"rows in {name}": count for name, count in committed.items()}
    in_the_log = sum(1 for _ in written.messages("read_uncommitted"))
    findings.figures["rows aborted or open"] = in_the_log - sum(committed.values())


def _offsets(findings: Findings, due: Offsets, read: Topics, group: str) -> None:
    findings.looked_at("uncovered")
    committed = read.committed(group)
    for place, offsets in sorted(due.items()):
        done = bisect_left(offsets, committed.get(place, 0))
        if done < len(offsets):
            findings.add("uncovered", f"from {at((*place, offsets[done]))} on", len(offsets) - done)


def _watched(findings: Findings, whole: Log, watch: Watch) -> None:
    reader, offsets = watch.reader, watch.offsets
    compare_seen(whole, reader.rows, findings)
    findings.figures["early"] = reader.early
    if reader.early:
        findings.examples["early"] = [at(position) for position in reader.early_examples]
    findings.figures["rows seen by the live reader"] = sum(map(len, reader.rows.values()))
    findings.figures["of these, last stable offset unknown"] = reader.unasked
    findings.figures["interruptions of the live reader"] = reader.interruptions
    if offsets is not None:
        findings.looked_at("moved-back")
        for (topic, partition), before, now in offsets.moves:
            findings.add("moved-back", f"{topic}[{partition}]: {before} → {now}")
        findings.figures["samples of committed offsets"] = offsets.samples
        findings.figures["samples that failed"] = offsets.interruptions
