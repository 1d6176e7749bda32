"""The tables of a run, which every question is asked of, and what a user may set.

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

if TYPE_CHECKING:  # what only checks or merges files makes no DataFrame, and importing pandas takes long
    import duckdb
    import pandas as pd
    import pyarrow as pa

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")


@dataclass(frozen=True)
class LeftOut:
    """Traces of a run that count in no sum: why, the ids and names of the files, how many kernels they hold and the
    time of these (µs).
    """

    why: str
    sources: frozenset[str]
    names: tuple[str, ...]
    kernels: int
    us: float

    @property
    def text(self) -> str:
        """As a reader is told."""
        more = len(self.names) - _NAMED
        named = ", ".join(self.names[:_NAMED]) + f" and {more:,} more" * (more > 0)
        return f"{named} ({counted(self.kernels, 'kernel')}, {duration(self.us)}): {self.why}"


_NAMED = 3


@dataclass(frozen=True, eq=False)
class Tables:
    """One run's tables, plus the measurements and facts of every run of the store (evidence may come from any).

    Columns are those of the SQL views of the same names; ``calls``, ``workload`` and ``messages`` hold only rows of
    ``run``; ``messages`` is per process (it has a ``pid`` column).  ``passes``: ``evidence.passes`` of the
    store, where ``measurements`` lacks what only system find-dbs contain; None where it lacks nothing.  So is
    ``find_dbs``, which reads the best times of find-dbs (``source_id, problem, time_us``) when it is called, and so are
    ``solvers`` (``source_id, library, solution`` of all of MIOpen's solutions) for the checks of override files.
    ``timeline`` reads the row of a trace (``libraries/torch_profiler/timeline.py``) by its source's id, None where the
    store has none.  ``left_out``: traces that are no part of the job's time, and in no table of it; ``unlike``: why the
    times of the run's traces cannot be added, empty where they can (``evidence/traces.py``).
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
    """Open a connection that has frames as views, for SQL that a store's views are asked with, too.

    ``columns`` lists the columns of each view, as ``source_id text, count int``; a column that a frame lacks is
    unknown.  Kinds are ``text``, ``int`` (a fraction is rounded), ``float``, ``bool`` and ``floats`` (a list).
    """
    with shared_database().cursor() as con:
        for view, wanted in columns.items():
            con.register(view, _as_arrow(frames[view], dict(map(str.split, wanted.split(", ")))))
        yield con


def _as_arrow(frame: pd.DataFrame, columns: Mapping[str, str]) -> pa.Table:
    """Columns of a frame in Arrow's types: pandas has what is missing in any type."""
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
        if kind == "int":  # counts of a run whose kinds of units are weighed have fractions
            cells = cells.astype("Float64").round().astype("Int64")
        return pa.array(cells.astype(object), types[kind], from_pandas=True)

    return pa.table({name: column(name, kind) for name, kind in columns.items()})


def cached_per_run(function: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
    """Compute a result once per tables (or job) and settings.

    Because several analyzers ask for the same joins.  All callers share the result, so none may change it.
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
    """What a user may set: thresholds of the analyzers and facts of the target machine."""

    slow_factor: float = 3.0
    """W is slow when it takes more than this many times the slower of F and B."""
    slow_floor_ms: float = 0.05
    """... and more than this."""
    same_build: bool = False
    """The user vouches that logs and measurements are of one library build and one GPU arch."""
    min_saving_us: float = 0.0
    """Findings that save less per run are not shown."""
    min_gain: float = 0.03
    """Least gain of a proposal, as a share of the problem's own time (0 to 1)."""
    ladder: int | None = None
    """Step of n of the sizes between measured ones that get rows of hipBLASLt's tuning file; None: they get none."""
    steps: int | None = None
    """Steps (or requests) that the run's logs are of; None: as many as its traces marked."""
    confirmed_only: bool = False
    """Override files hold only what a replay confirmed; the other findings are reported all the same."""
    max_rows: int | None = None
    """No override file gets more rows than this, the most valuable first."""
    target: Mapping[str, str] = field(default_factory=dict)
