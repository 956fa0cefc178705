"""The protocol's ports on confluent-kafka. Imports no Spark."""
