"""Write what is made from code into the docs: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from spark_eos.reference import sink_table, source_table

DOCS = Path(__file__).parent
TABLES = {"SOURCE.md": source_table, "SINK.md": sink_table}
"""Page to the table that it has from the code."""


def up_to_date(page: str) -> str:
    """The text of a page, with its table of options as the code has it."""
    table = f"<!-- options -->\n{TABLES[page]()}<!-- /options -->"
    text = (DOCS / page).read_text()
    return re.sub(r"<!-- options -->.*<!-- /options -->", lambda _: table, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in TABLES:
        (DOCS / page).write_text(up_to_date(page))
