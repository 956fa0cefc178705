"""Ports on loopback for brokers that come and go."""

from __future__ import annotations

import random
import socket

from spark_eos.errors import EmbeddedKafkaError

# Below the range that the system takes outgoing ports from: a client that keeps connecting to a killed broker's port
# may otherwise be given that very port as its own, connect to itself, and keep the broker from coming back.
PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on.

    Raises:
        EmbeddedKafkaError: there are not so many.
    """
    # SystemRandom: tests that seed `random` the same would otherwise race for the same ports.
    candidates = iter(random.SystemRandom().sample(PORTS, len(PORTS)))
    found = [port for port, _ in zip(filter(_is_free, candidates), range(count), strict=False)]
    if len(found) < count:
        raise EmbeddedKafkaError(
            f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free",
            do="end some of the programs that listen there.",
        )
    return found


def ports_from(first: int, count: int) -> list[int]:
    """`first` and those that follow it, `count` in all.

    Raises:
        EmbeddedKafkaError: one of them is taken, or no port.
    """
    wanted = list(range(first, first + count))
    for port in wanted:
        if not 1 <= port <= 65_535 or not _is_free(port):
            raise EmbeddedKafkaError(f"port {port} is taken or can't be used", do="choose another port.")
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka does it: a port whose last connections linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
