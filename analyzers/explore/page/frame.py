"""Make the HTML of the web page and of the report, without their content, which ``assets/explore.js`` adds."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from analyzers.explore import queries
from logparse.quoting import Html, asset, fill_template, html_text, json_block

ASSETS = files("analyzers.explore") / "assets"
_UNITS = {"µs": 1.0, "ms": 1e3}  # The value of each unit in µs.
_NUMBER_WIDTH, _LABEL_WIDTH = 84, 278
_TEXT_WIDTH: Mapping[str, int] = {
    "label": _LABEL_WIDTH,
    "best": 240,
    "pick": 200,
    "action": 118,
    "finding": 400,
    "file": 180,
    "pick_here": 190,
    "pick_there": 190,
    "device": 76,
    "direction": 84,
    "passes_from": 170,
}
"""Smallest widths (px) of the table's columns that contain text.

With these widths, a window of 1,440 pixels has room for all columns of a preset (a set of columns that the user can
choose). A window of 1,024 pixels has room for five columns after the first.
"""


def columns() -> list[dict[str, object]]:
    """Return a description of each table column for the browser: name, title, kind and width.

    ``kind`` is ``text``, ``number``, ``change`` (a signed number) or ``time``. A time also has its ``unit``, and
    ``each`` is the number of µs in this unit.
    """
    made: list[dict[str, object]] = []
    for name, title in queries.TABLE.items():
        heading, _, unit = title.removesuffix(")").partition(" (")
        heading = queries.SHOWN_AS.get(name, heading)
        text, time, wider = name in queries.TEXTS, unit in _UNITS, ("saving_us", "change", "change_us")
        kind = "text" if text else "time" if time else "change" if name == "change" else "number"
        width = _TEXT_WIDTH.get(name, 96) if text else _NUMBER_WIDTH + 10 * (name in wider)
        width += 14 * (name == "saving_us")  # Its title then has two lines.
        column: dict[str, object] = {
            "name": name,
            "title": heading if time or name in queries.SHOWN_AS else title,
            "kind": kind,
            "width": width,
        }
        column |= {"about": queries.ABOUT[name], "head": title}
        made.append({**column, "unit": unit, "each": _UNITS[unit]} if time else column)
    return made


def frame(
    title: str, store: str, footer: str, data: Mapping[str, object], *, policy: Html, style: Html, scripts: Html
) -> Html:
    """Return the HTML of the web page, still without content.

    ``data`` are the values that ``assets/explore.js`` needs in addition to the table's columns.
    """
    table = {"columns": columns(), "presets": queries.PRESETS, "spared": queries.SPARED, "sets": queries.SETS}
    values = {
        "policy": policy,
        "style": style,
        "scripts": scripts,
        "title": html_text(title),
        "store": html_text(store),
        "footer": html_text(footer),
        "data": json_block({**table, "rows_at_once": queries.FIRST_ROWS, **data}),
    }
    return fill_template(Html(asset(ASSETS / "page.html.in")), values)
