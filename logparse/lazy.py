"""What a start need not import: heavy libraries and lists of members, imported at their first use.

``from logparse.lazy import duckdb, pd`` gives a library's module to type checkers, and at run time an object that
imports it when one of its attributes is first asked for.  ``members`` makes the ``__getattr__`` of a package that hands
out what its modules hold.  ``benchmarks/starts.py`` measures what that saves.
"""

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
    """Stands for a module that is imported at the first use of an attribute.

    No attribute is kept: one that is replaced in the module is replaced here.
    """

    def __getattr__(self, name: str) -> Any:
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
    """The ``__getattr__`` of a package: name → the module that holds it, or a function that makes it.

    Each is found once, and is the package's own from then on.  Every other name raises AttributeError.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = places[name]
        found = getattr(import_module(place), name) if isinstance(place, str) else place()
        setattr(sys.modules[package], name, found)
        return found

    return find
