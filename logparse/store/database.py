"""DuckDB in memory, as stores use it."""

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
    """A DuckDB of its own, which installs and loads no extension."""
    import duckdb

    return duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": tempfile.gettempdir(),  # DuckDB's default is .tmp in the working folder
        }
    )


def shared_database() -> duckdb.DuckDBPyConnection:
    """The one DuckDB of this process, of which each reader takes a ``cursor``: making one takes 10 ms of CPU.

    A process that was forked makes its own: threads of its parent's are missing in it.
    """
    key = (os.getpid(), tempfile.gettempdir())
    with _MAKING:
        if key not in _SHARED:
            _SHARED[key] = database()
        return _SHARED[key]


@atexit.register
def _close() -> None:
    """DuckDB's module reports what is left of it when the interpreter ends."""
    for pid, folder in list(_SHARED):
        if pid == os.getpid():
            _SHARED.pop((pid, folder)).close()
