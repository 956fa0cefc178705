"""Write what is made from code into the docs: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from spark_eos.reference import source_table

SOURCE = Path(__file__).parent / "SOURCE.md"


def with_table(text: str) -> str:
    """The page with the table of options as the code has it."""
    table = f"<!-- options -->\n{source_table()}<!-- /options -->"
    return re.sub(r"<!-- options -->.*<!-- /options -->", lambda _: table, text, flags=re.DOTALL)


if __name__ == "__main__":
    SOURCE.write_text(with_table(SOURCE.read_text()))
