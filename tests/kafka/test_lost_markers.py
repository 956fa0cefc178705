"""A partition without a leader when a transaction is to be committed: Kafka 4.3.0 to 4.4.0 never write its marker.

With SPARK_EOS_KAFKA_VERSION=4.3.0 this fails, each time: the coordinator takes the partition for a deleted one
(KAFKA-20734). The broker that has the partition's only replica is killed before the commit, and comes back after it.
"""

from __future__ import annotations

from cells_brokers import java_hash
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from kafka_log import until
from tests_support import committed_values

from spark_eos.testing import EmbeddedKafka

TOPIC, STATE_TOPIC, TRANSACTIONAL_ID = "out", "__transaction_state", "id"
NO_LEADER = -1


def test_a_transaction_that_was_to_be_committed_is_committed_when_the_broker_is_back() -> None:
    with EmbeddedKafka(brokers=3) as kafka:
        client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        admin = AdminClient(client)

        def partitions(topic: str) -> dict[int, PartitionMetadata]:
            return admin.list_topics(timeout=10).topics[topic].partitions

        states = partitions(STATE_TOPIC)
        coordinator = states[abs(java_hash(TRANSACTIONAL_ID)) % len(states)].leader
        alone = (coordinator + 1) % 3
        created = NewTopic(TOPIC, 1, replica_assignment=[[alone]], config={"min.insync.replicas": "1"})
        admin.create_topics([created])[TOPIC].result(30)
        kafka.create_topic(TOPIC, exist_ok=True)  # waits until it answers
        producer = Producer({**client, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(TOPIC, b"committed")
        producer.flush(30)
        kafka.kill(alone)
        until(lambda: partitions(TOPIC)[0].leader == NO_LEADER)
        producer.commit_transaction(30)
        kafka.restart(alone)
        assert committed_values(kafka.bootstrap_servers, TOPIC) == [b"committed"]
