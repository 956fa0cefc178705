"""Executes notebooks from top to bottom, and saves their outputs in place.

    make notebooks                    # or: python notebooks/execute.py 3_tail_latency

The kernel is the Python that runs this, in a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbformat import NotebookNode

from spark_eos.testing import worker_python

FOLDER = Path(__file__).parent
CELL_TIMEOUT_S = 240


class ThisPython(AsyncKernelManager):
    """Starts the Python that runs this, whatever kernels are installed.

    What other processes print, JVMs and the C library of the Kafka client, stays out of the notebook.
    """

    @property
    def kernel_spec(self) -> KernelSpec:
        launch = ["-m", "ipykernel_launcher", "-f", "{connection_file}", "--IPKernelApp.capture_fd_output=False"]
        return KernelSpec(argv=[sys.executable, *launch], display_name="Python 3", language="python")


def execute(notebook: Path, folder: Path) -> NotebookNode:
    """The notebook with its outputs, as it is committed: nothing in it tells when, where and with which kernel it ran.

    Args:
        notebook: file.
        folder: where the kernel runs. What other processes print goes there, to a file with the notebook's name.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    found = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        found,
        timeout=CELL_TIMEOUT_S,
        kernel_manager_class=ThisPython,
        coalesce_streams=True,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    with (folder / f"{notebook.stem}.log").open("wb") as log:
        client.execute(stdout=log, stderr=log)
    found.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return found


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("PYSPARK_PYTHON", str(worker_python(Path(folder))))
        for notebook in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
            began = time.monotonic()
            nbformat.write(execute(notebook, Path(folder)), notebook)
            print(f"{notebook.name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
