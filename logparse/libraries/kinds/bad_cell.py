"""Explain which cell of a table is not a number, if a row cannot be read for this reason.

The explanation names the cell's column and quotes its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

_CONVERSION = regex(
    r"(?s)(?:could not convert string to (?P<real>float)|invalid literal for int\(\) with base 10): (?P<text>.*)"
)
"""Pattern of the messages of Python's ``float`` and ``int``, which name no column."""
_SHOWN = 40


def reason_of(error: ValueError, cells: Mapping[str, str]) -> str:
    """Return a message that says which cell of a table row cannot be read, for example ``us is 'x1', not a number``.

    ``cells`` maps the names of the columns to the row's cells.
    """
    match = _CONVERSION.search(str(error))
    # An error that does not come from the conversion of a number has a message of its own.
    if match is None:
        return str(error)
    return f"{str(error)[: match.start()]}{_named(match, cells)}"


def _named(match: re.Match[str], cells: Mapping[str, str]) -> str:
    what = "a number" if match["real"] else "a whole number"
    for name, cell in cells.items():
        if match["text"] in (repr(cell), repr(cell.strip())):
            return f"{name} is {cell.strip()[:_SHOWN]!r}, not {what}" if cell.strip() else f"{name} is empty"
    held = match["text"].strip("'\"")
    within = next((name for name, cell in cells.items() if held and held in cell), None)
    where = f"{within} contains" if within else "a cell is"
    return f"{where} {held[:_SHOWN]!r}, not {what}"
