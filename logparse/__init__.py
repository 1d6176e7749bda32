"""Turn math-library logs and tuning files of GPU jobs into one table, findings and override files.
>>> import logparse
>>> from logparse.ingest import ingest
>>> from logparse.store import open_store
>>> results = ingest(["sample_logs/hipblaslt/hipblaslt_rank0_4242.log"], open_store(folder, create=True), run="job")
>>> store = logparse.open(folder)
>>> store
Store('...', runs: job)
>>> store.sql("select sum(calls) > 0 as called from workload")
   called
0    True
>>> sorted(store.workload().columns)     # the views, as pandas DataFrames
['calls', 'calls_from', 'kind', 'pid', 'problem', 'run']
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logparse.store import Store

__version__ = "0.1.0"


def open(location: str | os.PathLike[str] | None = None) -> Store:
    """Open the store at a folder or URL. Return it.

    The default location is ``$LOGPARSE_STORE``, or ``logparse-store`` if that variable is not set. Raises
    logparse.errors.StoreError if there is no store, or if another schema version wrote it.
    """
    from logparse.store import open_store

    return open_store(location)


__all__ = ["__version__", "open"]
