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
>>> store.run("job")     # what to do, findings, figures (logparse.api.Run)
Run('job': no verdict: nothing was timed with more than one kernel (run `logparse replay`))
>>> sorted(store.workload().columns)     # the views, as pandas DataFrames
['calls', 'calls_from', 'kind', 'pid', 'problem', 'run']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.api import open

__version__ = "0.1.0"

__all__ = ["__version__", "open"]

__getattr__ = lazy.members(__name__, {"open": "logparse.api"})
