"""The table of real reader against ours, and the differences that are expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXPECTED: Mapping[str, str] = {}
"""Differences that stay, by the name of their file or look-up, and why."""


@dataclass(frozen=True)
class Difference:
    """Of one look-up in one file: what the library takes, and what our reader does."""

    file: str
    data: bytes
    asked: str
    library: str
    ours: str


@dataclass(frozen=True)
class Comparison:
    about: str
    files: int
    lookups: int
    hits: int
    differences: int


TABLE: list[Comparison] = []


def compared(about: str, files: int, lookups: int, hits: int, differences: Sequence[Difference]) -> None:
    """Count a comparison, and fail on differences that are not expected."""
    left = [x for x in differences if x.file not in EXPECTED]
    TABLE.append(Comparison(about, files, lookups, hits, len(left)))
    shown = {x.file: x for x in reversed(left)}.values()
    texts = [f"{x.file}: {x.asked}\n  library {x.library}, ours {x.ours}, in\n{x.data!r}" for x in shown]
    assert not left, f"{len(left)} differences in {len(shown)} files:\n" + "\n".join(texts[:20])


def lines() -> list[str]:
    """The table as text."""
    rows: list[tuple[str, ...]] = [("file", "files", "look-ups", "answered by a row", "differences")]
    rows += [(x.about, *(f"{n:,}" for n in (x.files, x.lookups, x.hits, x.differences))) for x in TABLE]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(x.rjust(n) for x, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
