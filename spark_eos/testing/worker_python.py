"""The Python of Spark's workers, so that they start quickly."""

from __future__ import annotations

import shlex
import sys
import uuid
from pathlib import Path


def worker_python(folder: Path) -> Path:
    """A script for PYSPARK_PYTHON: this Python, without the path that Spark gives to its workers.

    On that path is a pyspark.zip, from which each of the several processes that a query starts compiles pyspark anew,
    for more than a second (measured: 1.2 s); the installed one is compiled already.

    Args:
        folder: where the script is written; it may be there already, in use by another process.
    """
    script, draft = folder / "python", folder / f"python-{uuid.uuid4()}"
    draft.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    draft.chmod(0o755)
    return draft.rename(script)  # at once: another process may be using it
