"""The leash of a child process: how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark_eos.testing import leash

SCRIPT = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(leash.__file__).parent)!r})
import leash
code = leash.main(os.getppid(), "", ["false"])
print(code, signal.getitimer(signal.ITIMER_REAL))
"""


def test_no_alarm_is_left_that_would_end_a_process_that_is_slow_to_go():
    """Seen on a busy machine: the job had ended well, and its leash with SIGALRM."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split(" ", 1) == ["1", "(0.0, 0.0)\n"]
