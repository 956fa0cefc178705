"""A broker that is stopped like a program in a debugger: its connections stay open, and it says nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil


def broker_process(kafka) -> psutil.Process:
    leash = psutil.Process(kafka._brokers[0]._process.pid)
    (broker,) = leash.children()
    return broker


def freeze(broker: psutil.Process) -> None:
    """SIGSTOP, and wait until it has taken hold of all threads: on a busy machine one could still answer."""
    broker.send_signal(signal.SIGSTOP)
    while any(thread_state(thread) not in "Tt" for thread in broker.threads()):
        time.sleep(0.01)


def thread_state(thread) -> str:
    return Path(f"/proc/{thread.id}/stat").read_text().rpartition(")")[2].split()[0]
