"""Which logs the calls of a run are counted from, and where that may count a call twice or leave one out.

The view ``workload`` takes, per process, the category with the most calls.  Logs without a process are taken for one
process: of one category they are added, of several the largest counts.  The logs cannot show whether that is right, so
it is remarked; so are logs left out beside another that has the same process only by the files' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analyzers.evidence.cells import count_of
from logparse.store import Store

SQL = """select source_id, category, kind = 'conv' as conv, pid, cast(sum(count) as bigint) as calls
         from calls where run = $run and not by_tool group by all having calls > 0"""
"""Columns that ``remarks`` wants, one row per log, category, process and kind."""
_SHOWN = 4


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


def by_log(calls: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``SQL``, from the view ``calls`` of one run."""
    rows = calls[~calls["by_tool"].fillna(False).astype(bool)]
    rows = rows.assign(conv=rows["kind"] == "conv", calls=rows["count"].astype("Float64"))
    out = rows.groupby(["source_id", "category", "conv", "pid"], dropna=False)["calls"].sum().reset_index()
    return out[out["calls"] > 0]


def remarks_of(store: Store, run: str) -> list[str]:
    """The remarks on a run's counts, as lines."""
    with store.connect() as con:
        rows = con.execute(SQL, {"run": run}).df()
        sources = con.execute(
            "select source_id, path, bytes, pid_from from sources where run = $run", {"run": run}
        ).df()
    return list(remarks(rows, sources))


def remarks(rows: pd.DataFrame, sources: pd.DataFrame) -> Iterator[str]:
    """Sums over logs of unknown process, logs that were left out beside others, and logs that may be one."""
    for conv in (False, True):
        logs = _logs(rows[rows["conv"] == conv], sources)
        what = "convolution" if conv else "GEMM"
        yield from _added(logs, what)
        yield from _not_counted(logs, what)
        yield from _alike(logs, what)


def _logs(rows: pd.DataFrame, sources: pd.DataFrame) -> list[_Log]:
    """The logs of one kind of calls, with what ``workload`` takes of them."""
    totals = rows.groupby(["pid", "category"], dropna=False)["calls"].sum().reset_index()
    totals = totals.sort_values(["calls", "category"], ascending=[False, True])
    best = totals.assign(pid=totals["pid"].astype("Float64").fillna(-1)).drop_duplicates("pid")
    taken = dict(zip(best["pid"], best["category"], strict=True))
    paths = dict(zip(sources["source_id"], sources["path"], strict=True))
    sizes = dict(zip(sources["source_id"], sources["bytes"].fillna(0), strict=True))
    by_name = set(sources.loc[sources["pid_from"] == "name", "source_id"])
    out = []
    for source, category, process, calls in rows[["source_id", "category", "pid", "calls"]].itertuples(index=False):
        pid = count_of(process)
        counted = taken[-1 if pid is None else pid] == category
        path, size = paths.get(source, source), int(sizes.get(source, 0))
        out.append(_Log(path, category, pid, int(calls), size, counted, source in by_name))
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
            f"log under several names, logparse forget {equal[0][-1].path}"
        )


def _calls(logs: Sequence[_Log], what: str) -> str:
    total = sum(log.calls for log in logs)
    return f"{total:,} {what} call{'s' * (total != 1)}"


def _named(logs: Sequence[_Log]) -> str:
    shown = ", ".join(f"{log.path.rpartition('/')[2]}: {log.category}" for log in logs[:_SHOWN])
    return shown + (f" and {len(logs) - _SHOWN} more" if len(logs) > _SHOWN else "")


def _categories(logs: Sequence[_Log]) -> str:
    return ", ".join(sorted({log.category for log in logs}))
