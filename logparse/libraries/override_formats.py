"""List of override formats: files that tell a library which solutions (kernels) to use.

They are found in the folders of the libraries, in files called ``rules.py`` or ``…_rules.py``.  Such a module offers
its format as ``OVERRIDE_FORMAT``, or several formats as ``OVERRIDE_FORMATS``.

The files are found by their names, and each is imported at its first use.  Because ``logparse recommend`` writes files
for few libraries, it needs only their rules: to import all would take 25 ms more.  So a folder tells for which
overrides its rules are needed.  Usually it is for the solutions of the library that has the folder's name.  If not, the
folder's ``__init__.py`` has a function ``may_write(override)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from logparse.libraries.found import find_modules_called
from logparse.model import Override

if TYPE_CHECKING:
    from logparse.libraries.kinds.format import Writer
    from logparse.libraries.kinds.override_format import OverrideFormat

    OVERRIDE_FORMATS: tuple[OverrideFormat, ...]
    WRITERS: tuple[Writer, ...]

OFFERS = ("OVERRIDE_FORMAT", "OVERRIDE_FORMATS")
"""Names under which a module offers the override formats that it describes."""


@cache
def _modules() -> tuple[tuple[str, str], ...]:
    """List the modules that read and write override files (a user's lists of kernels to use).

    Each is given as the name of its folder and its own name.
    """
    return tuple(find_modules_called("rules"))


def formats_of(module: str) -> tuple[OverrideFormat, ...]:
    """Import a module and return the formats that it defines for files with chosen kernels.

    With such a file (override file) a user tells a library which kernels to use.
    """
    found = import_module(module)
    several: tuple[OverrideFormat, ...] | None = getattr(found, "OVERRIDE_FORMATS", None)
    return (found.OVERRIDE_FORMAT,) if several is None else several


def writers_for(overrides: Iterable[Override]) -> Iterator[Writer]:
    """Yield the writers that may be able to write some of the given overrides to files.

    An override is a user's choice of a kernel for a call.  The writer of TunableOp's list of products to tune is
    included.
    """
    given = list(overrides)
    for folder, module in _modules():
        if any(map(_make_writable_test(folder), given)):
            yield from (writer for format in formats_of(module) for writer in format.writers)


def _make_writable_test(folder: str) -> Callable[[Override], bool]:
    """Return a function that tells whether a library's file of chosen kernels can prescribe a given kernel.

    ``folder`` is the folder with logparse's code for the library.
    """
    library = folder.rpartition(".")[2]
    # Usually a library can only prescribe its own kernels. If another rule applies, the folder defines it as
    # ``may_write``.
    own: Callable[[Override], bool] | None = getattr(import_module(folder), "may_write", None)
    return own or (lambda override: override.solution.library == library)


def format_of(writer: Writer) -> OverrideFormat | None:
    """Return the format of the file that a writer makes, if a library can read this file.

    The file tells the library which kernels to use.  Returns None if the writer makes a file for a tuning program
    instead.
    """
    # A writer comes from a module that is imported, so these modules are asked first and no other is imported.
    modules = sorted((module for _, module in _modules()), key=lambda module: module not in sys.modules)
    format = next((x for module in modules for x in formats_of(module) if writer in x.writers), None)
    return format if format is not None and format.writer == writer else None


def __getattr__(name: str) -> object:
    """Make the lists ``OVERRIDE_FORMATS`` (formats of override files) and ``WRITERS`` when they are first used."""
    if name not in ("OVERRIDE_FORMATS", "WRITERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    formats = tuple(format for _, module in _modules() for format in formats_of(module))
    globals()["OVERRIDE_FORMATS"] = formats
    globals()["WRITERS"] = tuple(writer for format in formats for writer in format.writers)
    return globals()[name]
