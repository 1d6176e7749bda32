"""Warn the user about GEMM and convolution calls that may be counted twice or not at all.

Several logs of one process may contain the same calls, for example a log of rocBLAS and a log of hipBLASLt. So the view
``workload`` counts, for each process, only one category of logs: the one with the most calls. If logs do not name their
process, they are treated as logs of one process: the calls of one category are added, and the category with the most
calls is used. The logs cannot show whether that is right, so a remark explains it. There is also a remark if only the
names of two files show that they are of one process, and one of them is therefore not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from analyzers.evidence.tables import Tables, query_frames
from logparse.lazy import duckdb
from logparse.store import Store
from logparse.text import duration, pluralize

_LOGS = """
    with rows as (
        select source_id, category, kind = 'conv' as conv, pid, cast(sum(count) as bigint) as calls
        from calls where run = $run and not coalesce(by_tool, false) group by all having calls > 0),
    counted as (select distinct kind = 'conv' as conv, pid, calls_from as category from workload where run = $run)
    select conv, coalesce(path, source_id) as path, category, pid, calls, coalesce(bytes, 0),
           exists (from counted c where c.conv = rows.conv and c.category = rows.category
                                        and c.pid is not distinct from rows.pid),
           coalesce(pid_from = 'name', false)
    from rows left join (select source_id, path, bytes, pid_from from sources where run = $run) using (source_id)
    order by conv, path, category"""
_UNEXPLAINED = """
    select (select sum(cast(value as double)) from facts where run = $run and name = 'graph_unexplained_us'),
           (select sum(total_us) from kernels where run = $run)"""
_READ = {
    "calls": "run text, source_id text, category text, kind text, pid int, count int, by_tool bool",
    "workload": "run text, kind text, pid int, calls_from text",
    "sources": "run text, source_id text, path text, bytes int, pid_from text",
}
_SHOWN = 4


class _Log(NamedTuple):
    """A summary of one log file's calls: either all its GEMMs or all its convolutions.

    * ``counted``: True if they are in the job's number of calls (view ``workload``).
    * ``by_name``: True if only the file's name states the process.
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
    """Return warnings about calls of a run that may be counted twice or are missing, one line each.

    Traces may contain kernels whose call is unknown. Then the last line gives their time.
    """
    with store.reading(f"{_LOGS} {_UNEXPLAINED}") as con:
        ((graphs_us, kernels_us),) = con.execute(_UNEXPLAINED, {"run": run}).fetchall()
        unexplained = f"{duration(graphs_us or 0.0)} of {duration(kernels_us or 0.0)} of GPU time in the traces"
        in_no_row = (
            f"the calls of {unexplained} are not counted, because CUDA or HIP graphs launched their kernels, and no "
            "trace names the operators in these graphs"
        )
        return [*remarks_in(con, run), *([in_no_row] if graphs_us else [])]


def remarks_on(tables: Tables, convolutions: Collection[bool]) -> list[str]:
    """Return warnings about GEMM or convolution calls that may be missing or counted twice.

    ``convolutions`` selects the kinds of calls: ``[True]`` for convolutions, ``[False]`` for GEMMs, both values for
    both.
    """
    with query_frames({view: getattr(tables, view) for view in _READ}, _READ) as con:
        return list(remarks_in(con, tables.run, convolutions))


def remarks_in(
    con: duckdb.DuckDBPyConnection, run: str, convolutions: Collection[bool] = (False, True)
) -> Iterator[str]:
    """Yield warnings about calls that may be counted twice or are missing.

    ``con`` is the database with the calls. There are three kinds of warnings:

    | warning | when |
    |---|---|
    | added | The calls of several logs were added, although it is unknown which process wrote each log. |
    | left out | A log is not counted, because another log of the same process is counted. |
    | alike | Two logs may be copies of one log. |
    """
    given = [_Log(*row) for row in con.execute(_LOGS, {"run": run}).fetchall()]
    for conv in sorted(convolutions):
        logs = [log for log in given if log.conv == conv]
        what = "convolution" if conv else "GEMM"
        yield from _added(logs, what)
        yield from _not_counted(logs, what)
        yield from _warn_of_equal_logs(logs, what)


def _added(logs: Sequence[_Log], what: str) -> Iterator[str]:
    unknown = [log for log in logs if log.counted and log.pid is None]
    known = [log for log in logs if log.counted and log.pid is not None]
    processes = len({log.pid for log in known})
    calls = _calls(unknown, what)
    if len(unknown) > 1:
        yield (
            f"{calls} are the sum of {len(unknown):,} logs that do not name their process "
            f"({_list_log_names(unknown)}). If two of them are from one process, its calls count twice"
        )
    if unknown and known:
        categories = ", ".join(sorted({log.category for log in known}))
        others = f"{sum(log.calls for log in known):,} of {pluralize(processes, 'known process')}"
        yield (
            f"{calls} from logs that do not name their process ({_list_log_names(unknown)}) are added to the {others} "
            f"({categories}). If they are the same calls, they count twice: ingest them as a run of their own "
            "(ingest --run)"
        )


def _not_counted(logs: Sequence[_Log], what: str) -> Iterator[str]:
    """Warn about logs whose calls are ignored, because another log of the same process has the same calls.

    There is a warning only if that is a guess. Two things may be guessed:

    * Both logs are of one process.
    * Both contain the same calls. On some GPUs rocBLAS passes its calls on to hipBLASLt, so that both log the same
      calls. On other GPUs the two libraries log different calls.
    """
    of: dict[int | None, list[_Log]] = {}
    for log in (log for log in logs if log.counted):
        of.setdefault(log.pid, []).append(log)
    left = [log for log in logs if not log.counted and log.pid in of]
    named = {log.pid for log in logs if log.by_name} | {None}
    guessed = [log for log in left if log.pid in named and log.path not in {other.path for other in of[log.pid]}]
    one_file = [log for log in left if any(_two_libraries(log, other) for other in of[log.pid])]
    for group, why in ((guessed, _GUESSED), (one_file, _TWO_LIBRARIES)):
        if group:
            beside = list(dict.fromkeys(other for log in group for other in of[log.pid]))
            yield (
                f"{_calls(group, what)} of {_list_log_names(group)} are not counted, because {_list_log_names(beside)} "
                f"hold the same calls: {why}"
            )


_GUESSED = (
    "logparse assumes that different logs of one process hold the same calls. If the logs are from different "
    "processes, which they do not name, separate the logs with `ingest --pid` or `--run`"
)
_TWO_LIBRARIES = (
    "logparse assumes that the rocBLAS and hipBLASLt logs of one process hold the same calls. If rocBLAS does not "
    "use hipBLASLt, let each library log to a file of its own (ROCBLAS_LOG_PATH, HIPBLASLT_LOG_FILE), and ingest the "
    "files as two runs"
)


def _two_libraries(log: _Log, other: _Log) -> bool:
    """Tell whether one file contains the logs of two libraries, one of them rocBLAS.

    On some GPUs rocBLAS passes its calls on to hipBLASLt. Then both libraries log the same calls.
    """
    return log.path == other.path and log.category.startswith("rocblas") != other.category.startswith("rocblas")


def _warn_of_equal_logs(logs: Sequence[_Log], what: str) -> Iterator[str]:
    groups: dict[tuple[str, int | None, int, int], list[_Log]] = {}
    for log in logs:
        if log.counted and log.bytes:
            groups.setdefault((log.category, log.pid, log.calls, log.bytes), []).append(log)
    equal = [same for same in groups.values() if len(same) > 1]
    if equal:
        more = f" (and {len(equal) - 1:,} more such groups)" if len(equal) > 1 else ""
        yield (
            f"{_list_log_names(equal[0])} have the same size and number of {what} calls, and all of them count{more}. "
            f"If they are copies of one log, `logparse forget` all but one of them (such as {equal[0][-1].path})"
        )


def _calls(logs: Sequence[_Log], what: str) -> str:
    return pluralize(sum(log.calls for log in logs), f"{what} call")


def _list_log_names(logs: Sequence[_Log]) -> str:
    shown = ", ".join(f"{log.path.rpartition('/')[2]}: {log.category}" for log in logs[:_SHOWN])
    return shown + (f" and {len(logs) - _SHOWN} more" if len(logs) > _SHOWN else "")
