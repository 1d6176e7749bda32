"""Which logs the calls of a run are counted from, and where that may count a call twice or leave one out.

The view ``workload`` takes, per process, the category with the most calls.  Logs without a process are taken for one
process: of one category they are added, of several the largest counts.  The logs cannot show whether that is right, so
it is remarked; so are logs left out beside another that has the same process only by the files' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from analyzers.times.cells import is_true
from logparse.store import Store
from logparse.text import duration

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

_CALLS = """select source_id, category, kind = 'conv' as conv, pid, cast(sum(count) as bigint) as calls
            from calls where run = $run and not by_tool group by all having calls > 0"""
_SOURCES = "select source_id, path, coalesce(bytes, 0), pid_from from sources where run = $run"
_UNEXPLAINED = """
    select (select sum(cast(value as double)) from facts where run = $run and name = 'graph_unexplained_us'),
           (select sum(total_us) from kernels where run = $run)"""
_SHOWN = 4


class Calls(NamedTuple):
    """The calls of a log, of one category, process (None: unknown) and kind."""

    source_id: str
    category: str
    conv: bool
    pid: int | None
    calls: int


class LogFile(NamedTuple):
    """A source; ``pid_from`` is what states its process."""

    path: str
    bytes: int
    pid_from: str | None


@dataclass(frozen=True)
class _Log:
    path: str
    category: str
    pid: int | None
    calls: int
    bytes: int
    counted: bool
    by_name: bool
    """Only the file's name states the process."""


def remarks_of(store: Store, run: str) -> list[str]:
    """The remarks on a run's counts, as lines; also how much of its traces no call explains."""
    with store.reading(f"{_CALLS} {_SOURCES} {_UNEXPLAINED}") as con:
        ((graphs_us, kernels_us),) = con.execute(_UNEXPLAINED, {"run": run}).fetchall()
        unexplained = f"{duration(graphs_us or 0.0)} of {duration(kernels_us or 0.0)} of the traces' kernels"
        in_no_row = f"not counted: the calls in {unexplained}, which graphs launched: no trace names their operators"
        return [*remarks_in(con, run), *([in_no_row] if graphs_us else [])]


def remarks_in(con: duckdb.DuckDBPyConnection, run: str) -> Iterator[str]:
    """The same over a connection with the views ``calls`` and ``sources``."""
    rows = con.execute(_CALLS, {"run": run}).fetchall()
    if rows:
        sources = con.execute(_SOURCES, {"run": run}).fetchall()
        yield from remarks(map(Calls._make, rows), {source_id: LogFile(*about) for source_id, *about in sources})


def remarks_on(calls: pd.DataFrame, sources: pd.DataFrame) -> Iterator[str]:
    """The same of one run's rows of the views ``calls`` and ``sources``."""
    rows = calls[~is_true(calls["by_tool"])]
    rows = rows.assign(conv=rows["kind"] == "conv", calls=rows["count"].astype("Float64"))
    rows = rows.groupby(["source_id", "category", "conv", "pid"], dropna=False)["calls"].sum().reset_index()
    rows = rows[rows["calls"] > 0]
    pids = rows["pid"].astype("Int64").astype("object").where(rows["pid"].notna(), None)
    made = zip(rows["source_id"], rows["category"], rows["conv"], pids, rows["calls"].astype("int64"), strict=True)
    sizes = sources["bytes"].fillna(0).astype("int64")
    files = map(LogFile, sources["path"], sizes, sources["pid_from"])
    yield from remarks(map(Calls._make, made), dict(zip(sources["source_id"], files, strict=True)))


def remarks(rows: Iterable[Calls], sources: Mapping[str, LogFile]) -> Iterator[str]:
    """Sums over logs of unknown process, logs that were left out beside others, and logs that may be one."""
    given = list(rows)
    for conv in (False, True):
        logs = _logs([row for row in given if row.conv == conv], sources)
        what = "convolution" if conv else "GEMM"
        yield from _added(logs, what)
        yield from _not_counted(logs, what)
        yield from _alike(logs, what)


def _logs(rows: Sequence[Calls], sources: Mapping[str, LogFile]) -> list[_Log]:
    """The logs of one kind of calls, with what ``workload`` takes of them."""
    totals: dict[tuple[int | None, str], int] = {}
    for row in rows:
        totals[row.pid, row.category] = totals.get((row.pid, row.category), 0) + row.calls
    taken: dict[int | None, str] = {}
    for pid, category in sorted(totals, key=lambda x: (-totals[x], x[1])):
        taken.setdefault(pid, category)
    out = []
    for row in rows:
        file = sources.get(row.source_id, LogFile(row.source_id, 0, None))
        counted, by_name = taken[row.pid] == row.category, file.pid_from == "name"
        out.append(_Log(file.path, row.category, row.pid, row.calls, file.bytes, counted, by_name))
    return sorted(out, key=lambda log: (log.path, log.category))


def _added(logs: Sequence[_Log], what: str) -> Iterator[str]:
    unknown = [log for log in logs if log.counted and log.pid is None]
    known = [log for log in logs if log.counted and log.pid is not None]
    processes = len({log.pid for log in known})
    calls = _calls(unknown, what)
    if len(unknown) > 1:
        yield (
            f"{calls} are the sum of {len(unknown):,} logs of unknown process ({_named(unknown)}): right where each is "
            "of a process of its own; two logs of one process count its calls twice"
        )
    if unknown and known:
        others = f"{sum(log.calls for log in known):,} of {processes} known process{'es' * (processes > 1)}"
        yield (
            f"{calls} of unknown process ({_named(unknown)}): added to the {others} ({_categories(known)}); where "
            "they are the same calls they count twice, a run of their own (ingest --run) keeps them apart"
        )


def _not_counted(logs: Sequence[_Log], what: str) -> Iterator[str]:
    unknown = [log for log in logs if log.pid is None]
    counted = [log for log in unknown if log.counted]
    left = [log for log in unknown if not log.counted and log.path not in {x.path for x in counted}]
    if left:
        yield (
            f"not counted: {_calls(left, what)} of {_named(left)} beside {_named(counted)}: none states its process, "
            "and different logs are taken for the same calls"
        )
    named = {log.pid for log in logs if log.by_name} - {None}
    counted = [log for log in logs if log.counted and log.pid in named]
    left = [log for log in logs if not log.counted and log.pid in named]
    left = [log for log in left if log.path not in {x.path for x in counted}]
    if left:
        yield (
            f"not counted: {_calls(left, what)} of {_named(left)} beside {_named(counted)}: by their names they are of "
            "one process, and different logs of a process are taken for the same calls; where they are not, "
            "`ingest --pid` or `--run` keeps them apart"
        )
    yield from _of_two_libraries(logs, what)


def _of_two_libraries(logs: Sequence[_Log], what: str) -> Iterator[str]:
    """On some GPUs rocBLAS passes its calls on to hipBLASLt; on others the two libraries log different calls."""
    counted = {(log.path, log.pid): log for log in logs if log.counted}
    pairs = [(log, counted.get((log.path, log.pid))) for log in logs if not log.counted]
    apart = [(log, other) for log, other in pairs if other and _of_rocblas(log) != _of_rocblas(other)]
    if apart:
        left, beside = [log for log, _ in apart], list(dict.fromkeys(other for _, other in apart))
        yield (
            f"not counted: {_calls(left, what)} of {_named(left)} beside {_named(beside)}: rocBLAS and hipBLASLt of "
            "one process are taken for the same calls; where rocBLAS does not use hipBLASLt, give each library a file "
            "(ROCBLAS_LOG_PATH, HIPBLASLT_LOG_FILE) and a run"
        )


def _of_rocblas(log: _Log) -> bool:
    return log.category.startswith("rocblas")


def _alike(logs: Sequence[_Log], what: str) -> Iterator[str]:
    groups: dict[tuple[str, int | None, int, int], list[_Log]] = {}
    for log in logs:
        if log.counted and log.bytes:
            groups.setdefault((log.category, log.pid, log.calls, log.bytes), []).append(log)
    equal = [same for same in groups.values() if len(same) > 1]
    if equal:
        more = f" (and {len(equal) - 1:,} more such groups)" if len(equal) > 1 else ""
        yield (
            f"{_named(equal[0])} are equal in size and number of {what} calls, and all count{more}: if they are one "
            f"log under several names, `logparse forget` all but one of them (such as {equal[0][-1].path})"
        )


def _calls(logs: Sequence[_Log], what: str) -> str:
    total = sum(log.calls for log in logs)
    return f"{total:,} {what} call{'s' * (total != 1)}"


def _named(logs: Sequence[_Log]) -> str:
    shown = ", ".join(f"{log.path.rpartition('/')[2]}: {log.category}" for log in logs[:_SHOWN])
    return shown + (f" and {len(logs) - _SHOWN} more" if len(logs) > _SHOWN else "")


def _categories(logs: Sequence[_Log]) -> str:
    return ", ".join(sorted({log.category for log in logs}))
