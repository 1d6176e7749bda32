"""Find out which process wrote a log, if its lines do not state it: from ``--pid`` or from the file's name.

* ``job_%i.log``: libraries replace ``%i`` by the process's id.
* ``rank3``, ``pid=77``: launchers write these.
* ``Llama-2-70B.log``, ``mi300x.log``: no process.
"""

# The user sets such a name, for example, by ``HIPBLASLT_LOG_FILE=job_%i.log``. Any other number in a name belongs to a
# model, a date or a device.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logparse.errors import UsageError
from logparse.libraries.kinds.patterns import regex

_PLACE = regex(
    r"(?<![A-Za-z])(?:pid|rank)[_.=-]?(?P<word>\d{1,18})(?![\dA-Za-z])"
    r"|(?:^|_|(?<!\d)\.)(?P<end>\d{1,18})(?=(?:\.[A-Za-z]\w*)*$)"
)
"""Pattern of the numbers in a file name that may be the number of a process.

The pattern matches a number behind ``pid`` or ``rank``, and the last number before the extensions. The last number must
follow a ``_`` or a dot (not a decimal point), or begin the name.
"""


@dataclass(frozen=True, slots=True)
class Process:
    """A process number, and where it was found.

    ``pid_from`` is ``prefix`` (of a line), ``fact``, ``name`` (of the file) or ``option``.
    """

    pid: int | None = None
    pid_from: str | None = None


UNKNOWN = Process()


def is_process(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def stated_process(text: str | None) -> Process | None:
    """Parse the value of ``--pid``: a process number, or ``none``.

    Returns None if the option is missing. Raises UsageError for other values.
    """
    if text is None:
        return None
    if text == "none":
        return UNKNOWN
    if not is_process(text):
        raise UsageError(
            f"--pid {text}: must be a process number, or the word none (then no number in a file's name is taken for "
            "a process number)"
        )
    return Process(int(text), "option")


def processes_in_names(names: Iterable[str]) -> Mapping[str, Process]:
    """Find the id of the process (rank or pid) in each file name.

    Of several numbers, the last that differs from similar names decides: 3 in ``rank3_2026.log`` beside
    ``rank4_2026.log``.
    """
    numbers = {name: [int(match[match.lastgroup or 0]) for match in _PLACE.finditer(name)] for name in names}
    alike: dict[str, list[list[int]]] = {}
    for name, held in numbers.items():
        alike.setdefault(_template(name), []).append(held)
    # Similar names differ only in their numbers. If no number differs, the last number is used.
    varying = {
        template: [i for i, held in enumerate(zip(*rows, strict=True)) if len(set(held)) > 1] or [-1]
        for template, rows in alike.items()
    }
    return {
        name: Process(held[varying[_template(name)][-1]], "name") if held else UNKNOWN for name, held in numbers.items()
    }


def numbers_in(path: str) -> list[int]:
    """Return the ids of processes (ranks or pids) that a path may contain, from left to right.

    The folders in the path are searched, too.
    """
    return [int(match[match.lastgroup or 0]) for part in path.split("/") for match in _PLACE.finditer(part)]


def _template(name: str) -> str:
    return _PLACE.sub("%i", name)
