"""The checker of a job that copies every input record to each of its outputs exactly once, all in one transaction.

Keys and values are unchanged, values are unique. What it checks, by number (labels of findings in brackets):

  1. no input record is missing in all outputs (lost);
  2. none is there more often than in the input (duplicated);
  3. no output has a row that no input record calls for: another key or value (foreign);
  4. no input record is in one output and not in another (torn);
  5. a read_committed reader that ran all along saw no row that is not in the log in the end, or has other content there
     (aborted-seen), and missed none (missed);
  6. within an output, a key's rows stand in one partition, in the order of the input partition they came from
     (disordered);
  7. the group's committed offsets, of the inputs and of the ledger, never moved back while they were watched
     (moved-back);
  8. for each row that the reader got, the last stable offset was above it right afterwards (early);
  9. in the end, the group's committed offsets cover every input record (uncovered);
 10. no transaction is left open, so nothing holds readers back (hanging).

What is in a topic is what a read_committed reader gets. 5, 7 and 8 need a `Watch`, 7 and 9 a group; else their figures
are None.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from spark_eos.checker.findings import Findings, at
from spark_eos.checker.judge import Due, Log, compare_seen, judge
from spark_eos.checker.rows import Place, Rows, digest, position, rows_of
from spark_eos.checker.settings import Client
from spark_eos.checker.topic_log import Topics
from spark_eos.checker.watch import Watch

WAIT_S = 90.0
"""How long to wait for open transactions: transaction.timeout.ms is 60 s, and the broker looks every 10 s."""


def check(
    bootstrap_servers: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    *,
    group: str | None = None,
    watch: Watch | None = None,
    wait_s: float = WAIT_S,
    client: Client | None = None,
) -> Findings:
    """All findings, from the topics as they are now.

    Args:
        bootstrap_servers: `host:port`, with commas between.
        inputs: topics whose records are due.
        outputs: topics, in each of which they are due.
        group: consumer group that the job commits its offsets to; without it they are not looked at.
        watch: what watched while the job ran. Its watching ends here.
        wait_s: how long to wait, in seconds, for transactions that are open, and for brokers that do not answer.
        client: further settings of the clients, by librdkafka's names, to log in with.

    Raises:
        CannotCheck: a topic does not exist, nobody answers, the login is refused, or a watcher died.
    """
    written, read = (Topics(bootstrap_servers, names, wait_s, client) for names in (outputs, inputs))
    findings = Findings()
    if watch is not None:
        watch.finish(wait_s)
    findings.looked_at("hanging")
    for topic, partition in written.hanging(0 if watch else wait_s):
        findings.add("hanging", f"{topic}[{partition}]")
    due, log = _due(read), rows_of(written.messages())
    judge(due, outputs, log, findings)
    _count_rows(findings, due, log, written)
    if group is not None:
        _offsets(findings, due, read, group)
    if watch is not None:
        _watched(findings, log, watch)
    return findings


def _due(read: Topics) -> Due:
    rows: dict[Place, Rows] = {}
    keys: dict[Place, array[int]] = {}
    for message in read.messages():
        key, (topic, partition, offset) = message.key(), position(message)
        place = topic, partition
        rows.setdefault(place, Rows()).add(offset, digest(key, message.value()))
        keys.setdefault(place, array("Q")).append(0 if key is None else digest(key, None))
    together = array("Q")
    for each in keys.values():
        together.extend(each)
    return Due(rows, together)


def _count_rows(findings: Findings, due: Due, log: Log, written: Topics) -> None:
    findings.figures["input records"] = sum(due.times)
    committed = {name: sum(len(rows) for (topic, _), rows in log.items() if topic == name) for name in written.names}
    findings.figures |= {f"rows in {name}": count for name, count in committed.items()}
    in_the_log = sum(1 for _ in written.messages("read_uncommitted"))
    findings.figures["rows aborted or open"] = in_the_log - sum(committed.values())


def _offsets(findings: Findings, due: Due, read: Topics, group: str) -> None:
    findings.looked_at("uncovered")
    committed = read.committed(group)
    for place, rows in sorted(due.rows.items()):
        done = bisect_left(rows.offsets, committed.get(place, 0))
        if done < len(rows):
            findings.add("uncovered", f"from {at((*place, rows.offsets[done]))} on", len(rows) - done)


def _watched(findings: Findings, log: Log, watch: Watch) -> None:
    reader, offsets = watch.reader, watch.offsets
    compare_seen(log, reader.rows, findings)
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
