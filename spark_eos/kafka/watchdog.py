"""A bound on calls that may not keep their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_eos.kafka.failures import timed_out

GRACE_S = 5.0
"""How much longer than its own timeout a call may take before it counts as stuck."""


def bounded(call: Callable[[float], None], timeout_s: float, doing: str) -> None:
    """Run `call(timeout_s)`, and give up on it when it does not return in time.

    librdkafka's transactional calls can block past their timeout, `send_offsets_to_transaction` for ever
    (librdkafka issues 5456 and 5511). A call that is given up goes on in a daemon thread, whose producer must not
    be used again.

    Raises:
        KafkaException: the call's own, or a time-out.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call(timeout_s)
        except BaseException as error:  # handed to the caller, whatever it is
            raised.append(error)

    thread = threading.Thread(target=run, name=f"spark-eos {doing}", daemon=True)
    thread.start()
    thread.join(timeout_s + GRACE_S)
    if thread.is_alive():
        raise timed_out(f"the client did not return within {timeout_s + GRACE_S:.0f} s")
    if raised:
        raise raised.pop()
