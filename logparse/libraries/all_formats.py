"""List of all formats, found in the folders of the libraries.

A new format is one new file.  No list has to name it.  A module offers its format as ``FORMAT``, or several formats as
``FORMATS``.  The assignment must be at the start of a line.

Only modules with such a line are imported, so that backends and override rules are not.  Importing these as well would
take half as long again (0.13 s of CPU in each process that reads files).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from logparse.libraries.found import offering
from logparse.libraries.kinds.format import Format

OFFERS = ("FORMAT", "FORMATS")
"""Names under which a module offers its formats."""


def offered(module: ModuleType) -> tuple[Format, ...]:
    """Return the formats that a module offers."""
    several: tuple[Format, ...] | None = getattr(module, "FORMATS", None)
    return (module.FORMAT,) if several is None else several


def _found() -> Iterator[Format]:
    for name in offering(*OFFERS):
        yield from offered(import_module(name))


FORMATS: tuple[Format, ...] = tuple(sorted(_found(), key=lambda format: format.asked_late != ""))
"""Every format that can be read, in the order in which the formats are asked.

* The first whole-file format that recognises a file reads the file.
* If the beginnings of two line formats match a line, the first of them reads the line.
* A format that states a reason in ``asked_late`` comes after all others.
"""
