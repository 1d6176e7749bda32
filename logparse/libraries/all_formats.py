"""All formats, found in the rooms of the libraries: a new format is its file, and no list names it.

A module offers its formats as ``FORMAT``, or as ``FORMATS`` if it has several, assigned at the start of a line.  Only
modules with such a line are imported: to import the backends and rules as well takes half as long again (0.13 s of CPU
in each process that reads files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from logparse.libraries.kinds.format import Format
from logparse.libraries.kinds.patterns import regex

_OFFER = regex(rb"^FORMATS?\b *[:=]", re.MULTILINE)
_LIBRARIES = Path(__file__).parent


def offering(folder: Path = _LIBRARIES) -> Iterator[str]:
    """The names of the modules in the rooms that offer formats, in their order."""
    for room in sorted(folder.iterdir()):
        for path in sorted(room.glob("*.py")) if (room / "__init__.py").is_file() else ():
            if _OFFER.search(path.read_bytes()):
                yield f"{__package__}.{room.name}.{path.stem}"


def offered(module: ModuleType) -> tuple[Format, ...]:
    """The formats that a module offers."""
    several: tuple[Format, ...] | None = getattr(module, "FORMATS", None)
    return (module.FORMAT,) if several is None else several


def _found() -> Iterator[Format]:
    for name in offering():
        yield from offered(import_module(name))


FORMATS: tuple[Format, ...] = tuple(sorted(_found(), key=lambda format: format.asked_late != ""))
"""Every format that can be read.  Of whole-file formats the first that recognises a file reads it, of lines that two
formats may begin with the first takes it; one that states a reason in ``asked_late`` comes after all others.
"""
