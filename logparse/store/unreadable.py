"""Find GEMMs and convolutions in an older store whose texts cannot be read, for example because of a negative size.

Today such texts are refused before they are stored (``storable``). Earlier versions stored them, and one such row ended
every command with a traceback. Today's records of input files state that all their texts can be read back. For older
records each different text is tested. One regular expression inside DuckDB accepts nearly all of the texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logparse.model import problem_fault, problem_from_text
from logparse.model.problems import CONV_WORDS, GEMM_FLAGS, GEMM_LATER, GEMM_WORDS
from logparse.store.schema import SCHEMAS

if TYPE_CHECKING:
    import duckdb

COLUMNS = {
    "calls": ("problem",),
    "measurements": ("problem",),
    "kernels": ("problem", "operator"),
    "gemms": ("problem",),
    "convs": ("problem",),
}
"""For each table with rows about GEMMs or convolutions, the columns with their texts."""
_NUMBERS = frozenset(f.name for name in ("gemms", "convs") for f in SCHEMAS[name] if str(f.type) == "int64")
_NUMBER, _FLAG, _WORD = "[0-9]+|[-?*]", "[01?-]", "[^ ,=]*[A-Za-z][^ ,=]*|[-?]"


def _pattern() -> str:
    """Return a regular expression that quickly recognises most texts of GEMMs and convolutions.

    A text that does not match may describe one, too, so it must be parsed.
    """

    def cell(name: str) -> str:
        return f"({_FLAG if name in GEMM_FLAGS else _NUMBER if name in _NUMBERS else _WORD})"

    def text(words: Iterable[tuple[str, tuple[str, ...]]]) -> str:
        each = (f" {word}=" + ",".join(map(cell, names)) for word, names in words)
        return "".join(x if x[1:].partition("=")[0] not in GEMM_LATER else f"({x})?" for x in each)

    gemm, conv = text(GEMM_WORDS), text(CONV_WORDS)
    return f"gemm{gemm}|grouped{gemm} members=[0-9/?,]+|conv [A-Z+]+{conv}"


def unreadable_texts(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return those texts in the store that should describe a GEMM or convolution but cannot be read.

    ``con`` has the tables ``gemms_``, ``convs_`` and ``kernels_``.
    """
    odd = "select problem from {}_ where not regexp_full_match(problem, $usual)"
    operators = "select operator from kernels_ where operator is not null"
    sql = f"{odd.format('gemms')} union {odd.format('convs')} union {operators} order by 1"
    found = con.execute(sql, {"usual": _pattern()}).fetchall()
    return [text for (text,) in found if not _reads(text)]


def left_out_sql(table: str) -> str:
    """Return a condition in SQL that is true for rows that must be left out, because a text in them cannot be parsed.

    The table ``unreadable_`` holds these texts. ``table`` is the name of the rows' table.
    """
    return " or ".join(f"coalesce({column} in (from unreadable_), false)" for column in COLUMNS[table])


def _reads(text: str) -> bool:
    try:
        return problem_fault(problem_from_text(text)) is None
    except (ValueError, TypeError):
        return False
