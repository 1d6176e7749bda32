"""Import heavy libraries only when they are first used, so that the program starts faster.

For example ``from logparse.lazy import duckdb, pd``. ``members`` makes the ``__getattr__`` of a package that offers
objects of its modules.
"""

# A library is imported when one of its attributes is first read. Type checkers get the library's module
# itself. ``benchmarks/starts.py`` measures how much time this module saves.

from __future__ import annotations

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

__all__ = ["ds", "duckdb", "members", "pa", "pd", "pq"]


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
