"""How the jobs of the tests end, each a process of its own: with its error where it failed."""

from __future__ import annotations

from typing import Any


def run_to_its_end(spark: Any, writer: Any, says_its_run: bool = False) -> int:
    """Start a query and wait for its end; the exit code. Prints `error TEXT` of one that failed.

    Args:
        spark: its session, which is stopped; a Connect client's too.
        writer: what starts it.
        says_its_run: whether it prints `run ID` first.
    """
    try:
        query = writer.start()
        if says_its_run:
            print(f"run {query.runId}", flush=True)
        query.awaitTermination()
        if query.exception() is not None:  # Connect's client does not raise it
            raise query.exception()
    except Exception as error:
        print(f"error {error}", flush=True)
        return 1
    finally:
        spark.stop()
    return 0
