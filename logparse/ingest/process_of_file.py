"""The process of the lines that state none: stated by the user, or by the names of the files that are read together.

Libraries put it where a template has ``%i`` (``HIPBLASLT_LOG_FILE=job_%i.log``), launchers put ``rank3`` or ``pid=77``
into a name.  Any other number belongs to a model, a date or a device: ``Llama-2-70B.log``, ``mi300x.log``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logparse.errors import UsageError
from logparse.libraries.kinds.patterns import regex

_PLACE = regex(
    r"(?<![A-Za-z])(?:pid|rank)[_.=-]?(?P<word>\d{1,18})(?![\dA-Za-z])"
    r"|(?:^|_|(?<!\d)\.)(?P<end>\d{1,18})(?=(?:\.[A-Za-z]\w*)*$)"
)
"""Behind one of the words; or last before the extensions, behind ``_``, a dot (but no decimal point) or nothing."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and where it is from: ``prefix`` (of lines), ``fact``, ``name`` (of the file) or ``option``."""

    pid: int | None = None
    pid_from: str | None = None


UNKNOWN = Process()


def is_process(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def stated_process(text: str | None) -> Process | None:
    """The value of ``--pid``: a number or ``none``; None where it is absent.  Raises UsageError."""
    if text is None:
        return None
    if text == "none":
        return UNKNOWN
    if not is_process(text):
        raise UsageError(f"--pid {text}: a number, or none where no number in a name is a process")
    return Process(int(text), "option")


def processes_in_names(names: Iterable[str]) -> Mapping[str, Process]:
    """The process in each name.

    Of several places the last one counts in which names differ that are alike elsewhere: the 3 of ``rank3_2026.log``
    beside ``rank4_2026.log``.
    """
    numbers = {name: [int(match[match.lastgroup or 0]) for match in _PLACE.finditer(name)] for name in names}
    alike: dict[str, list[list[int]]] = {}
    for name, held in numbers.items():
        alike.setdefault(_template(name), []).append(held)
    varying = {
        template: [i for i, held in enumerate(zip(*rows, strict=True)) if len(set(held)) > 1] or [-1]
        for template, rows in alike.items()
    }
    return {
        name: Process(held[varying[_template(name)][-1]], "name") if held else UNKNOWN for name, held in numbers.items()
    }


def _template(name: str) -> str:
    return _PLACE.sub("%i", name)
