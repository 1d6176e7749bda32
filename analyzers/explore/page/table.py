"""The content of the web page's table: some rows for the browser, or all rows as CSV."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzers.explore import queries
from analyzers.explore.page import components
from analyzers.explore.selection import Selection, from_url
from logparse.errors import LogparseError
from logparse.lazy import pd
from logparse.text import make_printable

if TYPE_CHECKING:
    from analyzers.explore.page.data import Pages

CSV_ROWS = 1_000_000
LARGEST_BLOCK = 10 * queries.FIRST_ROWS
_FINAL_S = 120.0
"""How many seconds the export of the table may wait until the analyzers have run."""


def rows(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Answer the browser's request for rows of the table: the ``rows``, the number of all rows, and a ``note``.

    The answer also has ``by``, the column that shows the order of the rows if the user chose no order. ``final`` is
    False as long as the times are missing, because the analyzers still change them.

    ``asked`` is the request: ``search`` (the URL's query string with the filters), ``start`` and ``end`` of the rows,
    and ``sort`` and ``filter`` in the form of AG Grid, a table component for browsers.
    """
    start, end = (x if isinstance(x, int) else 0 for x in (asked.get("start"), asked.get("end")))
    sort, search = _parse_sort_columns(asked.get("sort")), str(asked.get("search") or "")
    end = min(end, start + LARGEST_BLOCK)
    try:
        found, count, default = _rows(pages, from_url(search), sort, _filters(asked.get("filter")), start, end)
    except LogparseError:
        return {"rows": [], "count": 0, "note": "", "by": "", "final": True}
    final = pages.of(from_url(search)).final
    if not final:
        found = found[list(_STATED)]
    note = components.count(count, "" if sort or not final else default.first)
    return {"rows": records(found), "count": count, "note": note, "by": default.column, "final": final}


_STATED = ("id", "label", "calls", "operation", "direction", "dtype", "layout", "device", "file")
"""Columns that the analyzers do not change. Only these are sent before the analyzers have run."""


def _parse_sort_columns(model: object) -> Sequence[Mapping[str, object]]:
    """Return the columns by which the browser wants the table sorted. Invalid entries are dropped."""
    known = [x for x in model if isinstance(x, dict)] if isinstance(model, list) else []
    return [x for x in known if isinstance(x.get("colId"), str)]


def _filters(model: object) -> Mapping[str, Mapping[str, object]]:
    return {str(name): x for name, x in model.items() if isinstance(x, dict)} if isinstance(model, dict) else {}


def _rows(
    pages: Pages,
    chosen: Selection,
    sort: Sequence[Mapping[str, object]],
    filters: Mapping[str, Mapping[str, object]],
    start: int,
    end: int,
) -> tuple[pd.DataFrame, int, queries.Order]:
    """Return rows of the web page's table, the number of all rows, and their order if the user chose none."""
    page = pages.of(chosen)
    with page.cursor() as con:
        empty = page.empty | queries.find_zero_columns(con)
        default = queries.order_of(chosen.view, compared=bool(page.other), empty=empty)
        found = queries.table(con, chosen, start=start, end=end, sort=sort, filters=filters, default=default)
        return *found, default


def records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of a DataFrame as dictionaries that JSON can represent. NaN and infinity become None."""

    def plain(value: object) -> object:
        if isinstance(value, str):
            return make_printable(value)
        return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value

    return [{str(k): plain(v) for k, v in row.items()} for row in frame.astype(object).to_dict("records")]


def export(pages: Pages, search: str | None) -> str:
    """Return the web page's table as CSV, with the filters and the order in the query string of a URL."""
    chosen = from_url(search)
    try:
        given = json.loads(chosen.table or "{}")
    except ValueError:
        given = {}
    given = given if isinstance(given, dict) else {}
    pairs = [x for x in given.get("sort") or () if isinstance(x, list) and len(x) == 2]
    sort = _parse_sort_columns([{"colId": name, "sort": way} for name, way in pairs])
    pages.of(chosen).wait(_FINAL_S)
    found, *_ = _rows(pages, chosen, sort, _filters(given.get("filter")), 0, CSV_ROWS)
    return csv(found)


def csv(frame: pd.DataFrame) -> str:
    """Convert a table to CSV text. The header has the titles of the columns with their units.

    A text that a spreadsheet would run as a formula gets a leading quote.
    """
    out = frame.drop(columns=["id", "aim_us", "at_least"], errors="ignore").rename(columns=dict(queries.TABLE))
    for name in out.columns:
        if not pd.api.types.is_numeric_dtype(out[name]):
            cells = (("'" * (x[:1] in "=+-@\t\r") + make_printable(x)) if isinstance(x, str) else x for x in out[name])
            out[name] = list(cells)
    return str(out.to_csv(index=False))
