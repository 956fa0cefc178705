"""Reading from Kafka: what the partitions hold (driver), and one bounded range of offsets as Arrow (task)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from spark_eos.errors import BrokerUnreachable, DataLoss, SparkEosError, TopicMissing
from spark_eos.kafka.admin import REQUEST_TIMEOUT_S, Cluster, patiently
from spark_eos.kafka.config import PRODUCER_ONLY, Settings, base_settings
from spark_eos.kafka.failures import (
    error_of,
    failure,
    is_end_of_partition,
    is_gone,
    is_missing_topic,
    is_transient,
)
from spark_eos.kafka.offsets import Bounds, OffsetRange, losses
from spark_eos.protocol.positions import Offsets
from spark_eos.source_options import ISOLATION

log = logging.getLogger(__name__)

MAX_BATCH_ROWS = 10_000
MAX_BATCH_BYTES = 16 << 20
FIRST_ASK_ROWS = 100
"""Rows to ask for before it is known how large they are."""

POLL_S = 0.01
"""How long one `consume` may wait: it waits for all that was asked for, even when the range has no more."""

DEFAULT_PATIENCE_MS = 60_000
"""How long a read may make no progress. `kafka.socket.timeout.ms` sets it; this is librdkafka's default."""

SECOND_LOOK_S = 0.5
LOOKS = 3
"""A new leader may for a moment tell of less than the last one: look again before calling it data loss (as Spark)."""

BoundsByPartition = dict[tuple[str, int], Bounds]


class Listing:
    """Looks up what the subscribed topics hold. Belongs to the driver's process: clients do not survive a fork.

    Args:
        client: client settings, without the prefix.
        topics: names of the subscribed topics.
    """

    def __init__(self, client: Mapping[str, str], topics: Iterable[str]) -> None:
        self._cluster = Cluster(client)
        self._topics = tuple(topics)

    def bounds(self, known: Offsets) -> BoundsByPartition:
        """What each partition holds now; partitions that are gone are absent.

        Args:
            known: offsets of the checkpoint. While the answer contradicts them, it is asked for again a few times.

        Raises:
            TopicMissing: a topic does not exist, and the checkpoint does not know it either.
            BrokerUnreachable: no answer within about `REQUEST_TIMEOUT_S`.
        """
        found = self._reach(known)
        for _ in range(LOOKS - 1):
            if not known or not losses(known, found):
                break
            time.sleep(SECOND_LOOK_S)
            found = self._reach(known)
        return found

    def _reach(self, known: Offsets) -> BoundsByPartition:
        """Ask again when a connection breaks: a broker that restarts must not end the query."""
        return Retrying(
            retry=retry_if_exception_type(BrokerUnreachable),
            wait=wait_fixed(0.25),
            stop=stop_after_delay(REQUEST_TIMEOUT_S),
            reraise=True,
        )(self._look, known)

    def _look(self, known: Offsets) -> BoundsByPartition:
        counts = self._cluster.partitions(self._topics)
        missing = {name for name, count in counts.items() if count is None} - {topic for topic, _ in known}
        if missing:
            raise TopicMissing(
                f"topic {', '.join(sorted(missing))} does not exist (option subscribe)",
                do="Create it, or correct the option; spark-eos never lets a broker create one by accident.",
            )
        partitions = [TopicPartition(name, i) for name, count in counts.items() for i in range(count or 0)]
        return self._offsets(partitions) if partitions else {}

    def _offsets(self, partitions: list[TopicPartition]) -> BoundsByPartition:
        for attempt in patiently():
            with attempt:
                # Both questions are on their way before the first answer is waited for.
                asked = [self._ask(partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
                earliest, end = (self._answers(futures) for futures in asked)
        return {key: Bounds(earliest[key], end[key]) for key in sorted(earliest.keys() & end.keys())}

    def _ask(
        self, partitions: list[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        futures: dict[TopicPartition, Future[ListOffsetsResultInfo]] = self._cluster.admin.list_offsets(
            dict.fromkeys(partitions, spec),
            # The last stable offset instead of the high watermark: nothing below it can still be aborted.
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return futures

    def _answers(self, futures: dict[TopicPartition, Future[ListOffsetsResultInfo]]) -> Offsets:
        found: Offsets = {}
        for partition, future in futures.items():
            try:
                found[partition.topic, partition.partition] = future.result(REQUEST_TIMEOUT_S + 5).offset
            except KafkaException as exception:
                if is_missing_topic(error_of(exception)):
                    continue  # deleted just now: absent
                if is_transient(exception):
                    self._cluster.refresh()
                    raise  # to `patiently`
                raise failure(exception, f"looking up offsets of topic {partition.topic}") from exception
        return found


def arrow_schema(*, headers: bool) -> pa.Schema:
    """Columns of Spark's Kafka source, with the types that Spark expects from a Python data source."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema([*fields, *([("headers", pa.list_(pa.field("element", header)))] if headers else [])])


def to_arrow(records: list[Message], wanted: OffsetRange, *, headers: bool) -> pa.RecordBatch:
    """Records of one partition as a batch; a record without headers has null there, as in Spark."""
    schema, count = arrow_schema(headers=headers), len(records)
    kinds, millis = zip(*map(Message.timestamp, records), strict=True)
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.repeat(wanted.topic, count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(list(map(Message.offset, records)), pa.int64()),
        pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(schema.field("timestamp").type),
        # librdkafka counts from 0 (not available), Kafka's Java client and Spark from -1.
        pc.subtract(pa.array(kinds, pa.int32()), pa.scalar(1, pa.int32())),
    ]
    if headers:
        columns.append(pa.array([_headers(record) for record in records], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _headers(record: Message) -> list[dict[str, Any]] | None:
    pairs = cast("list[tuple[str, bytes | None]] | None", record.headers())
    return [{"key": key, "value": value} for key, value in pairs] if pairs else None


def _offset(event: Message) -> int:
    return cast("int", event.offset())


def reader_settings(client: Mapping[str, str]) -> Settings:
    """Settings of a consumer that reads one range.

    fetch.wait.max.ms: a transactional topic ends in control records, where a broker has nothing to send and a
    consumer waits for so long (default 500 ms; measured: 8 near-empty partitions in 0.45 s instead of 2.3 s).
    fetch.queue.backoff.ms: after 100,000 prefetched records librdkafka stops fetching for so long (default 1 s;
    measured: 600,000 records of 200 bytes in 1.3 to 1.5 s instead of 2.7 to 2.8 s).
    """
    user = {k: v for k, v in base_settings(client).items() if k not in PRODUCER_ONLY}
    return {
        "fetch.wait.max.ms": "5",
        "fetch.queue.backoff.ms": "10",
        **user,
        # Required by the client, and never joined or committed to: partitions are assigned by hand.
        "group.id": "spark-eos-source",
        "enable.auto.commit": "false",
        "isolation.level": ISOLATION,
        "enable.partition.eof": "true",
        # A reader that jumped to another offset by itself would lose records silently.
        "auto.offset.reset": "error",
        "statistics.interval.ms": "1000",
    }


def read_range(
    client: Mapping[str, str], wanted: OffsetRange, *, headers: bool, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The committed records of a range, in order, in batches of at most 10,000 rows and about 16 MiB.

    The range ends at the record before `wanted.end`, at one beyond it, or where the consumer has read up to the
    last stable offset: the last records may be control records, aborted, or compacted away, and never show.

    Args:
        client: client settings, without the prefix.
        wanted: its end must not be above the last stable offset.
        headers: whether batches have the column headers.
        fail_on_data_loss: whether a range whose head is gone is an error, or read from where it starts now.

    Raises:
        DataLoss: the range's head, or the partition, is gone.
        BrokerUnreachable: no progress for `kafka.socket.timeout.ms`.
    """
    reader = _RangeReader(client, wanted, fail_on_data_loss=fail_on_data_loss)
    try:
        ask = FIRST_ASK_ROWS
        while not reader.done:
            records = reader.next(ask)
            if records:
                batch = to_arrow(records, wanted, headers=headers)
                ask = _rows_to_ask(batch)
                yield batch
    except KafkaException as exception:
        raise failure(exception, f"reading {wanted}") from exception
    finally:
        reader.close()


def _rows_to_ask(last: pa.RecordBatch) -> int:
    """As many rows of the size last seen as make a full batch."""
    fitting: int = MAX_BATCH_BYTES * last.num_rows // max(1, last.nbytes)
    return max(1, min(MAX_BATCH_ROWS, fitting))


class _RangeReader:
    """A consumer on one range: `next` until `done`."""

    def __init__(self, client: Mapping[str, str], wanted: OffsetRange, *, fail_on_data_loss: bool) -> None:
        self.done = False
        self._wanted, self._fail = wanted, fail_on_data_loss
        self._next = wanted.start
        self._fetched = wanted.start
        self._end_seen = wanted.end
        self._last_word = ""
        self._patience_s = int(client.get("socket.timeout.ms", DEFAULT_PATIENCE_MS)) / 1000
        self._progress_at = time.monotonic()
        callbacks = {"error_cb": self._note, "stats_cb": self._on_statistics}
        try:
            self._consumer = Consumer(reader_settings(client) | callbacks)
        except KafkaException as exception:
            raise failure(exception, "making a Kafka consumer") from exception
        self._assign(wanted.start)

    def close(self) -> None:
        self._consumer.close()

    def next(self, rows: int) -> list[Message]:
        """Records of the range that come next; none while there is nothing yet, or no more."""
        # No more than are left, so that a range without gaps does not wait for records beyond it.
        events = self._consumer.consume(min(rows, self._wanted.end - self._next), POLL_S)
        records = self._sort(events)
        if records:
            self._next = _offset(records[-1]) + 1
        if events:
            self._progress_at = time.monotonic()
        self.done = self.done or self._next >= self._wanted.end
        if not self.done:
            self._check_patience()
        return records

    def _sort(self, events: list[Message]) -> list[Message]:
        """The records of the range; notes and errors, which come in between, are dealt with."""
        if events and _offset(events[-1]) < self._wanted.end and not any(map(Message.error, events)):
            return events  # as nearly always, without a look at each
        records = []
        for event in events:
            error = event.error()
            if error is not None:
                self._on_error(error, event)
            elif _offset(event) < self._wanted.end:
                records.append(event)
            else:
                self.done = True
        return records

    def _on_error(self, error: KafkaError, event: Message) -> None:
        if is_end_of_partition(error):
            self._end_seen = _offset(event)
            self.done = self.done or self._end_seen >= self._wanted.end
        elif is_gone(error):
            self._on_loss(error)
        elif error.fatal():
            raise KafkaException(error)
        else:
            self._note(error)

    def _on_loss(self, error: KafkaError) -> None:
        told = f"{self._wanted}: offset {self._next} is not there any more ({error.str()})"
        if self._fail:
            raise data_loss(told)
        low = self._start_of_partition()
        if low is None or not self._next < low < self._wanted.end:
            log.warning("%s; the rest of the range is passed over", told)
            self.done = True
            return
        log.warning("%s; going on at offset %d", told, low)
        self._assign(low)

    def _start_of_partition(self) -> int | None:
        partition = TopicPartition(self._wanted.topic, self._wanted.partition)
        try:
            marks: tuple[int, int] = self._consumer.get_watermark_offsets(partition, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            if is_gone(error_of(exception)):
                return None
            raise
        return marks[0]

    def _assign(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._wanted.topic, self._wanted.partition, offset)])

    def _note(self, error: KafkaError) -> None:
        """Keep what went wrong for the case that nothing comes any more; librdkafka goes on trying by itself."""
        self._last_word = f"; the client's last word: {error.str()}"

    def _on_statistics(self, text: str) -> None:
        """Aborted records move the fetch position and nothing else: a long stretch of them is progress as well."""
        partitions = json.loads(text)["topics"].get(self._wanted.topic, {}).get("partitions", {})
        fetched = partitions.get(str(self._wanted.partition), {}).get("next_offset", -1)
        if fetched > self._fetched:
            self._fetched, self._progress_at = fetched, time.monotonic()

    def _check_patience(self) -> None:
        if time.monotonic() - self._progress_at < self._patience_s:
            return
        if self._end_seen < self._wanted.end:
            # Not at once: a new leader takes a moment to learn how far everything is stable.
            self._on_early_end()
            return
        raise BrokerUnreachable(
            f"no records for {self._patience_s:g} s while reading {self._wanted} (at {self._next}){self._last_word}",
            do="Check that the partition has a leader, and the client's Read permission on the topic. "
            "kafka.socket.timeout.ms sets how long to wait.",
        )

    def _on_early_end(self) -> None:
        told = f"{self._wanted}: the partition ends at {self._end_seen}"
        if self._fail:
            raise data_loss(told)
        log.warning("%s; the rest of the range is passed over", told)
        self.done = True


def data_loss(told: str) -> SparkEosError:
    """The error for records that are gone.

    Args:
        told: which, and how: "topic a, partition 0, to be read from offset 3, starts at 7".
    """
    return DataLoss(
        told,
        do="If these records may be left out, set failOnDataLoss to false for one run and restart. Else restore them, "
        "or raise the topic's retention before you start the query with a new checkpoint.",
    )
