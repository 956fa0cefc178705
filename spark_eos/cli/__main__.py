"""`python -m spark_eos.cli`: the same as `spark-eos`."""

from spark_eos.cli import app

app()
