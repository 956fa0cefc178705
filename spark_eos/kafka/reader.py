"""Reading bounded ranges of offsets from Kafka as Arrow, in a task."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_eos.errors import BrokerUnreachable
from spark_eos.kafka.admin import DENIED_AFTER_S, REQUEST_TIMEOUT_S
from spark_eos.kafka.arrow import to_arrow
from spark_eos.kafka.config import Settings, admin_settings
from spark_eos.kafka.failures import (
    LastWord,
    error_of,
    failure,
    is_denied,
    is_denied_group,
    is_end_of_partition,
    is_gone,
)
from spark_eos.kafka.loss import data_loss
from spark_eos.kafka.offsets import OffsetRange
from spark_eos.source_options import ISOLATION, SourceOptions

log = logging.getLogger(__name__)

MAX_BATCH_ROWS = 10_000
MAX_BATCH_BYTES = 16 << 20
FIRST_ASK_ROWS = 100
"""Rows to ask for before it is known how large they are."""

POLL_S = 0.01
"""How long one `consume` may wait: it waits for all that was asked for, even when the range has no more."""


def reader_settings(options: SourceOptions) -> Settings:
    """Settings of a consumer that reads ranges.

    fetch.wait.max.ms: a transactional topic ends in control records, where a broker has nothing to send and a
    consumer waits for so long (default 500 ms; measured: 8 near-empty partitions in 0.45 s instead of 2.3 s).
    fetch.queue.backoff.ms: after 100,000 prefetched records librdkafka stops fetching for so long (default 1 s;
    measured: 600,000 records of 200 bytes in 1.3 to 1.5 s instead of 2.7 to 2.8 s).
    queued.min.messages: what is fetched beyond the end of a range is thrown away (default 100,000 records; measured
    with batches of 8 ranges of 125,000: 8 to 20 % more rows a second).
    """
    return {
        "fetch.wait.max.ms": "5",
        "fetch.queue.backoff.ms": "10",
        "queued.min.messages": "20000",
        **admin_settings(options.client),
        # Not joined, and nothing is committed to it.
        "group.id": options.placeholder_group,
        "enable.auto.commit": "false",
        "isolation.level": ISOLATION,
        "enable.partition.eof": "true",
        # A reader that jumped to another offset by itself would lose records silently.
        "auto.offset.reset": "error",
        "statistics.interval.ms": "1000",
    }


def read_ranges(options: SourceOptions, work: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The committed records of some ranges, one after the other, each in order.

    Batches have at most 10,000 rows and about 16 MiB, and the rows of one range. A range ends at the record before
    its end, at one beyond it, or where the consumer has read up to the last stable offset: the last records may be
    control records, aborted, or compacted away, and never show.

    Args:
        options: the source's.
        work: ranges whose ends are not above the last stable offset.

    Raises:
        DataLoss: the head of a range, or a partition, is gone.
        AccessDenied: the brokers do not let the client in, or it may not read the topic.
        BrokerUnreachable: no progress for `options.poll_timeout_s`.
    """
    reader: _RangeReader | None = None
    try:
        for wanted in work:
            reader = reader or _RangeReader(options)
            yield from _read(reader, wanted, headers=options.include_headers)
    finally:
        if reader is not None:
            reader.close()


def _read(reader: _RangeReader, wanted: OffsetRange, *, headers: bool) -> Iterator[pa.RecordBatch]:
    ask = FIRST_ASK_ROWS
    try:
        reader.begin(wanted)
        while not reader.done:
            batch = _next_batch(reader, ask, wanted, headers=headers)
            if batch is not None:
                ask = _rows_to_ask(batch)
                yield batch
    except KafkaException as exception:
        raise failure(exception, f"reading {wanted}") from exception


def _next_batch(reader: _RangeReader, rows: int, wanted: OffsetRange, *, headers: bool) -> pa.RecordBatch | None:
    """The next records; None while there are none.

    Without the garbage collector: it would go through the ten thousands of messages made here again and again, for
    half of the time (measured), and they are gone when this returns.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        records = reader.next(rows)
        return to_arrow(records, wanted, headers=headers) if records else None
    finally:
        if collects:
            gc.enable()


def _rows_to_ask(last: pa.RecordBatch) -> int:
    """As many rows of the size last seen as make a full batch."""
    fitting: int = MAX_BATCH_BYTES * last.num_rows // max(1, last.nbytes)
    return max(1, min(MAX_BATCH_ROWS, fitting))


class _RangeReader:
    """A consumer that reads ranges one after the other: `begin`, then `next` until `done`."""

    def __init__(self, options: SourceOptions) -> None:
        self._fail, self._patience_s = options.fail_on_data_loss, options.poll_timeout_s
        self._last_word = LastWord()
        callbacks = {"error_cb": self._last_word, "stats_cb": self._on_statistics}
        try:
            self._consumer = Consumer(reader_settings(options) | callbacks)
        except KafkaException as exception:
            raise failure(exception, "making a Kafka consumer") from exception

    def begin(self, wanted: OffsetRange) -> None:
        """Go on with a range."""
        self.done = False
        self._wanted = wanted
        self._next = self._fetched = wanted.start
        self._end_seen = wanted.end
        self._asked = False
        self._progress_at = time.monotonic()
        self._assign(wanted.start)

    def close(self) -> None:
        """End the client."""
        self._consumer.close()

    def next(self, rows: int) -> list[Message]:
        """Records of the range that come next; none while there is nothing yet, or no more."""
        # No more than are left, so that a range without gaps does not wait for records beyond it.
        events = self._consumer.consume(min(rows, self._wanted.end - self._next), POLL_S)
        records = self._sort(events)
        if records:
            self._next = _offset(records[-1]) + 1
            self._progress_at = time.monotonic()
        self.done = self.done or self._next >= self._wanted.end
        if not self.done:
            self._check_patience()
        return records

    def _sort(self, events: list[Message]) -> list[Message]:
        """The records of the range; notes and errors, which come in between, are dealt with."""
        # Errors first: those that are of no partition have no offset.
        if events and not any(map(Message.error, events)) and _offset(events[-1]) < self._wanted.end:
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
        elif is_denied_group(error):
            pass  # the client looks for the group's coordinator, though the group is never joined
        elif error.fatal() or is_denied(error):
            raise KafkaException(error)
        else:
            self._last_word(error)

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

    def _on_statistics(self, text: str) -> None:
        """Aborted records move the fetch position and nothing else: a long stretch of them is progress as well."""
        partitions = json.loads(text)["topics"].get(self._wanted.topic, {}).get("partitions", {})
        fetched = partitions.get(str(self._wanted.partition), {}).get("next_offset", -1)
        if fetched > self._fetched:
            self._fetched, self._progress_at = fetched, time.monotonic()

    def _check_patience(self) -> None:
        silent_s = time.monotonic() - self._progress_at
        if silent_s >= DENIED_AFTER_S:
            self._check_access()
        if silent_s < self._patience_s:
            return
        if self._end_seen < self._wanted.end:
            # Not at once: a new leader takes a moment to learn how far everything is stable.
            self._on_early_end()
            return
        raise BrokerUnreachable(
            f"no records for {self._patience_s:g} s while reading {self._wanted} (at {self._next}){self._last_word}",
            do="Check that the brokers are up and the partition has a leader, and kafka.security.protocol. "
            "kafkaConsumer.pollTimeoutMs sets how long to wait.",
        )

    def _check_access(self) -> None:
        denial = self._last_word.denial(self._progress_at) or self._denial_of_topic()
        if denial is not None:
            raise KafkaException(denial)

    def _denial_of_topic(self) -> KafkaError | None:
        """Asked once a range: the client says nothing of a topic that it may not see."""
        if self._asked:
            return None
        self._asked = True
        try:
            topics = self._consumer.list_topics(self._wanted.topic, timeout=DENIED_AFTER_S).topics
        except KafkaException:
            return None
        error: KafkaError | None = topics[self._wanted.topic].error
        return error if error is not None and is_denied(error) else None

    def _on_early_end(self) -> None:
        told = f"{self._wanted}: the partition ends at {self._end_seen}"
        if self._fail:
            raise data_loss(told)
        log.warning("%s; the rest of the range is passed over", told)
        self.done = True


def _offset(event: Message) -> int:
    return cast("int", event.offset())
