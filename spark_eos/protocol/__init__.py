"""The exactly-once protocol: no Spark, no Kafka, only the standard library."""
