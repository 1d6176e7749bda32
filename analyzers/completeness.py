"""What is missing from a run's logs, or went wrong in it: lines that a setting disabled, ends, ranks, counts that may
hold a call twice, and the errors that the libraries printed.

All findings are about the run.  They cost nothing to compute, so ``status`` shows them and ``recommend`` puts them
first: a ranking made from half a log is a wrong ranking.  DuckDB counts, over the views of a store or over DataFrames:
``status`` needs no pandas, whose import takes longer than its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.job.double_counts import remarks_in
from logparse.formats import library_errors
from logparse.formats.miopen.log import SHARED
from logparse.formats.traces.torch.records import UNREAD
from logparse.model import Finding
from logparse.output.answer import typed
from logparse.store import Store
from logparse.store.database import shared_database
from logparse.text import counted, short_path, shortened, sql_text

if TYPE_CHECKING:
    import duckdb

NAME = "completeness"
CATEGORIES = ("trace", "hints", "info", "api", "bench", "profile", "extended_profile")
"""Categories of hipBLASLt's log mask whose lines show how a log was made."""
_SHARED_BUFFER = "threads lose, tear and repeat lines where bench, trace and api lines are logged together"
BY_LEVEL = ("trace", "hints", "info", "api")
"""Categories that HIPBLASLT_LOG_LEVEL can switch on as well, besides errors."""
BEYOND_LEVEL = ("bench", "profile", "extended_profile")
"""Categories that only HIPBLASLT_LOG_MASK can switch on; LEVEL, once set to anything, disables them."""
_IF_KNOWN = ("miopen_warning", "tunableop", "info")
"""Categories of which only messages of known meaning are remarked."""
_NAMED, _LONGEST = 3, 200
"""Files that are named where many are meant; characters of a library's error that are shown."""
FEW = 0.5
"""A process with less than this share of the median calls may have been killed or started late."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Errors, a LEVEL that may have disabled MASK, cut and silent files, uneven ranks, calls without a problem."""
    with shared_database().cursor() as con:
        for view, columns in _READ.items():
            con.register(view, typed(getattr(tables, "messages" if view == "process_messages" else view), columns))
        return [Finding(analyzer=NAME, message=message) for message in _remarks(_Logs(con, tables.run))]


def missing(store: Store) -> list[str]:
    """What the latest run's logs lack, as lines."""
    runs = store.runs()
    if not runs:
        return []
    with store.reading(" ".join(_READ)) as con:
        return _remarks(_Logs(con, runs[-1]))


_READ: Mapping[str, str] = {
    "sources": "source_id text, run text, path text, bytes int, pid_from text, ended text, call_lines int, "
    "message_lines int, measurement_lines int, fact_lines int, reject_lines int",
    "calls": "source_id text, run text, category text, kind text, problem text, pid int, count int, by_tool bool",
    "workload": "run text, pid int, calls int, calls_from text",
    "process_messages": "source_id text, run text, category text, function text, text text, count int",
}
"""The views that are read, and of these the columns."""
_CATEGORIES = f"""
    select distinct source_id, category from (
        select source_id, category, run from calls where not coalesce(by_tool, false)
        union all select source_id, category, run from process_messages)
    where run = $run and category in ({", ".join(map(sql_text, CATEGORIES))}) order by all"""
_LACKING = """
    select path, ended, coalesce(bytes = 0, false) as empty,
           coalesce(call_lines, message_lines, measurement_lines, fact_lines) is not null
           and coalesce(call_lines, 0) + coalesce(message_lines, 0) + coalesce(measurement_lines, 0)
               + coalesce(fact_lines, 0) = 0 as silent
    from sources where run = $run and (ended is not null or silent) order by path"""
_PATHS = "select source_id, any_value(path), sum(reject_lines) from sources group by source_id"
_TORN = "log ends inside"
_MESSAGES = f"""
    select source_id, function, text, cast(coalesce(sum(count), 0) as bigint) from process_messages
    where run = $run and (text in ({sql_text(UNREAD)}, {sql_text(SHARED)}) or contains(text, {sql_text(_TORN)}))
    group by all order by all"""
_OF_CUBLAS = "select distinct source_id from process_messages where run = $run and starts_with(function, 'cublas')"
_KNOWN = "|".join(re.escape(part) for parts, _ in library_errors.MEANINGS for part in parts)
_OWN_ERRORS = (library_errors.ERROR, library_errors.WARNING)
_ERRORS = f"""
    select category, function, min(text), cast(sum(count) as bigint) as count, count(distinct text)
    from process_messages
    where run = $run and (category in ({", ".join(map(sql_text, (*_OWN_ERRORS, "error", "miopen_error")))})
        or category in ({", ".join(map(sql_text, _IF_KNOWN))}) and regexp_matches(text, {sql_text(_KNOWN)}))
    group by category, function, regexp_replace(text, '[0-9]+', '#', 'g') order by count desc, min(text)"""
_RANKS = """
    select calls_from, pid, cast(sum(calls) as bigint) as calls from workload
    where run = $run and pid is not null and calls_from is not null
    group by all having calls is not null order by all"""


@dataclass(frozen=True)
class _Logs:
    """A run, and a connection with the views of ``_READ``, of which every query returns a few rows."""

    con: duckdb.DuckDBPyConnection
    run: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.con.execute(sql, {"run": self.run} if "$run" in sql else None).fetchall()

    @cached_property
    def categories(self) -> Mapping[str, set[str]]:
        """Of each log the mask's categories that it holds."""
        out: dict[str, set[str]] = {}
        for source, category in self.rows(_CATEGORIES):
            out.setdefault(source, set()).add(category)
        return out

    @cached_property
    def lacking(self) -> Sequence[tuple[str, str | None, bool, bool]]:
        """Path, end, whether empty and whether silent, of the files that did not end normally or are silent."""
        return [(path, ended, empty, silent) for path, ended, empty, silent in self.rows(_LACKING)]

    @cached_property
    def messages(self) -> Sequence[tuple[str, str | None, str, int]]:
        """Source, function, text and count of the messages that are remarked."""
        return [(source, function, text, count) for source, function, text, count in self.rows(_MESSAGES)]

    @cached_property
    def paths(self) -> Mapping[str, tuple[str, int | None]]:
        """Of each source its path and number of rejected lines."""
        return {source: (path, rejects) for source, path, rejects in self.rows(_PATHS)}

    def path(self, source: str) -> str:
        return self.paths.get(source, (source, None))[0]

    @cached_property
    def of_shared_buffer(self) -> set[str]:
        """Logs of at least two kinds of lines for which hipBLASLt has locks of their own, and one buffer."""
        return {x for x, have in self.categories.items() if len(have & {"bench", "trace", "api"}) > 1}


def _remarks(logs: _Logs) -> list[str]:
    out = [
        *_errors(logs),
        *_level(logs),
        *_ends(logs),
        *_silent(logs),
        *_ranks(logs),
        *remarks_in(logs.con, logs.run),
    ]
    out += [*_shared_buffer(logs), *_without_inputs(logs), *_without_problem(logs)]
    return out


def _errors(logs: _Logs) -> Iterator[str]:
    """What the libraries report as wrong, warnings last: texts of one meaning together, others by their function."""
    rows = logs.rows(_ERRORS)
    groups: dict[tuple[bool, str, str], list[tuple[str, int, int]]] = {}
    for category, function, text, count, texts in rows:
        why, own, warns = library_errors.meaning(text) or "", category in _OWN_ERRORS, category in _IF_KNOWN
        if why or not warns:
            label = text if own or not function else f"[{function}] {text}"
            groups.setdefault((warns, why, "" if why or own else function), []).append((label, count, texts))
    for (_, why, _), found in sorted(groups.items(), key=lambda x: (x[0][0], not x[0][1], -x[1][0][1], x[1][0][0])):
        [first], count = shortened([found[0][0]], _LONGEST), sum(count for _, count, _ in found)
        several = sum(texts for _, _, texts in found)
        of = f" of {several:,} texts" if several > 1 else ""
        yield f"{first!r} ({counted(count, 'line')}{of})" + (f": {why}" if why else "")


def _level(logs: _Logs) -> Iterator[str]:
    """Lines of the categories that LEVEL writes, and none of those that only MASK does."""
    nvidia = {source for (source,) in logs.rows(_OF_CUBLAS)}
    own = {source: have for source, have in logs.categories.items() if source not in nvidia}
    hidden = [source for source, have in own.items() if have & set(BY_LEVEL) and not have & set(BEYOND_LEVEL)]
    if hidden:
        yield (
            f"{counted(len(hidden), 'log')} with {'/'.join(BY_LEVEL)} lines but no bench or profile lines. If bench "
            "lines were wanted: HIPBLASLT_LOG_LEVEL, set to anything, silently disables HIPBLASLT_LOG_MASK; unset it "
            "and set HIPBLASLT_LOG_MASK=32"
        )


def _shared_buffer(logs: _Logs) -> Iterator[str]:
    for source in sorted(logs.of_shared_buffer):
        path, rejects = logs.paths.get(source, (source, None))
        if rejects:
            yield f"{path} has rejected lines: {_SHARED_BUFFER}. HIPBLASLT_LOG_MASK=96 is exact"


def _ends(logs: _Logs) -> Iterator[str]:
    for path, ended, _, _ in logs.lacking:
        if ended is not None:
            yield f"{path} ends {ended}: its process was killed or still writes"
    for source in sorted({source for source, _, text, _ in logs.messages if _TORN in text}):
        yield f"{logs.path(source)} ends inside a message: its process was killed or still writes"


def _silent(logs: _Logs) -> Iterator[str]:
    """One remark for all empty files and one for all unknown ones: a folder of sources may hold hundreds."""
    for empty in (True, False):
        paths = [path for path, _, is_empty, silent in logs.lacking if silent and is_empty == empty]
        if not paths:
            continue
        listed = ", ".join(map(short_path, paths[:_NAMED])) + " …" * (len(paths) > _NAMED)
        if empty:
            message = f"{counted(len(paths), 'empty file')}: {listed}"
        else:
            message = f"nothing is counted of {counted(len(paths), 'file')}, of which no line could be read: {listed}"
            message += ". Is a log among them? `logparse formats` lists what is read"
        yield message


def _ranks(logs: _Logs) -> Iterator[str]:
    """Processes are compared with those whose calls were counted from the same kind of log."""
    by_category: dict[str, dict[int, int]] = {}
    for category, pid, count in logs.rows(_RANKS):
        by_category.setdefault(category, {})[pid] = count
    for category, calls in by_category.items():
        middle = float(median(calls.values())) if len(calls) > 1 else 0.0
        few = {pid: count for pid, count in calls.items() if count < FEW * middle}
        if not few:
            continue
        listed = ", ".join(f"{pid} ({count:,})" for pid, count in list(few.items())[:5])
        yield (
            f"{len(few)} of {len(calls)} processes logged less than half the median of {middle:,.0f} {category} calls: "
            f"{listed}. A rank may have been killed, or its log be missing in part"
        )


def _without_inputs(logs: _Logs) -> Iterator[str]:
    rows = [(str(function), count) for _, function, text, count in logs.messages if text == UNREAD]
    total = sum(count for _, count in rows)
    if total:
        names = sorted({function for function, _ in rows})
        yield (
            f"no problem here, as their trace lacks the sizes or strides of their inputs: {total:,} × "
            f"{', '.join(names[:4])}{' …' * (len(names) > 4)} (torch.profiler: record_shapes=True)"
        )


def _without_problem(logs: _Logs) -> Iterator[str]:
    lines: dict[str, int] = {}
    for source, _, text, count in logs.messages:
        if text == SHARED:
            lines[source] = lines.get(source, 0) + count
    for source, count in sorted(lines.items()):
        yield (
            f"{logs.path(source)}: {counted(count, 'line')} of MIOpen's with a time or a solver "
            "left out: threads or ranks share the log, and of which one's problem they are is unknown "
            "(MIOPEN_ENABLE_LOGGING_MPMT=1 names the thread in each line)"
        )


ANALYZER = Analyzer(
    name=NAME, about="what a run's logs lack: disabled lines, cut ends, missing ranks; library errors", find=find
)
