"""Format tables so that they fit the terminal, and print lines of progress."""

# The package rich is installed with typer, but it is not used. To import it and to draw 20 rows takes 130 ms of CPU
# time, which doubles the program's start of 119 ms (2026-11-28; this module needs less than 5 ms).

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias, cast

from logparse.lazy import pa, pd
from logparse.text import duration, make_printable, shorten_texts

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

Rows: TypeAlias = Sequence[Mapping[str, object]]
"""A small table as a list of dictionaries.

Importing pandas instead would take longer than reading most logs.
"""
Block: TypeAlias = "pd.DataFrame | pa.Table | Rows"
"""A table of any kind that an answer may contain."""

_SHARES = frozenset({"share", "of_calls", "of_time", "saving_share"})
"""Columns with fractions of a whole, which are shown in percent."""
_PROSE = frozenset({"about", "message", "advice", "reason", "remedy", "why", "error"})
"""Columns that hold sentences.

Sentences may be wrapped between words to save room.  Any other value stays on one line.
"""
_LEAST = 16
"""Smallest width of a text column.  If a column would become narrower, some column is left out instead."""
_LEASTS = {"problem": 44}
"""Smallest width of the columns that are never left out.

A row would be useless without the name of its matrix product or convolution.
"""
_ANSWERS = (
    *("effect", "total_us", "best", "saves_us", "may_save_ms", "saving_us", "pick_b", "pick_a", "calls", "action"),
    *("state", "rejects", "solution", "time_us", "slower", "call_us", "pick", "pick_us", "best_us", "change"),
)
"""The most important columns, in order.

They answer the question for which the command is made.  So they are left out only after all other columns, the least
important first.
"""
_USUAL = 100
"""Largest width to which the values of a column are padded if the output is not a terminal.

A longer value is printed completely.
"""
_INDEX = re.compile(r"(?:[a-z ]+ )?[a-z_]+:\d{1,12}")
"""Pattern of a kernel that is named only by a number, such as ``hipblaslt:477479``.

Such a text is never shortened, because a part of the number would name another kernel.
"""
_GAP = 3
_SHOWN_EVERY_S = 0.2


Colour: TypeAlias = Literal["auto", "always", "never"]


def is_coloured(stream: TextIO, colour: Colour = "auto") -> bool:
    """Return True if bold and coloured text may be written to a stream.

    With ``colour="auto"`` this depends on ``NO_COLOR``, the stream and ``CLICOLOR_FORCE``. Sources: no-color.org,
    bixense.com/clicolors.
    """
    if colour != "auto":
        return colour == "always"
    if os.environ.get("NO_COLOR"):
        return False
    # It is True on a terminal, and if ``CLICOLOR_FORCE`` is set also elsewhere.
    return stream.isatty() or os.environ.get("CLICOLOR_FORCE", "0") != "0"


def make_bold(line: str) -> str:
    """Return the line with the escape codes that make it bold."""
    return f"\x1b[1m{line}\x1b[0m" if line else line


_HEADING = re.compile(r" {3}\S.*  certainty(?:  how)?")
_COMMAND = re.compile(
    r"(?:(?<=  )|(?<=`)|(?<=&& ))logparse [a-z][^`·]*[^`·\s]|(?<=: )logparse [a-z]+ --[^`·;]*[^`·;\s]"
)
_WARNING = re.compile(r"not confirmed|may gain nothing|not verified|lost [\d.,]+ \w+")


def paint(line: str, headline: bool = False, before: str = "") -> str:
    """Return a line of text with colours: commands to type in cyan, and words of doubt or loss in yellow.

    The lines of the headline and the heading of the list of things to do are bold. ``before`` is the line before, which
    ends with a backslash if a command goes on.
    """
    if before.endswith("\\"):
        return f"\x1b[36m{line}\x1b[39m"
    painted = _WARNING.sub("\x1b[33m\\g<0>\x1b[39m", _COMMAND.sub("\x1b[36m\\g<0>\x1b[39m", line))
    return make_bold(painted) if headline or _HEADING.fullmatch(line) else painted


def draw_table(block: Block, width: int | None, remedy: str = "", coloured: bool = False) -> str:
    """Format a table as text, with numbers aligned to the right.

    To fit ``width``, texts are shortened and columns are left out. ``remedy`` tells the user how to see those columns.
    """
    columns = _columns(block)
    if not columns:
        return ""
    # Empty columns are left out, then unimportant columns from the right, then columns in ``_ANSWERS``. The column
    # ``problem`` is never left out.
    # The width of a row includes the blank at its start.
    shown, left_out = _fit_columns(columns, None if width is None else width - 1)

    def line(words: Sequence[str]) -> str:
        return (" " + (" " * _GAP).join(map(_Column.padded, shown, words))).rstrip()

    head = line([column.name for column in shown])
    lines = [make_bold(head) if coloured else head]
    lines.append(" " + "─" * (sum(column.room + _GAP for column in shown) - _GAP))
    for cells in zip_longest(*(column.cells for column in shown), fillvalue=""):
        lines += map(line, zip_longest(*map(_Column.lines, shown, cells), fillvalue=""))
    filled = [column.name for column in left_out if any(column.cells)]
    more = f"not shown: {', '.join(filled)}{remedy and f' ({remedy})'}\n" if filled else ""
    return "\n".join(lines) + "\n" + more


def has_passes(block: Block) -> bool:
    """Return True if a table names a pass of a convolution by its letter (F, B or W), so that a legend is needed."""
    return any(_PASS.match(cell) for column in _columns(block) if column.name == "problem" for cell in column.cells)


PASSES = "F, B, W: forward, backward data (dgrad), backward weights (wgrad)"
_PASS = re.compile(r"[FBW+]+ \d+×")


@dataclass(eq=False)
class _Column:
    name: str
    right: bool
    cells: list[str]
    room: int = 0
    whole: bool = False

    def __post_init__(self) -> None:
        self.natural = self.room = self.needed

    @property
    def needed(self) -> int:
        """Width of the widest value, or of the column's name if this is wider."""
        return max(map(len, (self.name, *self.cells)))

    @property
    def least(self) -> int:
        if self.right:
            return self.natural
        numbers = (len(cell) for cell in self.cells if _INDEX.fullmatch(cell))
        return max(min(self.natural, _LEASTS.get(self.name, _LEAST)), len(self.name), *numbers)

    def weight(self) -> tuple[bool, bool, int]:
        """Return a number that says how important the column is.

        If a table is too wide for the terminal, the column with the lowest number is left out first.
        """
        # The columns of ``diff`` end with the names of runs, such as ``pick_before``.
        of_run = self.name.startswith("pick_") and self.name not in _ANSWERS
        kind = "pick_b" if of_run else self.name
        rank = len(_ANSWERS) - _ANSWERS.index(kind) if kind in _ANSWERS else 0
        return self.name in _LEASTS, any(self.cells), rank

    def lines(self, cell: str) -> list[str]:
        """Divide the text of a cell into the lines to print.  Only sentences are wrapped."""
        if self.whole or self.name not in _PROSE or len(cell) <= self.room:
            return [cell]
        return wrap(cell, self.room, break_on_hyphens=False)

    def padded(self, line: str) -> str:
        return line.rjust(self.room) if self.right else line.ljust(self.room)


def rows_of(block: Block) -> Rows:
    """Convert a table of any kind to a list of dictionaries."""
    if isinstance(block, Sequence):
        return block
    if "pyarrow" in type(block).__module__:
        return cast("Rows", cast("pa.Table", block).to_pylist())
    return cast("Rows", cast("pd.DataFrame", block).to_dict("records"))


def _columns(block: Block) -> list[_Column]:
    values: dict[str, list[object]]
    if isinstance(block, Sequence):
        values = {name: [row[name] for row in block] for name in block[0]} if block else {}
    elif "pyarrow" in type(block).__module__:
        values = cast("pa.Table", block).to_pydict()
    else:
        values = cast("pd.DataFrame", block).to_dict("list")  # type: ignore[assignment]
    return [
        _Column(str(name), _are_numbers(cells), list(map(_percentage if name in _SHARES else _cell, cells)))
        for name, cells in values.items()
    ]


def _are_numbers(cells: Sequence[object]) -> bool:
    """Return True if a column has only numbers, of which some may be the word ``unknown``."""
    known = [cell for cell in cells if cell != "unknown"]
    return all(map(_is_number, known)) and (bool(known) or not cells)


def _is_number(value: object) -> bool:
    """Return True if a table cell is shown like a number: aligned to the right and never shortened.

    This is the case for numbers and for unknown values.
    """
    return value is None or (isinstance(value, int | float | datetime) and not isinstance(value, bool))


def _fit_columns(columns: Sequence[_Column], width: int | None) -> tuple[Sequence[_Column], list[_Column]]:
    """Choose the columns of a table that fit the terminal, and set their widths. Return them and the other columns."""
    shown = [c for c in columns if any(c.cells)] or list(columns)
    if width is None:
        for column in shown:
            usual = [x for x in map(len, column.cells) if x <= _USUAL]
            column.room, column.whole = max([len(column.name), *usual]), True
        return shown, []
    if sum(c.natural + _GAP for c in shown) - _GAP <= width:
        return shown, []
    while len(shown) > 1 and sum(c.least + _GAP for c in shown) - _GAP > width:
        shown.remove(min(reversed(shown), key=_Column.weight))
    room = width - sum(c.least + _GAP for c in shown) + _GAP
    for number, column in enumerate(order := sorted(shown, key=lambda c: c.natural - c.least)):
        more = min(column.natural - column.least, max(room, 0) // (len(order) - number))
        column.room = column.least + more
        room -= more
        if column.room < column.natural and column.name not in _PROSE:
            column.cells = shorten_texts(column.cells, column.room)
            column.room = column.needed
    return shown, [c for c in columns if c not in shown]


def with_total(rows: Sequence[Mapping[str, object]]) -> Rows:
    """Return the rows with a last row that has the sum of each column of numbers. A single row stays alone."""
    if len(rows) < 2:
        return list(rows)
    first, *_ = names = list(rows[0])
    sums: dict[str, object] = {first: "total"}
    for name in names[1:]:
        values = [row[name] for row in rows]
        sums[name] = sum(x for x in values if isinstance(x, int)) if all(isinstance(x, int) for x in values) else ""
    return [*rows, sums]


def _percentage(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) and math.isfinite(value) else _cell(value)


def _cell(value: object) -> str:
    if value is None or str(value) in ("nan", "<NA>", "NaT"):
        return ""
    if isinstance(value, float):
        whole = abs(value) < 1e15 and (value.is_integer() or abs(value) >= 1e3)
        return f"{value:,.0f}" if whole else f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return make_printable(str(value))


class _Line:
    """Context that shows one line on standard error, which is overwritten again and again.

    It is shown only on a terminal (``shown``), and disappears at the end.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if self.shown:
            print(end=f"\r\x1b[K{text}", file=sys.stderr, flush=True)


class Bar(_Line):
    """Progress line of ``logparse ingest``, with the reading rate and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._written = self._began
        self._done, self._total = 0, 0

    def begin(self, total: int) -> None:
        """Tell the progress line how many bytes will be read in total, if that is known."""
        self._total = total

    def advance(self, path: str, count: int) -> None:
        self._done += count
        done, total, now = self._done, self._total, time.monotonic()
        if not self.shown or now - self._written < _SHOWN_EVERY_S:
            return
        self._written, spent = now, now - self._began
        words = ["ingest", *([f"{min(1.0, done / total):.0%}"] if total else []), f"{done / spent / 1e6:,.0f} MB/s"]
        words += [f"{duration(spent * (total - done) / done * 1e6)} left"] if 0 < done < total else []
        self._show(" ".join(words))


class Wait(_Line):
    """The progress line of a command that waits for a program, with the time after which the program is stopped."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self._verb = verb

    def __call__(self, left_s: float) -> None:
        spent, left = duration((time.monotonic() - self._began) * 1e6), duration(left_s * 1e6)
        self._show(f"{self._verb}: {spent}, stopped in {left}")


class Stages(_Line):
    """The progress line of a command whose work has several stages, with the time left.

    Call the object when a stage begins.  The time left is the average time of the stages so far, times the number of
    stages left.  The first stage is not in the average, because it reads the data, and takes longer than the others.
    """

    def __init__(self, verb: str, total: int) -> None:
        super().__init__()
        self._verb, self._total, self._done = verb, total, 0

    def __call__(self, stage: str) -> None:
        self._done += 1
        now, timed = time.monotonic(), self._done - 2  # the stages that are over, without the first one
        if timed == 0:
            self._began = now
        stages = max(self._total - self._done + 1, 0)
        left = f", {duration((now - self._began) / timed * stages * 1e6)} left" if timed > 0 else ""
        self._show(f"{self._verb} {self._done} of {max(self._total, self._done)}: {make_printable(stage)}{left}")
