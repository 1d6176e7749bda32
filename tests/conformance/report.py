"""A table that the tests print at the end: how often real libraries did what logparse predicted.

The module also lists the differences that are expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXPECTED: Mapping[str, str] = {
    "other family's algorithm": "MIOpenDriver looks for Find's choice under the item's algorithm and runs UNKNOWN, "
    "and by that lint judges; the immediate mode, which is asked here, and Find itself do not look at it",
    "workspace above 64 bits": "Find drops a solver for which the workspace does not suffice, and we the item; the "
    "immediate mode does not compare it",
    "workspace beyond memory": "Find drops the item, and overwrites a record of which none is left; the immediate mode "
    "leaves the workspace to its caller",
    "revision": "hipBLASLt 1.2.2 compares a file's revision in its C functions alone: the C++ object takes the rows of "
    "a file that the functions, and we, refuse",
    "negative time": "Find takes it for no time; the immediate mode ranks by it, so it comes first",
}
"""Differences that are expected: {name: reason why logparse does not follow the library}."""


@dataclass(frozen=True)
class Difference:
    """A case in which the real library did something else than logparse predicted, for one call and one file.

    ``expected`` is the name of a known difference in ``EXPECTED``, or None.
    """

    file: str
    data: bytes
    asked: str
    library: str
    ours: str
    expected: str | None = None


@dataclass(frozen=True)
class Comparison:
    about: str
    files: int
    lookups: int
    hits: int
    expected: int
    differences: int


TABLE: list[Comparison] = []


def compared(about: str, files: int, lookups: int, hits: int, differences: Sequence[Difference]) -> None:
    """Add a row to the table of comparisons between real libraries and logparse.

    Fails if there are differences that are not expected.
    """
    left = [x for x in differences if x.expected not in EXPECTED]
    TABLE.append(Comparison(about, files, lookups, hits, len(differences) - len(left), len(left)))
    shown = {x.file: x for x in reversed(left)}.values()
    texts = [f"{x.file}: {x.asked}\n  library {x.library}, ours {x.ours}, in\n{x.data!r}" for x in shown]
    assert hits, f"{about}: no look-up was answered by a row"
    assert not left, f"{len(left)} differences in {len(shown)} files:\n" + "\n".join(texts[:20])


def lines() -> list[str]:
    """Return the lines of a table that shows how often real libraries did what logparse predicted.

    There is one line for each kind of file.
    """
    rows: list[tuple[str, ...]] = [("file", "files", "look-ups", "answered by a row", "expected", "differences")]
    rows += [(x.about, *(f"{n:,}" for n in (x.files, x.lookups, x.hits, x.expected, x.differences))) for x in TABLE]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(x.rjust(n) for x, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
