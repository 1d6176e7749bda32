"""Write the table "All formats" of docs/formats.md from what each format says of itself: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from logparse.libraries import FORMATS

DOCUMENT = Path(__file__).parent / "formats.md"
_TABLE = re.compile(r"(?<=\n)\| format \| versions seen \|.*?(?=\n\n)", re.DOTALL)


def table_of_formats() -> str:
    """A row per format, by name: its ``seen``, ``example`` and ``gives``."""
    out = ["| format | versions seen | a line of it | what is read |", "|---|---|---|---|"]
    for x in sorted(FORMATS, key=lambda format: format.name):
        out.append(f"| `{x.name}` | {x.seen} | `{x.example}` | {x.gives} |")
    return "\n".join(out)


def renewed(text: str) -> str:
    """The document with the table as the formats state it now."""
    return _TABLE.sub(lambda match: table_of_formats(), text)


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
