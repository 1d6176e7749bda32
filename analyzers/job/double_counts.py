"""Which logs the calls of a run are counted from, and where that may count a call twice or leave one out.

The view ``workload`` takes, per process, the category with the most calls.  Logs without a process are taken for one
process: of one category they are added, of several the largest counts.  The logs cannot show whether that is right, so
it is remarked; so are logs left out beside another that has the same process only by the files' names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from analyzers.analyzer import Tables
from logparse.output.answer import typed
from logparse.store import Store
from logparse.store.database import shared_database
from logparse.text import duration

if TYPE_CHECKING:
    import duckdb

_LOGS = """
    with rows as (
        select source_id, category, kind = 'conv' as conv, pid, cast(sum(count) as bigint) as calls
        from calls where run = $run and not coalesce(by_tool, false) group by all having calls > 0),
    sums as (select *, sum(calls) over (partition by conv, pid, category) as total from rows)
    select conv, coalesce(path, source_id) as path, category, pid, calls, coalesce(bytes, 0),
           category = first_value(category) over (partition by conv, pid order by total desc, category),
           coalesce(pid_from = 'name', false)
    from sums left join (select source_id, path, bytes, pid_from from sources where run = $run) using (source_id)
    order by conv, path, category"""
_UNEXPLAINED = """
    select (select sum(cast(value as double)) from facts where run = $run and name = 'graph_unexplained_us'),
           (select sum(total_us) from kernels where run = $run)"""
_READ = {
    "calls": "run text, source_id text, category text, kind text, pid int, count int, by_tool bool",
    "sources": "run text, source_id text, path text, bytes int, pid_from text",
}
_SHOWN = 4


class _Log(NamedTuple):
    """The calls of one kind and category in a file, and whether ``workload`` counts them.

    ``by_name``: only the file's name states the process.
    """

    conv: bool
    path: str
    category: str
    pid: int | None
    calls: int
    bytes: int
    counted: bool
    by_name: bool


def remarks_of(store: Store, run: str) -> list[str]:
    """The remarks on a run's counts, as lines; also how much of its traces no call explains."""
    with store.reading(f"{_LOGS} {_UNEXPLAINED}") as con:
        ((graphs_us, kernels_us),) = con.execute(_UNEXPLAINED, {"run": run}).fetchall()
        unexplained = f"{duration(graphs_us or 0.0)} of {duration(kernels_us or 0.0)} of the traces' kernels"
        in_no_row = f"not counted: the calls in {unexplained}, which graphs launched: no trace names their operators"
        return [*remarks_in(con, run), *([in_no_row] if graphs_us else [])]


def remarks_on(tables: Tables, convolutions: Collection[bool]) -> list[str]:
    """The same of a run's tables, on its convolutions (True), products (False) or both."""
    with shared_database().cursor() as con:
        for view, columns in _READ.items():
            con.register(view, typed(getattr(tables, view), columns))
        return list(remarks_in(con, tables.run, convolutions))


def remarks_in(
    con: duckdb.DuckDBPyConnection, run: str, convolutions: Collection[bool] = (False, True)
) -> Iterator[str]:
    """The same over a connection with the views ``calls`` and ``sources``: sums over logs of unknown process, logs that
    were left out beside others, and logs that may be one.
    """
    given = [_Log(*row) for row in con.execute(_LOGS, {"run": run}).fetchall()]
    for conv in sorted(convolutions):
        logs = [log for log in given if log.conv == conv]
        what = "convolution" if conv else "GEMM"
        yield from _added(logs, what)
        yield from _not_counted(logs, what)
        yield from _alike(logs, what)


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
