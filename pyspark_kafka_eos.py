"""Found by Spark by its name: Spark imports top-level modules named pyspark_* and registers their DefaultSource.

So `spark.readStream.format("kafka-eos")` works wherever the package is installed, with no call to `register`.
"""

from spark_eos.spark.source import KafkaEosDataSource as DefaultSource

__all__ = ["DefaultSource"]
