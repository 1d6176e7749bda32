"""Parse and format short texts for people: durations, percentages, shortened names.

This module imports neither pandas nor pyarrow.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile

from logparse.errors import UsageError
from logparse.quoting import make_printable as make_printable  # noqa: PLC0414 (whoever shows text imports this module)
from logparse.quoting import sql_text as sql_text  # noqa: PLC0414


def parse_share(text: str, option: str = "", most: float = math.inf) -> float:
    """Parse a fraction that the user wrote as ``3%`` or ``0.03``.

    Raises UsageError, which names the option, for any other text and for a fraction above ``most``.
    """
    number = text.strip().removesuffix("%")
    percent = text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    # A number of 1 or more needs ``%``, because 3 may mean 3 % or 300 %.
    if not 0 <= value < (float("inf") if percent else 1.0):
        raise UsageError(f"{option} {text}: give a share such as 3% or 0.03".lstrip())
    if value > most:
        raise UsageError(f"{option} {text}: at most {most:.0%}".lstrip())
    return value


def is_object(name: str) -> bool:
    """Return True if a text has the form ``package.module:NAME``, which names an object of a module."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def one_of(option: str, value: str, names: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``names``.  Otherwise raise UsageError, which lists the names."""
    known = tuple(dict.fromkeys(names))
    if value not in known:
        raise UsageError(f"{option} {value}: must be one of {', '.join(known)}")
    return value


def decode_pasted(word: str) -> str:
    """Return a text that the user pasted on the command line, read as UTF-8 in any locale.

    Bytes that are not UTF-8 are escaped.
    """
    return os.fsencode(word).decode("utf-8", "backslashreplace")


def short_path(path: str) -> str:
    """Return a path relative to the working folder if it is inside that folder, otherwise the path itself."""
    below = os.path.relpath(path) if os.path.isabs(path) else path
    return path if below.startswith(os.pardir + os.sep) else below


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 problem``, ``2 problems``, ``2 processes``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def duration(time_us: float | None) -> str:
    """Format a time in µs for people: ``12.3 µs``, ``4.56 ms``, ``1.2 s``, ``34 min``, ``3.4 h``.

    None and NaN give ``unknown``.
    """
    if time_us is None or math.isnan(time_us):
        return "unknown"
    for limit, unit, divisor in ((1e3, "µs", 1.0), (1e6, "ms", 1e3), (6e8, "s", 1e6), (3.6e10, "min", 6e7)):
        if abs(time_us) < limit:
            # %g gives 1e+03 for 999.9 with three digits.  This gives 1000.
            return f"{float(f'{time_us / divisor:.3g}'):g} {unit}"
    return f"{float(f'{time_us / 3.6e9:.3g}'):,g} h"


def in_one_unit(times_us: Sequence[float]) -> tuple[list[str], str]:
    """Format several times in µs with one common unit, which fits the longest time.

    Returns the numbers with three digits each, and the unit: ``(["319", "0.85"], "ms")``.
    """
    unit = duration(max(map(abs, times_us), default=0.0)).rpartition(" ")[2]
    divisor = {"µs": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9}[unit]
    return [f"{float(f'{us / divisor:.3g}'):,g}" for us in times_us], unit


def join_times(first_us: float, word: str, second_us: float) -> str:
    """Join two times in µs with a word, such as ``18.5 of 45.4 ms``. If both have the same unit, it is written once."""
    one, other = duration(first_us), duration(second_us)
    if one.rpartition(" ")[2] == other.rpartition(" ")[2]:
        one = one.rpartition(" ")[0]
    return f"{one} {word} {other}"


LINES = 20
"""Largest number of lines that an answer has on a terminal. The user can ask for everything instead."""


def terminal_width() -> int | None:
    """Return the width of the terminal in characters.

    Returns None if a program reads the output, so that rows are not shortened.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def line_width() -> int:
    """Return the largest number of characters in a line of sentences: the terminal's width, but from 80 to 100.

    A line is never longer than 100 characters, because sentences are easier to read in short lines. If a program reads
    the output, it is 100.
    """
    return min(max(terminal_width() or 100, 80), 100)


def bytes_text(size: float) -> str:
    """Format a number of bytes for people, with three digits: ``15.4 GiB``."""
    power = next((x for x in range(4) if abs(size) < 1024 ** (x + 1)), 4)
    return f"{float(f'{size / 1024**power:.3g}'):g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def cut_to_width(line: str) -> str:
    """Cut a line to at most ``line_width`` characters."""
    width = line_width()
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def format_difference(time_us: float) -> str:
    """Format a difference of two times in µs for people, with ``-`` if it is negative.

    A difference that rounds to 0 ns has no sign.
    """
    us = round(time_us, 3) + 0.0  # + 0.0 turns -0 into 0
    return duration(us) if us >= 0 else f"-{duration(-us)}"


def signed_percent(change: float, digits: int = 1) -> str:
    """Format a relative change (0.5 = 50 %) as percent with its sign: ``+25.0%``, ``−59.1%``.

    A change that rounds to zero has no sign.
    """
    text = f"{change:+.{digits}%}"
    return text.replace("-", "−") if text.strip("+-0.%") else text[1:]


def describe_gain(time_us: float) -> str:
    """Format a gain or loss of time: ``gained 4 ms``, ``lost 4 ms``."""
    return f"gained {format_difference(time_us)}" if round(time_us, 3) >= 0 else f"lost {duration(-time_us)}"


_KERNEL = re.compile(r"(kernel:)?(?:void )?(?:cutlass::Kernel2?<(\w+)>|(.+))\([^()]*\)", re.DOTALL)


def kernel_name(text: str) -> str:
    """Return only the name from a kernel's C++ signature.

    For example, it is ``NAME`` for ``void cutlass::Kernel2<NAME>(NAME::Params)``.
    """
    match = _KERNEL.fullmatch(text)
    return (match[1] or "") + (match[2] or match[3]) if match else text


def shorten_texts(texts: Sequence[str], room: int) -> list[str]:
    """Shorten texts to at most ``room`` characters, so that they can still be told apart."""
    # First the signature of a C++ kernel is cut to its name. Then ``…`` replaces the beginning or the end that all long
    # texts have in common.
    names = [kernel_name(text) if len(text) > room else text for text in texts]
    long = sorted({name for name in names if len(name) > room})
    if not long:
        return names
    head = common_start(long)
    tail = common_start([name[head:][::-1] for name in long])
    tries = [{name: _shorten_one(name, room, head, tail, share) for name in long} for share in (0.67, 0.5, 0.33, 0.0)]
    best = max(tries, key=lambda cut: len(set(cut.values())))
    for _ in range(_ROUNDS):  # Texts that were cut again may have become like texts of another group.
        alike: dict[str, list[str]] = {}
        for name, cut in best.items():
            alike.setdefault(cut, []).append(name)
        groups = [group for group in alike.values() if 1 < len(group) < len(long)]
        for group in groups:  # Texts of a group differ from each other at another place than all texts do.
            best |= zip(group, shorten_texts(group, room), strict=True)
        if not groups:
            break
    for _ in range(_ROUNDS):
        alike = {}
        for name, cut in best.items():
            alike.setdefault(cut, []).append(name)
        for group in (x for x in alike.values() if len(x) > 1):
            start = common_start(group) - 1
            best |= {name: f"…{name[max(start, 0) :][: room - 2]}…" for name in group}
    words = {name: _at_words(name, cut, room) for name, cut in best.items()}
    if len({*words.values(), *names}) == len({*best.values(), *names}):  # No two texts have become alike.
        best = words
    return [best.get(name, name) for name in names]


_ROUNDS = 3
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[_:./\- ])(?=\w)")
_OF_LIBRARY = re.compile(r"(?:use )?[a-z_]+:[A-Za-z]")
_KEPT = 0.6


def _at_words(text: str, cut: str, room: int) -> str:
    """Move the place where a kernel's name was cut to the beginning of a word of it, such as ``GemmGroupWrwXdlops``.

    Returns ``cut`` if the text does not name the kernel's library, or if less than the fraction ``_KEPT`` of the room
    would be used.
    """
    head, _, tail = cut.partition("…")
    if not _OF_LIBRARY.match(text) or "…" in tail or not text.endswith(tail):
        return cut
    starts = [0, *(match.start() for match in _WORD.finditer(text)), len(text)]
    # The beginning may leave its room to the end of the name, except for a verb such as ``use``.
    begins = (max(x for x in starts if x <= len(head)), len("use ") if text.startswith("use ") else 0)
    tries = [
        f"{text[:begin]}…{text[end:]}"
        for begin in begins
        for end in starts
        if begin <= end and begin + 1 + len(text) - end <= room
    ]
    made = max(tries, key=len, default=cut)
    return made if len(made) > _KEPT * room else cut


def common_start(texts: Sequence[str]) -> int:
    """Return how many characters several texts have in common at their start.  Return 0 for one text."""
    same = takewhile(lambda characters: len(set(characters)) == 1, zip(*texts, strict=False))
    return sum(1 for _ in same) if len(texts) > 1 else 0


def _shorten_one(text: str, room: int, head: int, tail: int, share: float) -> str:
    """Shorten one of several similar texts to ``room`` characters. Keep the part that differs from the other texts.

    All texts have the first ``head`` and the last ``tail`` characters in common.
    """
    # The common characters are replaced by ``…`` first. If that is not enough, the middle of the text is left out.
    excess, end = len(text) - room + 1, len(text) - tail
    if excess <= head:
        return _elide(text, head - excess, head)
    if excess <= tail:
        return _elide(text, end, end + excess)
    if end - head <= room - 2 and head and tail:
        spare = room - 2 - (end - head)
        return text[:spare] + "…" + text[head:end] + "…"
    left = int((room - 1) * share)
    return _elide(text, left, len(text) - (room - 1 - left))


def _elide(text: str, start: int, stop: int) -> str:
    """Return a text with ``…`` in place of the part from ``start`` to ``stop``.

    The part is first widened so that no word is cut.
    """
    if " " in text[:start] and text[start : start + 1] != " ":
        start = text.rindex(" ", 0, start) + 1
    if " " in text[stop:] and text[stop - 1 : stop] != " ":
        stop = text.index(" ", stop)
    return text[:start] + "…" + text[stop:]
