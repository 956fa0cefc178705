"""A broker that dies between the decision to commit and its markers: Kafka 4.3.0 to 4.4.0 never write those.

With SPARK_EOS_KAFKA_VERSION=4.3.0 this fails: the coordinator takes a partition without a leader for a deleted one.
"""

from __future__ import annotations

from confluent_kafka import Producer
from proxy import Api, Effect, proxied_kafka
from tests_support import committed_values

TOPIC = "out"


def test_a_transaction_that_was_to_be_committed_is_committed_when_the_broker_is_back():
    with proxied_kafka() as (kafka, proxy):
        kafka.create_topic(TOPIC)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "id", "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(TOPIC, b"committed")
        producer.flush(30)
        # They come to nothing until the broker is there again; for a moment none of its partitions has a leader.
        proxy.arm(Api.WRITE_TXN_MARKERS, Effect.RESET_BEFORE, times=10_000)
        producer.commit_transaction(30)
        kafka.kill(0)
        kafka.restart(0)
        proxy.disarm()
        assert committed_values(kafka.bootstrap_servers, TOPIC) == [b"committed"]
