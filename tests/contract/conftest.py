"""One suite for two kinds of brokers: what holds on Kafka holds on SimulatedKafka, or the simulation is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clusters import Cluster, RealCluster, SimulatedCluster
from tests_support import QueryCalls


@pytest.fixture(params=["kafka", "simulated"])
def brokers(request) -> Cluster:
    return RealCluster(request.getfixturevalue("kafka")) if request.param == "kafka" else SimulatedCluster()


@pytest.fixture
def topic(brokers: Cluster) -> Callable[..., str]:
    """Makes a topic with a name of its own: `topic(partitions=1, name=None)`."""
    return brokers.topic


@pytest.fixture
def query(brokers: Cluster, topic, query_id) -> QueryCalls:
    return brokers.query(query_id, topic(3, name="out"))
