"""Read logs and tuning files into the store (the Parquet folder with everything that was read).

* ``all_inputs`` finds the input files and combines the results.
* ``schedule`` decides what is read next.
* ``worker`` reads one input file, which ``input_file`` opens.
* ``lines`` finds the distinct lines, and ``stream`` reads their content.
* ``counting`` (Python) or ``_lines.c`` (native) counts the distinct lines.
* ``render`` makes the text that is printed at the end.

In a notebook, ``logparse.ingest(paths, store, run="before")`` reads files: ``logparse.api.ingest`` has the details.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from logparse import lazy

if TYPE_CHECKING:
    from logparse.ingest.all_inputs import ingest, ingest_at, record
    from logparse.ingest.schedule import Ingested

__all__ = ["Ingested", "ingest", "ingest_at", "record"]

# A pasted line is read with `lines` alone, so nothing else is imported until it is used.
__getattr__ = lazy.members(__name__, dict.fromkeys(__all__, "logparse.ingest.all_inputs"))


class _CallablePackage(ModuleType):
    """The package ``logparse.ingest``, which can also be called as a function.

    Importing a package sets its name in the package above. So the function of this name for notebooks would be replaced
    whenever any module imports the package.
    """

    def __call__(self, *args: Any, **options: Any) -> list[Ingested]:
        """Read files into a store, exactly as ``logparse.api.ingest`` does."""
        from logparse import api  # which imports all of logparse

        return api.ingest(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
