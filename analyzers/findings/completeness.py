"""Find gaps in a job's logs, and errors that the libraries reported in them.

Gaps are lines that a setting disabled, files that were cut off, ranks that are missing, and counts that may contain a
call twice.

All findings are about the whole job. They are found quickly, so ``status`` shows them. ``recommend`` puts them first,
because a ranking made from half a log is wrong. The queries are SQL over the stored tables or over DataFrames.
``status`` runs them without pandas, because importing pandas would take longer than the whole answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from analyzers.evidence.tables import Settings, Tables, query_frames
from analyzers.findings.finding import Analyzer
from analyzers.job.double_counts import remarks_in
from logparse.libraries.kinds.line_prefixes import SHARED
from logparse.libraries.own import library_errors, machine_facts
from logparse.libraries.torch_profiler import profiler
from logparse.libraries.torch_profiler.inputs import STEP_KINDS, UNREAD
from logparse.model import Finding
from logparse.store import Store
from logparse.text import duration, pluralize, short_path, shorten_texts, sql_text

if TYPE_CHECKING:
    import duckdb

NAME = "completeness"
Rows: TypeAlias = list[tuple[Any, ...]]
CATEGORIES = ("trace", "hints", "info", "api", "bench", "profile", "extended_profile")
"""Categories of hipBLASLt's log lines. Which of them a log contains shows which log settings were on."""
SHARED_BUFFER = ("bench", "trace", "api")
"""Categories of hipBLASLt's log lines that may get mixed up, because two threads write to one buffer at the same time.

Each category has a lock of its own, so no lock protects the common buffer.
"""
BY_LEVEL = ("trace", "hints", "info", "api")
"""Categories of hipBLASLt's log lines that HIPBLASLT_LOG_LEVEL can switch on. HIPBLASLT_LOG_MASK can do so, too.

The level also switches on the category of errors.
"""
BEYOND_LEVEL = ("bench", "profile", "extended_profile")
"""Categories of hipBLASLt's log lines that only HIPBLASLT_LOG_MASK can switch on.

If HIPBLASLT_LOG_LEVEL is also set, hipBLASLt ignores the mask, and these lines are missing.
"""
_IF_KNOWN = ("miopen_warning", "tunableop", "info")
"""Categories of messages of libraries that are reported only if logparse can explain them."""
_NAMED, _LONGEST = 3, 200
"""Limits for the text of a finding: how many files it names, and how many characters of a library's error it quotes."""
FEW = 0.5
"""A process is reported if it has far fewer calls than the others: less than this fraction (0 to 1) of the median.

It may have been killed or have started late.
"""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report each error or gap in the job's logs.

    * HIPBLASLT_LOG_LEVEL may have disabled HIPBLASLT_LOG_MASK.
    * Files are cut off or unreadable.
    * Ranks differ in their numbers of calls.
    * Calls cannot be assigned to an operator.
    """
    frames = {view: getattr(tables, "messages" if view == "process_messages" else view) for view in _READ}
    with query_frames(frames, _READ) as con:
        return [Finding(analyzer=NAME, message=message) for message in _remarks(con, tables.run)]


def missing(store: Store) -> list[str]:
    """Return the gaps and errors in the logs of the latest stored run, one line of text each."""
    runs = store.runs()
    if not runs:
        return []
    with store.reading(" ".join(_READ)) as con:
        return _remarks(con, runs[-1])


_READ: Mapping[str, str] = {
    "sources": "source_id text, run text, path text, format text, bytes int, pid_from text, ended text, "
    "call_lines int, message_lines int, measurement_lines int, fact_lines int, reject_lines int",
    "calls": "source_id text, run text, category text, kind text, problem text, pid int, count int, by_tool bool, "
    "solution text",
    "workload": "run text, kind text, pid int, calls int, calls_from text",
    "facts": "run text, name text, value text",
    "process_messages": "source_id text, run text, category text, function text, text text, count int",
}
"""The columns that this module needs of each SQL view."""
_OF_LOG = f"""
    with paths as (
        select source_id, any_value(path) as path, sum(reject_lines) as rejects from sources group by source_id),
    logs as (
        select source_id, list(distinct category) as have from (
            select source_id, category, run from calls where not coalesce(by_tool, false)
            union all select source_id, category, run from process_messages)
        where run = $run and category in ({", ".join(map(sql_text, CATEGORIES))}) group by source_id)"""
_LEVEL = f"""
    {_OF_LOG} select count(*) from logs
    where list_has_any(have, {list(BY_LEVEL)}) and not list_has_any(have, {list(BEYOND_LEVEL)})
        and not exists (select 1 from facts where run = $run and name = 'backend' and value = 'CUDA')
        and source_id not in (
            select source_id from process_messages where run = $run and starts_with(function, 'cublas')
            union all select source_id from calls where run = $run and starts_with(solution, 'cublaslt:'))"""
_TORN_LINES = f"""
    {_OF_LOG} select path from logs join paths using (source_id)
    where len(list_intersect(have, {list(SHARED_BUFFER)})) > 1 and rejects > 0 order by source_id"""
_ENDS = f"""
    {_OF_LOG} select path, ended from sources where run = $run and ended is not null
    union select coalesce(path, source_id), 'inside a message' from process_messages left join paths using (source_id)
    where run = $run and contains(text, 'log ends inside') order by all"""
_IS_TRACE = f"contains(coalesce(format, ''), {sql_text(profiler.FORMAT.name)})"
_IS_STDERR = f"""
    parse_filename(path) = {sql_text(machine_facts.STDERR_NAME)} and parse_dirpath(path) in (
        select parse_dirpath(path) from sources
        where run = $run and parse_filename(path) = {sql_text(machine_facts.FILE_NAME)})"""
"""SQL condition: ``capture`` made this copy of the job's standard error. Only some jobs print lines of a log there."""
_SILENT = f""" -- the trace of a graph's capture only names what the graph's launches run
    with files as (select * from sources where run = $run and path not like '%/capture_traces/%' and not ({_IS_STDERR}))
    select case when bytes = 0 then 'empty'
                when coalesce(format, 'foreign') = 'foreign' or coalesce(reject_lines, 0) > 0 then 'unread'
                when {_IS_TRACE} then 'trace' else 'unused' end,
           path, (select count(*) from files where {_IS_TRACE})
    from files where list_sum([call_lines, message_lines, measurement_lines]) = 0
        and (fact_lines = 0 or {_IS_TRACE}) order by path"""
_WITHOUT_INPUTS = f"""
    select function, cast(sum(count) as bigint) from process_messages
    where run = $run and text = {sql_text(UNREAD)} group by function having sum(count) > 0 order by function"""
_WITHOUT_PROBLEM = f"""
    {_OF_LOG} select coalesce(path, source_id), cast(sum(count) as bigint)
    from process_messages left join paths using (source_id)
    where run = $run and text = {sql_text(SHARED)} group by source_id, path order by source_id"""
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

_STEP_KINDS = f"select value from facts where run = $run and name = {sql_text(STEP_KINDS)} order by value"


def _remarks(con: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """Return lines of text about errors in the logs of a job, and about data that are missing in them.

    ``con`` is a database connection with the views that ``_READ`` lists.
    """

    def of(*checks: tuple[str, Callable[[Rows], Iterator[str]]]) -> list[str]:
        return [line for sql, remark in checks for line in remark(con.execute(sql, {"run": run}).fetchall())]

    first = of(
        (_ERRORS, _errors), (_LEVEL, _level), (_ENDS, _ends), (_SILENT, _remark_on_silent_files), (_RANKS, _ranks)
    )
    first += of((_STEP_KINDS, _step_kinds))
    last = of(
        (_TORN_LINES, _warn_of_torn_lines), (_WITHOUT_INPUTS, _without_inputs), (_WITHOUT_PROBLEM, _without_problem)
    )
    return [*first, *remarks_in(con, run), *last]


def _errors(rows: Rows) -> Iterator[str]:
    """Yield lines about the errors that the libraries reported, then about their warnings.

    Messages with the same known meaning share one line. Others are grouped by the function that wrote them.
    """
    groups: dict[tuple[bool, str, str], list[tuple[str, int, int]]] = {}
    for category, function, text, count, texts in rows:
        why, own, warns = library_errors.meaning(text) or "", category in _OWN_ERRORS, category in _IF_KNOWN
        if why or not warns:
            label = text if own or not function else f"[{function}] {text}"
            groups.setdefault((warns, why, "" if why or own else function), []).append((label, count, texts))
    for (_, why, _), found in sorted(groups.items(), key=lambda x: (x[0][0], not x[0][1], -x[1][0][1], x[1][0][0])):
        [first], count = shorten_texts([found[0][0]], _LONGEST), sum(count for _, count, _ in found)
        several = sum(texts for _, _, texts in found)
        of = f" in {several:,} different texts" if several > 1 else ""
        yield f"{first!r} ({pluralize(count, 'line')}{of})" + (f": {why}" if why else "")


def _level(rows: Rows) -> Iterator[str]:
    """Warn if hipBLASLt's environment variable HIPBLASLT_LOG_LEVEL may have disabled HIPBLASLT_LOG_MASK.

    The sign is a log that has lines which the level can switch on, but no lines which only the mask can switch on.
    """
    ((hidden,),) = rows
    if hidden:
        yield (
            f"{pluralize(hidden, 'log')} with {'/'.join(BY_LEVEL)} lines has no bench or profile lines. If you want "
            "bench lines, unset HIPBLASLT_LOG_LEVEL and set HIPBLASLT_LOG_MASK=32: any value of HIPBLASLT_LOG_LEVEL "
            "silently disables HIPBLASLT_LOG_MASK"
        )


def _warn_of_torn_lines(rows: Rows) -> Iterator[str]:
    for (path,) in rows:
        yield (
            f"{path} has rejected lines: if hipBLASLt logs bench, trace and api lines together, its threads lose, "
            "tear and repeat lines. HIPBLASLT_LOG_MASK=96 logs exact counts"
        )


def _ends(rows: Rows) -> Iterator[str]:
    for path, ended in rows:
        yield f"{path} ends {ended}: its process was killed, or is still writing"


def _remark_on_silent_files(rows: Rows) -> Iterator[str]:
    """Yield a remark for each reason why files show nothing about GPU work. Each remark is about all of its files.

    A remark for each file would be too much, because a folder may contain hundreds of them.
    """
    for state, remark in _SILENT_STATES.items():
        paths = [path for x, path, _ in rows if x == state]
        if paths:
            listed = ", ".join(map(short_path, paths[:_NAMED])) + " …" * (len(paths) > _NAMED)
            yield remark(len(paths), listed, rows[0][2])


def _remark_on_traces(silent: int, listed: str, traces: int) -> str:
    if silent < traces:
        return f"{silent:,} of {traces:,} traces contain no GPU kernel: {listed}"
    return (
        f"no GPU kernel in {pluralize(silent, 'trace')}: {listed}. The job ran on a CPU, or the profiler recorded no "
        "GPU. Trace the job where its Python prints True for `torch.cuda.is_available()`"
    )


_SILENT_STATES: Mapping[str, Callable[[int, str, int], str]] = {
    "empty": lambda files, listed, _: f"{pluralize(files, 'empty file')}: {listed}",
    "trace": _remark_on_traces,
    "unread": lambda files, listed, _: (
        f"no line could be read in {pluralize(files, 'file')}: {listed}. If one of them is a log, compare it with the "
        "formats that `logparse formats` lists"
    ),
    "unused": lambda files, listed, _: f"no call, time or fact in {pluralize(files, 'recognised file')}: {listed}",
}
"""The remark for each state of a file that shows nothing. Arguments: such files, their names, and traces in total."""


def _ranks(rows: Rows) -> Iterator[str]:
    """Yield a warning about processes with far fewer calls than the others.

    Processes are compared only if the same kind of log counts their calls.
    """
    by_category: dict[str, dict[int, int]] = {}
    for category, pid, count in rows:
        by_category.setdefault(category, {})[pid] = count
    for category, calls in by_category.items():
        middle = float(median(calls.values())) if len(calls) > 1 else 0.0
        few = {pid: count for pid, count in calls.items() if count < FEW * middle}
        if not few:
            continue
        listed = ", ".join(f"{pid} ({count:,})" for pid, count in list(few.items())[:5])
        yield (
            f"{len(few)} of {len(calls)} processes logged less than half as many {category} calls as the median of "
            f"{middle:,.0f}: {listed}. A rank may have been killed, or part of its log is missing"
        )


def _step_kinds(rows: Rows) -> Iterator[str]:
    """Yield a remark if the marked steps of a trace are of several kinds, such as training and evaluation."""
    for (value,) in rows:
        kinds = json.loads(value)
        names = shorten_texts([*kinds], _LONGEST)
        each = [
            f"{x}: {pluralize(n, 'step')} of {duration(us)}" for x, (n, us) in zip(names, kinds.values(), strict=True)
        ]
        listed = ", ".join(each[:_NAMED]) + " …" * (len(each) > _NAMED)
        yield (
            f"the marked steps of a trace are of several kinds ({listed}), and every time of a step is the mean over "
            "all of them. Trace each kind by itself, and ingest the traces into runs of their own"
        )


def _without_inputs(rows: Rows) -> Iterator[str]:
    if rows:
        names = [str(function) for function, _ in rows]
        yield (
            f"{sum((count for _, count in rows)):,} × {', '.join(names[:4])}{' …' * (len(names) > 4)} cannot be "
            "analysed, because the trace lacks the sizes or strides of the operators' inputs (trace with "
            "torch.profiler and record_shapes=True)"
        )


def _without_problem(rows: Rows) -> Iterator[str]:
    for path, count in rows:
        yield (
            f"{path}: {pluralize(count, 'line')} of MIOpen with a time or solver cannot be assigned to a problem, "
            "because several threads or ranks write to this log (MIOPEN_ENABLE_LOGGING_MPMT=1 names the thread in "
            "each line)"
        )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "what the logs lack: log lines that a setting disabled, ends of files that were cut off, ranks without a log"
    ),
    worth="–",
    find=find,
    place=90,
)
