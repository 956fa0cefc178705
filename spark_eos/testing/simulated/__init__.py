"""Kafka in memory: see `kafka.SimulatedKafka`."""
