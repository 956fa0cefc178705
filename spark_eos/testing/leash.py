"""Runs a broker as a child, and ends it as soon as the Python process that wanted it is gone.

    python leash.py <pid of the owner> <folder> <command> ...

Why a process of its own: PR_SET_PDEATHSIG, set by the owner itself, would fire when the *thread* that started the
broker ends, and preexec_fn is unsafe in a process with threads. This one has a single thread. It looks twice a second
whether the owner is still its parent, which finds a SIGKILLed owner on every Unix. A pipe held by the owner would do as
well, were it not inherited by everything the owner forks.

SIGTERM is handed on. SIGUSR1 means SIGKILL. Exits when the broker has, so that its port is free by then. Removes the
folder, unless it is "", where the owner is no longer there to do so.
Runs as a script and imports nothing of this package.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys

LOOK_EVERY_S = 0.5
PR_SET_PDEATHSIG = 1
HANDED_ON = {signal.SIGTERM, signal.SIGUSR1}


def before_exec() -> None:
    """In the child: take signals again; on Linux, have the kernel end it when the leash is SIGKILLed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(owner: int, folder: str, command: list[str]) -> int:
    """Run `command` until it ends or `owner` is gone, and then remove `folder`; returns the command's exit code."""
    # A signal that comes before the handlers are there waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    broker = subprocess.Popen(command, preexec_fn=before_exec)  # noqa: PLW1509 (one thread only)

    def look(*_: object) -> None:
        if os.getppid() != owner:
            broker.kill()

    signal.signal(signal.SIGTERM, lambda *_: broker.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: broker.kill())
    signal.signal(signal.SIGALRM, look)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
    code = broker.wait()
    # Else it could end this process while it is going: Python takes its handlers back first.
    signal.setitimer(signal.ITIMER_REAL, 0)
    if folder and os.getppid() != owner:
        shutil.rmtree(folder, ignore_errors=True)  # the leashes of other brokers do the same
    return code


if __name__ == "__main__":
    sys.exit(abs(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
