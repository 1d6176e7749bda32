"""In-memory DuckDB databases, as stores use them."""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_SHARED: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}
_MAKING = threading.Lock()


def database() -> duckdb.DuckDBPyConnection:
    """Make a new DuckDB in memory, which installs and loads no extension."""
    import duckdb

    return duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": tempfile.gettempdir(),  # DuckDB's default is .tmp in the working folder
        }
    )


def shared_database() -> duckdb.DuckDBPyConnection:
    """Return the one DuckDB of this process.

    Each reader takes a ``cursor`` of it, because making a DuckDB takes 10 ms of CPU time. A forked process makes its
    own DuckDB, because it has no copy of the threads that its parent's DuckDB uses.
    """
    key = (os.getpid(), tempfile.gettempdir())
    with _MAKING:
        if key not in _SHARED:
            _SHARED[key] = database()
        return _SHARED[key]


@atexit.register
def _close() -> None:
    """Close the shared DuckDB before the interpreter ends.

    Otherwise DuckDB's module would report the objects that are left of it.
    """
    for pid, folder in list(_SHARED):
        if pid == os.getpid():
            _SHARED.pop((pid, folder)).close()
