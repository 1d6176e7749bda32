"""List of all file formats that logparse reads, found in the folders of the libraries.

To add a format, add one file.  A module offers its format as ``FORMAT``, or several formats as ``FORMATS``.  The
assignment must be at the start of a line, because only modules with such a line are imported.  Importing all modules
would take half as long again (0.13 s of CPU in each process that reads files).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from logparse.libraries.found import find_modules_with
from logparse.libraries.kinds.format import Format

OFFERS = ("FORMAT", "FORMATS")
"""Names of the variables in which a module offers the file formats that it reads."""


def list_formats(module: ModuleType) -> tuple[Format, ...]:
    """Return the file formats that a module defines in its variable ``FORMAT`` or ``FORMATS``."""
    several: tuple[Format, ...] | None = getattr(module, "FORMATS", None)
    return (module.FORMAT,) if several is None else several


def _found() -> Iterator[Format]:
    for name in find_modules_with(*OFFERS):
        yield from list_formats(import_module(name))


FORMATS: tuple[Format, ...] = tuple(sorted(_found(), key=lambda format: format.asked_late != ""))
"""Every file format that logparse can read, in the order in which the formats are tried on a file.

* Some formats read a whole file.  The first of them that recognises a file reads it.
* Other formats read single lines.  If two of them recognise the beginning of a line, the first one reads the line.
* A format that gives a reason in ``asked_late`` comes after all others.
"""
