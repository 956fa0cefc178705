"""Fixtures for pytest: `pytest_plugins = ["spark_eos.testing.fixtures"]` in your tests' topmost conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_eos.testing.embedded import EmbeddedKafka
from spark_eos.testing.simulated.kafka import SimulatedKafka


@pytest.fixture
def simulated_kafka() -> SimulatedKafka:
    """Brokers in memory, new for each test, on a network without mishaps."""
    return SimulatedKafka()


@pytest.fixture(scope="session")
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """A real broker, one for the whole test run."""
    with EmbeddedKafka() as broker:
        yield broker
