"""The tables of a run, which every analysis reads, and the settings of the user.

The tables are pandas DataFrames with the columns of the store's SQL views (docs/sql.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from logparse.store.database import shared_database
from logparse.text import counted, duration

if TYPE_CHECKING:  # Code that only checks or merges files makes no DataFrame, and importing pandas takes long.
    import duckdb
    import pandas as pd
    import pyarrow as pa

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")


@dataclass(frozen=True)
class LeftOut:
    """Traces of a run that are left out of every sum.

    * ``why``: the reason.
    * ``sources``, ``names``: ids and names of the files.
    * ``kernels``, ``us``: number of kernels in the files, and their time in µs.
    """

    why: str
    sources: frozenset[str]
    names: tuple[str, ...]
    kernels: int
    us: float

    @property
    def text(self) -> str:
        """The sentence that a user reads about these traces."""
        more = len(self.names) - _NAMED
        named = ", ".join(self.names[:_NAMED]) + f" and {more:,} more" * (more > 0)
        return f"{named} ({counted(self.kernels, 'kernel')}, {duration(self.us)}): {self.why}"


_NAMED = 3


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of one run, plus the measurements and facts of every run of the store.

    The other runs are included because evidence may come from any run.

    The columns are those in the SQL views of the same names. ``calls``, ``workload`` and ``messages`` hold only rows of
    ``run``. ``messages`` is per process: it has a column ``pid``.

    * ``passes``: the table of ``evidence.passes`` for the whole store. It is set if ``measurements`` lacks the records
      that only system find-dbs contain, and None if ``measurements`` is complete.
    * ``find_dbs``: a function that reads the best times of find-dbs (``source_id, problem, time_us``). It is set if
      ``passes`` is set.
    * ``solvers``: ``source_id, library, solution`` of all solutions of MIOpen, for the checks of override files.
    * ``timeline``: a function that reads the row of a trace (``libraries/torch_profiler/timeline.py``) by the id of its
      source. It returns None if the store has no row.
    * ``left_out``: traces that are no part of the job's time. The tables of the job's time do not contain them.
    * ``unlike``: the reason why the times of the run's traces are not added (``evidence/traces.py``). Empty if they
      are.
    """

    run: str
    sources: pd.DataFrame
    calls: pd.DataFrame
    workload: pd.DataFrame
    messages: pd.DataFrame
    gemm_problems: pd.DataFrame
    conv_problems: pd.DataFrame
    links: pd.DataFrame
    measurements: pd.DataFrame
    solutions: pd.DataFrame
    kernels: pd.DataFrame
    collectives: pd.DataFrame
    facts: pd.DataFrame
    passes: pd.DataFrame | None = None
    find_dbs: Callable[[], pa.Table] | None = None
    solvers: pd.DataFrame | None = None
    timeline: Callable[[str], pa.Table | None] = lambda source_id: None
    left_out: tuple[LeftOut, ...] = ()
    unlike: str = ""


@contextmanager
def reading(frames: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with DataFrames as views, so that the SQL for a store's views runs on them.

    ``columns`` lists the columns of each view, for example ``source_id text, count int``. If a frame lacks a column,
    the column is null in all rows. Kinds are ``text``, ``int`` (a fraction is rounded), ``float``, ``bool`` and
    ``floats`` (a list).
    """
    with shared_database().cursor() as con:
        for view, wanted in columns.items():
            con.register(view, _as_arrow(frames[view], dict(map(str.split, wanted.split(", ")))))
        yield con


def _as_arrow(frame: pd.DataFrame, columns: Mapping[str, str]) -> pa.Table:
    """Convert columns of a frame to Arrow's types, because in pandas a missing value may have any type."""
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "floats": pa.list_(pa.float64()),
    }

    def column(name: str, kind: str) -> pa.Array | pa.ChunkedArray:
        if name not in frame:
            return pa.nulls(len(frame), types[kind])
        cells = frame[name]
        if kind == "int":  # ``units.weighed`` makes numbers of calls with a fraction.
            cells = cells.astype("Float64").round().astype("Int64")
        return pa.array(cells.astype(object), types[kind], from_pandas=True)

    return pa.table({name: column(name, kind) for name, kind in columns.items()})


def cached_per_run(function: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
    """Compute a result once per tables (or job) and settings, because several analyzers ask for the same joins.

    All callers share the result, so none may change it.
    """
    kept: WeakKeyDictionary[K, dict[str, Any]] = WeakKeyDictionary()

    @wraps(function)
    def asked(of: K, /, *args: P.args, **words: P.kwargs) -> R:
        known, key = kept.setdefault(of, {}), repr((args, words))
        if key not in known:
            known[key] = function(of, *args, **words)
        result: R = known[key]
        return result

    return asked


@dataclass(frozen=True)
class Settings:
    """Settings of the user: thresholds of the analyzers and facts of the target machine."""

    slow_factor: float = 3.0
    """W is slow if it takes more than this many times the slower of F and B, and more than ``slow_floor_ms``."""
    slow_floor_ms: float = 0.05
    """Least time of a slow W, ms. See ``slow_factor``."""
    same_build: bool = False
    """The user states that logs and measurements are of one library build and one GPU arch."""
    min_saving_us: float = 0.0
    """Least saving of a finding that is shown, µs per run."""
    min_gain: float = 0.03
    """Least gain of a proposal, as a share of the problem's own time (0 to 1)."""
    ladder: int | None = None
    """Step of n for extra rows of hipBLASLt's tuning file, at sizes between measured ones. None: no such rows."""
    steps: int | None = None
    """Number of steps (or requests) in the run's logs. None: as many as its traces marked."""
    confirmed_only: bool = False
    """Write only overrides that a replay confirmed to override files. All findings are reported."""
    max_rows: int | None = None
    """Largest number of rows of an override file; the most valuable rows are kept. None: no limit."""
    target: Mapping[str, str] = field(default_factory=dict)
