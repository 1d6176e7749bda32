"""The process of lines that state none.  The user states the process, or it is found in the names of the files that are
read together.

Libraries put the process into a name where a template has ``%i`` (``HIPBLASLT_LOG_FILE=job_%i.log``).  Launchers put
``rank3`` or ``pid=77`` into a name.  Any other number in a name belongs to a model, a date or a device:
``Llama-2-70B.log``, ``mi300x.log``.
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
"""Pattern of the places where a name may hold a process: a number behind ``pid`` or ``rank``, or the last number before
the extensions.

Such a last number follows a ``_`` or a dot (not a decimal point), or it begins the name.
"""


@dataclass(frozen=True, slots=True)
class Process:
    """Process, and where it was found: ``prefix`` (of lines), ``fact``, ``name`` (of the file) or ``option``."""

    pid: int | None = None
    pid_from: str | None = None


UNKNOWN = Process()


def is_process(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def stated_process(text: str | None) -> Process | None:
    """Parse the value of ``--pid``: a number or ``none``.

    Return None if the option is missing.  Raises UsageError for other values.
    """
    if text is None:
        return None
    if text == "none":
        return UNKNOWN
    if not is_process(text):
        raise UsageError(f"--pid {text}: must be a process number, or none if no number in a file's name is a process")
    return Process(int(text), "option")


def processes_in_names(names: Iterable[str]) -> Mapping[str, Process]:
    """Return the process in each name.

    If a name has several numbers, names with the same text around the numbers are compared.  The last number in which
    they differ is the process: the 3 of ``rank3_2026.log`` beside ``rank4_2026.log``.  If they do not differ, the last
    number is the process.
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
