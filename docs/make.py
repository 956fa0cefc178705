"""Write what is made from code into the docs: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from spark_eos.reference import sink_table, source_table

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "reliability"))

from fault_table import fault_table  # noqa: E402
from ways_table import ways_table  # noqa: E402

TABLES = {
    "SOURCE.md": {"options": source_table},
    "SINK.md": {"options": sink_table},
    "reliability.md": {"faults": fault_table, "ways": ways_table},
}
"""Page to the marks of the tables that it has from the code, or from results, and what makes each."""


def up_to_date(page: str) -> str:
    """The text of a page, with its tables as they should be."""
    text = (DOCS / page).read_text()
    for mark, table in TABLES[page].items():
        text = _with_table(text, mark, f"<!-- {mark} -->\n{table()}<!-- /{mark} -->")
    return text


def _with_table(text: str, mark: str, made: str) -> str:
    return re.sub(rf"<!-- {mark} -->.*<!-- /{mark} -->", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in TABLES:
        (DOCS / page).write_text(up_to_date(page))
