"""Turn math-library logs and tuning files of GPU jobs into one table, findings and override files.
>>> import logparse
>>> results = logparse.ingest("sample_logs/hipblaslt/hipblaslt_rank0_4242.log", folder, run="job")
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

The commands that make sense in a notebook are functions, too: ``dir(logparse)`` lists them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.api import coverage, diff, ingest, lint, open, recommend, report, show, status, verify

__version__ = "0.1.0"

__all__ = [
    "coverage",
    "diff",
    "ingest",
    "lint",
    "open",
    "recommend",
    "report",
    "show",
    "status",
    "verify",
]

# `ingest` is a package and a function in one (see its `__init__.py`).
__getattr__ = lazy.members(
    __name__, {**dict.fromkeys(__all__, "logparse.api"), "ingest": lambda: import_module("logparse.ingest")}
)


def __dir__() -> list[str]:
    """Return the names that a notebook completes. Modules that were imported so far are no part of them."""
    return __all__
