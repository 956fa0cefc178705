"""Runs a command, and ends its whole process group with SIGKILL as soon as the process that wanted it is gone.

    python group_leash.py <pid of the owner> <command> ...

`spark_eos.testing.leash` does it for one process. Spark's scripts and workers start others, which would outlive them.
To be started in a session, and so a group, of its own. SIGTERM is handed on to the command alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

LOOK_EVERY_S = 0.5


def main(owner: int, command: list[str]) -> int:
    """Run `command` until it ends or `owner` is gone; returns its exit code."""

    def look(*_: object) -> None:
        if os.getppid() != owner:
            os.killpg(0, signal.SIGKILL)

    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
    code = process.wait()
    signal.setitimer(signal.ITIMER_REAL, 0)  # else it could end this process while it is going
    return abs(code)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
