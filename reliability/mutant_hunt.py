"""After how many seeds the simulation notices the package in a folder; a process of its own, started by `mutants.py`.

python reliability/mutant_hunt.py FOLDER SEEDS     # prints the last seed's number, from 1, and its anomaly
"""

from __future__ import annotations

import logging
import sys

from mutant_edits import must_be_in
from simulation import seeded


def hunt(seeds: int) -> tuple[int, str]:
    """Up to the first anomaly: how many seeds it took, and what it is; empty if there is none in all of them."""
    for number in range(1, seeds + 1):
        if anomaly := seeded(number - 1).anomaly:
            return number, anomaly
    return seeds, ""


if __name__ == "__main__":
    folder, seeds = sys.argv[1:]
    must_be_in(folder)
    # Aborts that a fenced client could not do are told as warnings, thousands of them here.
    logging.getLogger("spark_eos").setLevel(logging.ERROR)
    print(*hunt(int(seeds)), sep="\t")
