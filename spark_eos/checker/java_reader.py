"""A second reader, with Kafka's own client: what librdkafka takes for committed is what Java takes for it.

ReadCommitted.java reads; Java compiles it as it starts. Both sides write numbers in network order, texts and bytes with
their length before them, -1 for null:

    to it    patience in ms (8 bytes), settings: count (4) and name and value of each,
             partitions: count (4) and topic, number (4), first offset (8) and end (8) of each
    from it  of each record the number of its partition in that list (4), offset (8), timestamp (8), key, value,
             headers: count (4) and name and value of each; then -1 (4)
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from spark_eos.checker.java_settings import java_settings
from spark_eos.checker.reader import CannotCheck
from spark_eos.checker.rows import Place, Rows, digest
from spark_eos.checker.settings import Client
from spark_eos.errors import EmbeddedKafkaError
from spark_eos.testing.jars import java, kafka_jars

PROGRAM = Path(__file__).with_name("ReadCommitted.java")
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF")
END = -1
END_S = 30

_INT, _RECORD = struct.Struct(">i"), struct.Struct(">qq")


class JavaReader:
    """Kafka's own client, read_committed, in a process that lives while it reads.

    Java 17 or newer is needed, a JDK; and Kafka's JARs, which are downloaded once (40 MB).

    Args:
        bootstrap_servers: `host:port`, with commas between.
        client: further settings, by librdkafka's names, to log in with.

    Raises:
        CannotCheck: there is no Java or there are no JARs, or Java's client has no name for a setting.
    """

    def __init__(self, bootstrap_servers: str, client: Client | None = None) -> None:
        self._settings = java_settings(client or {}) | {
            "bootstrap.servers": bootstrap_servers,
            "isolation.level": "read_committed",
            "auto.offset.reset": "none",
            "allow.auto.create.topics": "false",
        }
        try:
            # With KAFKA_OPTS, as Kafka's own scripts
            self._command = [java(), *JVM, *shlex.split(os.environ.get("KAFKA_OPTS", ""))]
            self._command += ["-cp", f"{kafka_jars()}/*", str(PROGRAM)]
        except EmbeddedKafkaError as error:
            raise CannotCheck(str(error)) from error

    def read(self, starts: Mapping[Place, int], ends: Mapping[Place, int], patience_s: float) -> dict[Place, Rows]:
        """The committed records between these offsets, with digests of all that they have.

        Args:
            starts: the first offset of each partition.
            ends: where each is to end.
            patience_s: how long to go on, in seconds, when nothing comes.

        Raises:
            CannotCheck: Java does not start, or its client could not read to the ends.
        """
        places = [place for place, end in ends.items() if starts[place] < end]
        asked = self._asked(places, starts, ends, patience_s)
        rows: dict[Place, Rows] = {}
        with self._running(asked) as answer:
            while (number := _int(answer)) != END:
                offset, timestamp = _RECORD.unpack(_exactly(answer, _RECORD.size))
                key, value = _bytes(answer), _bytes(answer)
                headers = [((_bytes(answer) or b"").decode(), _bytes(answer)) for _ in range(_int(answer))]
                rows.setdefault(places[number], Rows()).add(offset, digest(key, value, headers, timestamp))
        return rows

    def _asked(
        self, places: list[Place], starts: Mapping[Place, int], ends: Mapping[Place, int], patience_s: float
    ) -> bytes:
        parts = [struct.pack(">qi", int(patience_s * 1000), len(self._settings))]
        parts += [_text(name) + _text(value) for name, value in self._settings.items()]
        parts.append(_INT.pack(len(places)))
        parts += [_text(place[0]) + struct.pack(">iqq", place[1], starts[place], ends[place]) for place in places]
        return b"".join(parts)

    @contextmanager
    def _running(self, asked: bytes) -> Iterator[BinaryIO]:
        """What Java answers. Settings go to its stdin: a command line can be seen by everyone."""
        with (
            tempfile.TemporaryFile() as told,
            subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told) as process,
        ):
            try:
                stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
                stdin.write(asked)
                stdin.close()
                yield stdout
            except (BrokenPipeError, EOFError):
                process.wait(END_S)
                told.seek(0)
                lines = told.read().decode(errors="replace").strip().splitlines() or [f"code {process.returncode}"]
                raise CannotCheck(f"Java's client could not read: {lines[-1]}") from None
            finally:
                process.kill()


def _text(text: str) -> bytes:
    content = text.encode()
    return _INT.pack(len(content)) + content


def _int(answer: BinaryIO) -> int:
    return int(_INT.unpack(_exactly(answer, _INT.size))[0])


def _bytes(answer: BinaryIO) -> bytes | None:
    size = _int(answer)
    return None if size < 0 else _exactly(answer, size)


def _exactly(answer: BinaryIO, size: int) -> bytes:
    content = answer.read(size)
    if len(content) < size:
        raise EOFError
    return content
