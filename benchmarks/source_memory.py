"""How much memory a task needs to read a partition: peak resident memory of a process that reads one with kafka-eos.

    python benchmarks/source_memory.py

One partition of 1 GB, of records of 1 KB and of 100 KB, read from end to end by `spark_eos.kafka.reader.read_ranges`;
each Arrow batch is dropped before the next one. With the client's default settings, where up to 64 MB of fetched
records wait in librdkafka, and with kafka.queued.max.messages.kbytes=4096. "nothing read" is the same process without a
record: Python, pyarrow and librdkafka themselves. Each is a process of its own; MiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor

from bench_results import section, table, write
from bench_topics import Topic, fill

from spark_eos.kafka.offsets import OffsetRange
from spark_eos.kafka.reader import read_ranges
from spark_eos.source_options import SourceOptions
from spark_eos.testing import EmbeddedKafka

TOPIC_BYTES = 1 << 30
SETTINGS = {"defaults": {}, "queued.max.messages.kbytes=4096": {"kafka.queued.max.messages.kbytes": "4096"}}


def peak_mib(options: dict[str, str], rows: int) -> float:
    """Read so many rows of partition 0; the peak of this process."""
    work = [OffsetRange(options["subscribe"], 0, 0, rows)] if rows else []
    read = sum(batch.num_rows for batch in read_ranges(SourceOptions.of(options), work))
    assert read == rows, f"{read} rows of {rows}"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(pool: ProcessPoolExecutor, bootstrap: str, topic: Topic) -> list[str]:
    """A row of the table: nothing read, and each of SETTINGS."""
    # In a process of its own as well: what this one has in memory counts as its children's.
    pool.submit(fill, bootstrap, topic).result()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name}
    asked = [(options, 0), *((options | more, topic.rows_written) for more in SETTINGS.values())]
    peaks = [pool.submit(peak_mib, *each).result() for each in asked]
    return [f"{topic.record_bytes:,} B", *(f"{peak:.0f}" for peak in peaks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-scale", type=float, default=1.0, help="below 1: smaller partitions")
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    args = parser.parse_args()
    rows = []
    new_processes = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with EmbeddedKafka() as kafka, new_processes as pool:
        for record_bytes in (1 << 10, 100 << 10):
            count = int(TOPIC_BYTES * args.rows_scale) // record_bytes
            topic = Topic(f"memory-{record_bytes}", record_bytes, count, transactional=False, partitions=1)
            kafka.create_topic(topic.name)
            rows.append(measure(pool, kafka.bootstrap_servers, topic))
    found = table(["records of", "nothing read, MiB", *SETTINGS], rows)
    if not args.no_write:
        command = " ".join(["python benchmarks/source_memory.py", *sys.argv[1:]])
        write("source-memory", section("Memory of a reading task", command, found))
    print(found)


if __name__ == "__main__":
    main()
