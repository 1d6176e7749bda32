"""Import heavy libraries only when they are first used, so that the program starts faster.

For example ``from logparse.lazy import duckdb, pd``. ``members`` makes the ``__getattr__`` of a package that offers
objects of its modules.
"""

# A library is imported when one of its attributes is first read. Type checkers get the library's module
# itself. ``benchmarks/starts.py`` measures how much time this module saves.

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

__all__ = ["ds", "duckdb", "import_numpy", "members", "pa", "pd", "pq"]


class Module(ModuleType):
    """Placeholder for a module, which is imported only when one of its attributes is first read."""

    def __getattr__(self, name: str) -> Any:
        # Every attribute is read from the real module each time. So if a test replaces an attribute of the real module,
        # the placeholder returns the new value.
        return getattr(import_module(self.__name__), name)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self.__name__,)


if not TYPE_CHECKING:
    duckdb = Module("duckdb")
    pa = Module("pyarrow")
    ds = Module("pyarrow.dataset")
    pq = Module("pyarrow.parquet")
    pd = Module("pandas")


def import_numpy() -> None:
    """Import NumPy in such a way that it wastes no CPU time."""
    # By default the threads of NumPy's OpenBLAS run in a loop for a tenth of a second while they wait for work, which
    # is a fifth of a short command's CPU time. With this setting, which OpenBLAS reads when it is loaded, they sleep.
    setting = "OPENBLAS_THREAD_TIMEOUT"  # the exponent of 2 of a number of cycles; at least 4
    if "numpy" not in sys.modules and setting not in os.environ:
        os.environ[setting] = "4"
        import numpy  # noqa: F401

        # Jobs that this process starts must not inherit the setting.
        del os.environ[setting]


def members(package: str, places: Mapping[str, str | Callable[[], object]]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package, with which its members are imported only when they are first used.

    ``places`` maps each name to its module, or to a function that makes the object. Other names raise AttributeError.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = places[name]
        found = getattr(import_module(place), name) if isinstance(place, str) else place()
        # An object is looked up once and then set as an attribute of the package.
        setattr(sys.modules[package], name, found)
        return found

    return find
