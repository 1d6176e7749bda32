"""From math-library logs and tuning files of GPU jobs to one table, findings and override files.

import logparse
store = logparse.open("logparse-store")
store.calls()        # pandas DataFrames with the columns of the SQL views
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logparse.store import Store

__version__ = "0.1.0"


def open(location: str | os.PathLike[str] | None = None) -> Store:
    """The store at a folder or URL (default ``$LOGPARSE_STORE``, else ``logparse-store``).

    Raises logparse.errors.StoreError when there is none or its schema is another version's.
    """
    from logparse.store import open_store

    return open_store(location)


__all__ = ["__version__", "open"]
