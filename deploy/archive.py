"""The archive of packages that a job takes to a cluster: `make archive`.

    python deploy/archive.py WHEEL ARCHIVE [EXTRA ...]

Unpacked it is lib/, with what spark-eos and its extras need but Spark, and bin/python, which runs the machine's Python
of the same minor version on it. Versions and hashes are those of requirements.lock.

Why not venv-pack: it keeps the venv's link to its interpreter and that one's folder in pyvenv.cfg (0.2.0 with Python
3.11), so each machine would need Python at the very path that it has where the archive is made.
"""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import requires
from pathlib import Path
from py_compile import PycInvalidationMode

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parents[1] / "requirements.lock"
OF_SPARK = {"pyspark", "py4j"}
"""Not in the archive: a cluster has its own."""
PYTHON = f"""#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd) || exit
PYTHONPATH=$here/lib${{PYTHONPATH:+:$PYTHONPATH}} exec python3.{sys.version_info.minor} "$@"
"""
# Tests of pandas and numpy, headers and Cython sources of pyarrow, and commands with this machine's Python in them.
NOT_NEEDED = ("**/tests", "pyarrow/include", "pyarrow/includes", "pyarrow/src", "bin")


def needed(extras: set[str]) -> set[str]:
    """Names of what spark-eos needs in this environment, and what that needs."""
    found: set[str] = set()
    left = [("spark-eos", frozenset(extras))]
    seen = set(left)
    while left:
        name, of = left.pop()
        for requirement in map(Requirement, requires(name) or ()):
            other = canonicalize_name(requirement.name)
            marker = requirement.marker
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in of | {""})
            if wanted and other not in OF_SPARK:
                found.add(other)
                if (step := (other, frozenset(requirement.extras))) not in seen:
                    seen.add(step)
                    left.append(step)
    return found


def locked(names: set[str]) -> str:
    """The part of requirements.lock that pins them; it may pin one differently for each version of Python."""
    entries = re.split(r"^(?=\w)", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "".join(entry for entry in entries if entry and entry[: entry.index("==")] in names)


def install(target: Path, wheel: Path, names: set[str]) -> None:
    """The pinned packages and the wheel into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-compile", "--only-binary=:all:", "--target", str(target)]
    target.mkdir(parents=True)
    pins = target.with_name("requirements.txt")
    pins.write_text(locked(names), encoding="utf-8")
    subprocess.run([*pip, "--require-hashes", "-r", str(pins)], check=True)
    pins.unlink()
    zipfile.ZipFile(wheel).extractall(target)  # plain Python; pip would note where on this machine it came from


def tidy(target: Path) -> None:
    """Leave out what no task imports, and compile the rest: each executor unpacks the archive anew."""
    for pattern in NOT_NEEDED:
        for folder in list(target.glob(pattern)):
            shutil.rmtree(folder)
    by_hash = PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, workers=0, stripdir=str(target.parent), invalidation_mode=by_hash)


def main(wheel: Path, archive: Path, extras: set[str]) -> None:
    """Make the archive in a scratch folder, and put it in its place when it is whole."""
    with tempfile.TemporaryDirectory() as scratch:
        env = Path(scratch, "env")
        install(env / "lib", wheel, needed(extras))
        tidy(env / "lib")
        python = env / "bin" / "python"
        python.parent.mkdir()
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)
        draft = archive.with_suffix(".draft")
        with tarfile.open(draft, "w:gz", compresslevel=6) as tar:
            tar.add(env, ".")
        draft.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), set(sys.argv[3:]))
