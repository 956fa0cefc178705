"""A Spark for tests: compiling costs more than it saves in so short a life. It makes them a fifth faster."""

QUICK = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "1",  # of 50, for a table of a few files
}
"""Settings by name."""
