"""The settlements → refunds job, exactly once: refund, audit row and source offset in one Kafka transaction.

    python jobs/settlements_to_refunds.py --bootstrap-servers localhost:9092 --checkpoint checkpoints/refunds
    ./spark-submit.sh jobs/settlements_to_refunds.py --config conf/production.toml

All options are in conf/settlements_to_refunds.toml; the rules for refunds are in refunds.py.
"""

from __future__ import annotations

from job_options import job_app
from job_runner import streaming
from settlements_job import RefundsSettings, SettlementsJob

from spark_eos import KafkaSink


def exactly_once(settings: RefundsSettings) -> KafkaSink:
    """The connector's sink: whatever crashes when, each batch is in the topics once."""
    return KafkaSink(settings.sink_options)


app = job_app(
    RefundsSettings,
    "Write a refund and its audit row for each settlement that calls for one, exactly once.",
    streaming(lambda settings: SettlementsJob(settings, exactly_once)),
)

if __name__ == "__main__":
    app()
