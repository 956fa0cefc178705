"""What watches all along, while a pipeline runs and is killed."""

from __future__ import annotations

from spark_eos.checker.live import LiveReader
from spark_eos.checker.offsets import OffsetsWatcher
from spark_eos.checker.reader import Isolation
from spark_eos.checker.settings import Client
from spark_eos.checker.topic_log import Topics

LEDGER = "spark-eos-ledger"


class Watch:
    """A read_committed reader of the outputs and a watcher of the group's offsets, from `with` on.

    Moments in which brokers are away, or stand still, are no anomaly. Hand it to `check` afterwards, or before the end
    of the `with` block, which then ends the watching.

    Args:
        bootstrap_servers: `host:port`, with commas between.
        outputs: topics to read; they must exist.
        group: consumer group of the pipeline, None for one whose offsets are not to be watched.
        inputs: topics whose committed offsets are watched.
        ledger: one more of these; it need not exist. None: none, as for a query that goes on with an older copy of its
            checkpoint, whose batch ids start again.
        isolation: of the reader. `read_uncommitted` stands for a broken one.
        client: further settings of the clients, by librdkafka's names, to log in with.

    Raises:
        CannotCheck: a topic does not exist, or nobody answers.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        outputs: tuple[str, ...],
        *,
        group: str | None = None,
        inputs: tuple[str, ...] = (),
        ledger: str | None = LEDGER,
        isolation: Isolation = "read_committed",
        client: Client | None = None,
    ) -> None:
        topics = Topics(bootstrap_servers, outputs, client=client)
        self.reader = LiveReader(topics, isolation)
        watched = (*inputs, ledger) if ledger else inputs
        self.offsets = OffsetsWatcher(topics.client, group, watched) if group else None

    def __enter__(self) -> Watch:
        self.reader.__enter__()
        if self.offsets:
            self.offsets.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in filter(None, (self.reader, self.offsets)):
            watcher.stop()

    def finish(self, wait_s: float) -> None:
        """End watching, and have the reader read on to the ends.

        Raises:
            CannotCheck: a watcher died or hangs, or the ends could not be reached.
        """
        if self.offsets:
            self.offsets.ended()
        self.reader.read_on(wait_s)
