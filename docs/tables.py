"""Write the tables in docs/*.md whose text comes from the members: ``make docs``.

Each table stands between ``<!-- table: NAME -->`` and ``<!-- table ends -->``.  ``TABLES`` has a function for each
name. ``formats LIBRARY…`` tells how the formats in these folders of ``logparse/libraries`` are produced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from analyzers.actions import ACTIONS
from analyzers.findings import ANALYZERS
from analyzers.recommend.files_action import OVERRIDES
from logparse.libraries.all_backends import BACKENDS
from logparse.libraries.all_formats import FORMATS, OFFERS, list_formats
from logparse.libraries.found import find_modules_with
from logparse.libraries.kinds.format import Format
from logparse.libraries.override_formats import OVERRIDE_FORMATS, WRITERS
from logparse.output import answer

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
_TABLE = re.compile(r"(<!-- table: (?P<name>[\w -]+?) -->\n)(?P<text>.*?)(<!-- table ends -->)", re.DOTALL)
NONE = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Raises ValueError if a cell would break the table: if it is empty, or holds ``|`` or a line end.
    """
    out = [head, ["---"] * len(head)]
    for row in rows:
        if broken := [cell for cell in row if not cell or "|" in cell or "\n" in cell]:
            raise ValueError(f"no cell of a table: {broken[0]!r} in the row of {row[0]}")
        out.append(row)
    rule = f"|{'|'.join(out[1])}|"
    return "\n".join([f"| {' | '.join(out[0])} |", rule, *(f"| {' | '.join(row)} |" for row in out[2:])]) + "\n"


def code(name: str) -> str:
    return f"`{name}`"


def all_formats() -> str:
    rows = [(code(x.name), x.seen, code(x.example), x.gives) for x in sorted(FORMATS, key=lambda x: x.name)]
    return table(("format", "versions seen", "a line of it", "what is read"), rows)


def rooms() -> dict[str, list[Format]]:
    """Return the formats that state how their files are produced (``how``), by the folder of their library."""
    found: dict[str, list[Format]] = {}
    for module in find_modules_with(*OFFERS):
        told = [format for format in list_formats(import_module(module)) if format.how]
        if told:
            found.setdefault(module.split(".")[-2], []).extend(told)
    return found


def formats_of(folders: Sequence[str]) -> str:
    """Return a table with the command that produces each format of the libraries in ``folders``.

    The table has a column "since" if at least one format states a version.
    """
    formats = [format for folder in folders for format in rooms().get(folder, ())]
    since = any(format.since for format in formats)
    rows = [(code(format.name), format.how, format.since or NONE)[: 2 + since] for format in formats]
    return table(("format", "how to produce it", "since")[: 2 + since], rows)


def written() -> str:
    rows = [(code(writer.name), writer.file, writer.read_when) for writer in WRITERS]
    return table(("name", "file", "the library reads it when"), rows)


def override_formats() -> str:
    rows = []
    for format in OVERRIDE_FORMATS:
        kinds = ", ".join(map(code, sorted(format.kinds))) or NONE
        writer = code(format.writer.name) if format.writer else NONE
        to = code(format.conversion.word) if format.conversion else NONE
        rows.append((code(format.name), kinds, writer, to))
    return table(("override file", "problems", "`recommend` writes", "`convert --to`"), rows)


def backends() -> str:
    return table(("backend", "what it times"), [(code(backend.name), backend.about) for backend in BACKENDS])


def findings() -> str:
    rows = [(code(member.name), member.about, member.worth) for member in ANALYZERS]
    return table(("finding", "what is seen", "its worth"), rows)


def actions() -> str:
    rows = [(code(member.name), member.kind, member.about, member.needs or NONE) for member in (OVERRIDES, *ACTIONS)]
    return table(("action", "kind", "what is done", "what it needs"), rows)


def columns() -> str:
    rows = []
    for verb, stated in answer.TABLES.items():
        words = (words.split(" ") for words in stated.split(", "))
        rows.append((code(verb), ", ".join(f"{code(name)} {kind}" for name, kind in words)))
    return table(("command", "columns"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "all formats": all_formats,
    "written files": written,
    "override files": override_formats,
    "backends": backends,
    "findings": findings,
    "actions": actions,
    "columns": columns,
}


def made(name: str) -> str:
    """Return the table of this name.  Raises ValueError if the name is unknown."""
    first, *folders = name.split(" ")
    if first == "formats" and folders:
        return formats_of(folders)
    if name not in TABLES:
        raise ValueError(f"no table is called {name!r}: {', '.join(TABLES)}, formats LIBRARY…")
    return TABLES[name]()


def renewed(page: str) -> str:
    """Return a page's text with its tables written anew."""
    return _TABLE.sub(lambda found: f"{found[1]}{made(found['name'])}{found[4]}", page)


def names_in(page: str) -> list[str]:
    """Return the names of the tables in a page's text."""
    return [found["name"] for found in _TABLE.finditer(page)]


def main() -> None:
    """Rewrite the pages whose tables differ."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} is written anew")


if __name__ == "__main__":
    main()
