"""Edit override files (choices of kernels) at random, in ways in which people and programs edit them.

The same seed gives the same edits. Any text that consists of lines and cells can be edited.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Lines: TypeAlias = list[str]
Edit: TypeAlias = "Callable[[random.Random, Lines, Words], Lines]"

_BITS = (
    *(" ", "\t", "\r", "\f", "\v", "#", "0", "1", "-", "+", ".", "e", "N", "_", "x", '"', ";", ":", "=", ",", "\0"),
    *("\x1a", "\x1f", "\x85", "é", "\udcff"),  # the last character becomes the byte 0xff, which is not UTF-8
)
_TRANSPOSES = ("N", "T", "C", "n", "t", "")
_COUNTS = (
    *("0", "-0", "-1", "+{}", " {}", "{} ", "{}.0", "{}x", "0x{}", "0{}", "{}e1", "1e3", "1_0", "٣", "", " "),
    *("2147483647", "2147483648", "4294967296", "9" * 20, "9" * 400, "0" * 300 + "{}", "{}" * 9_000),
)


@dataclass(frozen=True)
class Words:
    """Text that fits a file format, for random edits of such files.

    * ``separator`` stands between cells.
    * ``texts`` are whole cells that replace others.
    * ``lines`` are whole lines that are inserted.
    """

    separator: str
    texts: Sequence[str]
    lines: Sequence[str]


def mutated(seed: int, text: str, words: Words) -> bytes:
    """Return the text, as bytes, after one to three random edits. The seed determines the edits."""
    random_ = random.Random(seed)
    lines = text.split("\n")
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        lines = random_.choice(EDITS)(random_, lines, words) or [""]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    return _whole_file(random_, data) if random_.random() < 0.1 else data


def _whole_file(random_: random.Random, data: bytes) -> bytes:
    return random_.choice(
        (
            lambda: data.replace(b"\n", b"\r\n"),
            lambda: b"\xef\xbb\xbf" + data,
            lambda: data.rstrip(b"\n"),
            lambda: data[: random_.randrange(len(data) + 1)],
            lambda: data + data,
            lambda: data + b"\n\n",
        )
    )()


def _character(random_: random.Random, lines: Lines, words: Words) -> Lines:
    """Insert, delete or change one character."""
    at = random_.randrange(len(lines))
    line, place = lines[at], random_.randrange(len(lines[at]) + 1)
    bit = random_.choice(_BITS)
    lines[at] = line[:place] + random_.choice((bit + line[place:], line[place + 1 :], bit + line[place + 1 :]))
    return lines


def _cell(random_: random.Random, lines: Lines, words: Words) -> Lines:
    """Replace the value of a random cell."""
    at = random_.randrange(len(lines))
    cells = lines[at].split(words.separator)
    place = random_.randrange(len(cells))
    odd = random_.choice((*_COUNTS, *_COUNTS, *_TRANSPOSES, *words.texts, *words.texts))
    cells[place] = odd.replace("{}", cells[place].strip())
    lines[at] = words.separator.join(cells)
    return lines


def _cells(random_: random.Random, lines: Lines, words: Words) -> Lines:
    """Delete, repeat or move a random cell, or put blanks around it."""
    at = random_.randrange(len(lines))
    cells = lines[at].split(words.separator)
    place = random_.randrange(len(cells))
    cell = cells.pop(place)
    kind = random_.randrange(5)
    if kind == 1:
        cells[place:place] = [cell, cell]
    elif kind == 2:
        cells.insert(random_.randrange(len(cells) + 1), cell)
    elif kind == 3:
        cells.insert(place, random_.choice((f" {cell}", f"{cell} ", f"\t{cell}")))
    elif kind == 4:
        cells[place:place] = [cell, ""]
    lines[at] = words.separator.join(cells)
    return lines


def _line(random_: random.Random, lines: Lines, words: Words) -> Lines:
    """Delete, repeat, move, join or cut a random line, or insert a line from another file."""
    at = random_.randrange(len(lines))
    kind = random_.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(random_.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        lines.insert(random_.randrange(len(lines)), lines.pop(at))
    elif kind == 3:
        lines[at : at + 2] = ["".join(lines[at : at + 2])]
    elif kind == 4:
        place = random_.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = [lines[at][:place], lines[at][place:]]
    else:
        lines.insert(at, random_.choice((*words.lines, "", " ", "# comment", "#, comment")))
    return lines


def _ends(random_: random.Random, lines: Lines, words: Words) -> Lines:
    """Put a blank, a separator or another character before or behind a random line."""
    at = random_.randrange(len(lines))
    before, behind = random_.choice((("", words.separator), ("", " "), ("", "\r"), (" ", ""), ("\t", ""), ("", "\0")))
    lines[at] = f"{before}{lines[at]}{behind}"
    return lines


EDITS: Sequence[Edit] = (_character, _cell, _cell, _cell, _cells, _cells, _line, _line, _ends)
