"""Open databases of DuckDB in memory, in which SQL queries over a store run."""

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
    """Open a new DuckDB database in memory that never installs or loads extensions by itself."""
    import duckdb

    return duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": tempfile.gettempdir(),  # DuckDB's default is .tmp in the working folder
        }
    )


def shared_database() -> duckdb.DuckDBPyConnection:
    """Return the DuckDB database that all readers in this process share.

    Each reader takes a ``cursor`` of it, because opening a DuckDB takes 10 ms of CPU time.
    """
    # A forked process opens its own database, because the threads of its parent's DuckDB do not exist in it.
    key = (os.getpid(), tempfile.gettempdir())
    with _MAKING:
        if key not in _SHARED:
            _SHARED[key] = database()
        return _SHARED[key]


@atexit.register
def _close() -> None:
    """Close the shared DuckDB database before the interpreter exits, so that DuckDB reports no leftover objects."""
    for pid, folder in list(_SHARED):
        if pid == os.getpid():
            _SHARED.pop((pid, folder)).close()
