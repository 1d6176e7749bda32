"""The data that every analyzer reads (the tables of one execution of a job, a run), and the user's settings.

The tables are pandas DataFrames with the columns of the SQL views in docs/sql.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from logparse.libraries.miopen.find_db_choice import SLOW_FACTOR, SLOW_FLOOR_MS
from logparse.store.database import shared_database
from logparse.text import duration, pluralize

if TYPE_CHECKING:  # Code that only checks or merges files makes no DataFrame, and importing pandas takes long.
    import duckdb
    import pandas as pd
    import pyarrow as pa

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")


@dataclass(frozen=True)
class LeftOut:
    """Traces that are not added to the job's times, for example copies of another trace.

    * ``why``: the reason.
    * ``sources``, ``names``: the files' ids and names.
    * ``kernels``: number of kernels.
    * ``us``: their time, µs.
    """

    why: str
    sources: frozenset[str]
    names: tuple[str, ...]
    kernels: int
    us: float

    @property
    def text(self) -> str:
        """One line for the user about traces that were left out: their names, kernels, time and the reason."""
        more = len(self.names) - _NAMED
        named = ", ".join(self.names[:_NAMED]) + f" and {more:,} more" * (more > 0)
        return f"{named} ({pluralize(self.kernels, 'kernel')}, {duration(self.us)}): {self.why}"


_NAMED = 3


@dataclass(frozen=True, eq=False)
class Tables:
    """The data that the analyzers read: the tables of one execution of a job (a run), and measurements of all runs.

    The measurements of other runs are included because a kernel may have been timed in any run. The columns are as in
    the SQL views with the same names. ``calls``, ``workload`` and ``messages`` have only rows of ``run``. ``messages``
    has a row per process, with a column ``pid``. ``facts`` lists what each file states about its machine.

    * ``passes``: the table that ``evidence.passes`` computes from all measurements. It is set only if ``measurements``
      lacks the records that only MIOpen's own find-dbs contain.
    * ``find_dbs``: a function that reads the best times in find-dbs (``source_id, problem, time_us``). It is set if
      ``passes`` is set.
    * ``solvers``: ``source_id, library, solution`` of all MIOpen solvers, to check override files.
    * ``timeline``: a function that reads the timeline of a trace (``libraries/torch_profiler/timeline.py``) by the id
      of its file. It returns None if there is no timeline.
    * ``left_out``: traces that are not part of the job's time. The other tables do not contain them.
    * ``copies``: files with the content of another file of their run (``copy_of``). No other table has rows of them.
      None if they are unknown.
    * ``not_used``: counts of what the run has and no analyzer uses, such as damaged lines. It is empty if there is
      nothing, or if it was not asked for.
    * ``unlike``: the reason why the times of the run's traces are not added (``evidence/traces.py``). It is empty if
      they are added.
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
    copies: pd.DataFrame | None = None
    not_used: str = ""
    unlike: str = ""


@contextmanager
def query_frames(frames: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection in which pandas DataFrames can be queried by SQL, each under the name of a view.

    ``columns``: each view's columns, for example ``source_id text, count int``. A column that a frame lacks is null.
    """
    with shared_database().cursor() as con:
        for view, wanted in columns.items():
            # The types are ``text``, ``int`` (a fraction is rounded), ``float``, ``bool`` and ``floats`` (a list).
            con.register(view, _as_arrow(frames[view], dict(map(str.split, wanted.split(", ")))))
        yield con


def _as_arrow(frame: pd.DataFrame, columns: Mapping[str, str]) -> pa.Table:
    """Convert a DataFrame to an Arrow table whose columns have the given types.

    Without given types, a column with missing values could get a wrong type.
    """
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
    """Decorate a function of a run's tables so that it computes each result only once, although several analyzers ask.

    All callers get the same object, so none may change it.
    """
    kept: WeakKeyDictionary[K, dict[str, Any]] = WeakKeyDictionary()

    @wraps(function)
    def asked(of: K, /, *args: P.args, **words: P.kwargs) -> R:
        # A result is kept for the same first argument (tables or job) and equal values of the other arguments.
        known, key = kept.setdefault(of, {}), repr((args, words))
        if key not in known:
            known[key] = function(of, *args, **words)
        result: R = known[key]
        return result

    return asked


@dataclass(frozen=True)
class Settings:
    """The user's settings: limits for what the analyzers report, and facts about the machine that gets the results."""

    slow_factor: float = SLOW_FACTOR
    """A convolution's weight gradient is slow if it takes more than this many times as long as the other passes.

    It is compared with the slower of the forward pass (F) and the gradient of the input (B) of the same layer. It must
    also take more than ``slow_floor_ms`` to be reported.
    """
    slow_floor_ms: float = SLOW_FLOOR_MS
    """Weight gradients of convolutions that take less than this (ms) are not reported as slow. See ``slow_factor``."""
    same_build: bool = False
    """True if the user states that logs and measurements are from the same library build and GPU arch."""
    min_saving_us: float = 0.0
    """Findings that save less than this (µs per run of the job) are not shown."""
    min_gain: float = 0.03
    """Smallest gain for which a change is proposed, as a fraction of the call's own time. 0.03 means 3 %."""
    ladder: int | None = None
    """Step between additional sizes n in hipBLASLt's tuning file. With 16, rows for n = 16, 32, 48 … are added.

    Rows are added only between two measured sizes. None: add no such rows.
    """
    steps: int | None = None
    """Number of training steps (or requests) that the run's logs cover, if the user states it.

    None means that the steps that the traces mark are counted.
    """
    confirmed_only: bool = False
    """If True, an override is written to a file only if a replay confirmed its gain. All findings are still reported.
    """
    max_rows: int | None = None
    """Largest number of rows in an override file. The rows that save most are kept. None: no limit."""
    target: Mapping[str, str] = field(default_factory=dict)
