"""Answer a user's questions: which products ran most, what is known of one of them, what does the store hold?

A product here is a matrix product or convolution with its sizes, types and layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from logparse.errors import InputError
from logparse.lazy import duckdb, pd
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.miopen import find_db_choice
from logparse.libraries.own.job_units import UNITS_EACH
from logparse.libraries.torch_profiler import places
from logparse.links import links_sql, open_sql
from logparse.model import ConvProblem, GemmProblem, Problem, problem_from_text
from logparse.output.terminal import Rows
from logparse.store import Store, command_line
from logparse.store.columns import column
from logparse.store.rules import DEFAULTS, LOGGED, counted_as_sql, main_picks_sql, traced_sql
from logparse.store.settling import settling
from logparse.text import duration, make_printable, pluralize, short_path, shorten_texts

_PART = "array_to_string(string_split(key_text, ',')[:gfx::int + cu::int], ',')"
"""SQL expression for the first values of a key in a table of aiter, which name the GPU.

It is needed if a table holds rows for several GPUs.
"""
_FILES = "measurements m join files using (source_id)"
_PARTS = f"""
    (from measurements left join mixed using (source_id)) m
    join files f on f.source_id = m.source_id and f.part = case when gfx is null then '' else {_PART} end"""
"""SQL for the measurements with the files that they come from.

If a file holds rows for several GPUs, each measurement gets only the facts of its own GPU.
"""
_ROWS = """
    select {problem} as problem, kind, own and time_us > 0 as own, device, run, origin, solution,
           solution = by_default as by_default,
           case when status = 'ok' and time_us > 0 and origin <> 'trace' then time_us end as us,
           {subject} as subject
    from {rows} {linked}"""
"""SQL for the stored times of kernels.  The time ``us`` is empty in two cases:

* The kernel could not be run.  The row still shows that its matrix product or convolution belongs to the run.
* The row is a call of the job itself (origin ``trace``), which is not the time of a kernel measured alone.
"""
_SUBJECT = "own and kind <> 'family' and (kind = 'conv') not in (from called)"
_OF_ITSELF = _ROWS.format(problem="problem", linked="", rows="{rows}", subject=_SUBJECT)
_OTHER = "join linked o on o.other = m.problem"
_OF_LINKED = _ROWS.format(problem="o.problem", linked=_OTHER, rows="{rows}", subject="false")
_OPEN = f"select exists ({open_sql('gemm_rows')}) or exists ({open_sql('conv_rows')})"
_OPEN_LINKS = links_sql("gemm_rows", "conv_rows")["open_links"]
_OF_LINKS = "select problem, other, level from {} where problem <> other"
_LINKED = _OF_LINKS.format(f"({_OPEN_LINKS})")
"""SQL for the other problems that may be the same call.

It is the view ``open_links``. Because making this view takes long and most stores have no such links, the view's SQL is
run only if it is needed.
"""
_NO_LINKS = "select '' as problem, '' as other, '' as level where false"
_TIMED = f"{_OF_ITSELF} union all {_OF_LINKED}"
"""SQL for all stored times that may belong to a matrix product or convolution.

They are the times of the product or convolution itself, and the times of others that may be the same call.  The SQL
scans the table twice, because a common table expression would hold all texts in memory.
"""
_OWN = "run = $run"
_STAGES: Mapping[str, str] = {
    "picks": main_picks_sql(_OWN),
    "counted_as": counted_as_sql("linked", "picks"),
    "units_each": UNITS_EACH,
    "w": """
        select any_value(kind) as kind, coalesce(m.other, problem) as problem, cast(round(sum(n)) as bigint) as calls,
               string_agg(distinct calls_from, '+' order by calls_from) as calls_from
        from (select *, calls * if(calls_from = 'profiler' and not bool_and(calls_from = 'profiler') over (), each, 1) n
              from workload, units_each where run = $run) left join counted_as m using (problem) group by 2""",
    "called": "select distinct kind = 'conv' as conv from w",
    "traced": traced_sql(_OWN, "counted_as"),
    "mixed": """
        select source_id, list_contains(names, 'gfx') as gfx, list_contains(names, 'cu_num') as cu from (
            select source_id, string_split(max(value) filter (name = 'columns'), ',') as names
            from facts where name in ('arch', 'cu_count', 'columns') group by source_id
            having bool_or(name <> 'columns' and contains(value, ' ')))""",
    "places": f"""
        select source_id, '' as part, any_value(regexp_extract(value, '^[^:]*')) filter (name = 'arch') as arch,
               any_value(value) filter (name = 'cu_count') as cu
        from facts where name in ('arch', 'cu_count') and source_id not in (select source_id from mixed)
        group by source_id
        union all
        select distinct source_id, {_PART}, case when gfx then split_part(key_text, ',', 1) end,
               case when cu then split_part(key_text, ',', 1 + gfx::int) end
        from measurements join mixed using (source_id)""",
    "defaults": DEFAULTS,
    "files": """
        with stated as (
            select arch, cu, case when call_lines > 0 or source_id in (select source_id from kernels) then 0
                                  when format = 'facts' then 1 else 2 end as tier
            from places join sources using (source_id) where run = $run and arch is not null),
        here as (select distinct arch, cu from stated where tier = (select min(tier) from stated))
        select s.source_id, coalesce(d.part, '') as part, s.run = $run as own,
               coalesce(f.solution, 'Default') as by_default,
               dense_rank() over (order by coalesce(
                   d.arch || coalesce(d.cu, ''), (select min(arch || coalesce(cu, '')) from here))) as device
        from sources s left join defaults f on f.source_id = s.source_id left join places d on d.source_id = s.source_id
        where d.arch is null or not exists (from here)
           or exists (from here h where h.arch = d.arch and coalesce(h.cu = d.cu, true))""",
    "find_dbs": f"from ({find_db_choice.FIND_DBS}) semi join files using (source_id)",
}
"""SQL for the temporary tables from which the ranking is made, by name.

Each table may read the tables before it.  They are not common table expressions, because DuckDB would compute such an
expression again wherever it is named.  That took longer than reading the data.
"""
_RANKED = """
create temp table ranked as
with of_device as (
        select problem, device, run, origin, any_value(kind) as kind, bool_or(subject) as subject, bool_or(own) as own,
               count(us) as times, min(us) as best_us, min(us) filter (by_default) as default_us,
               min(us) filter (solution = pick) as picked_us
        from ({timed}) left join picks using (problem) group by problem, device, run, origin),
     judged as (
        select *, coalesce(picked_us, default_us) as pick_us, device - (times << 16) - (own::bigint << 60)
               - ((pick_us is not null)::bigint << 59) - ((origin = 'replay-confirm')::bigint << 58) as place
        from of_device),
     known as (
        select problem, kind, subject, t.* from (
            select problem, any_value(kind) as kind, bool_or(subject) as subject, arg_min({{
                'best_us': best_us, 'pick_us': pick_us, 'device': device, 'run': run, 'origin': origin}}, place
                ) filter (times > 0) as t from judged group by problem)),
     subjects as (
        select w.*, known.* exclude (problem, kind) from w left join known using (problem)
        union all by name from known where subject),
     joined as (
        select *, system_us is not null and coalesce(pick, traced_us::varchar, pick_us::varchar) is null as unsettled
        from subjects left join picks using (problem) left join traced using (problem)
        left join rivals using (problem)),
     settled as (
        select * replace (if(unsettled, system_solution, pick) as pick, if(unsettled, system_us, pick_us) as pick_us,
                          if(unsettled, user_us, best_us) as best_us)
        from joined)
select *, coalesce(calls, 1) * coalesce(traced_us, pick_us, best_us) as total_us,
       calls * if(pick_us > best_us, pick_us - best_us, if(pick_us is null, null, 0)) as saves_us
from settled
where ($kind is null or kind = $kind or ($kind = 'gemm' and kind = 'grouped'))
  and ($texts::varchar[] is null or problem in (select unnest($texts::varchar[])))
"""
_SHOWN = """
with shown as materialized (
        from ranked order by {key} desc nulls last, {other} desc nulls last, problem limit $n),
     best as (
        select problem, min(solution) as best from ({timed}) t join shown using (problem, device, run, origin)
        where us = best_us group by problem)
select calls, {key} / nullif((select sum({key}) from ranked), 0) as share, problem, pick, pick_us,
       if(unsettled, user_solution, best) as best, best_us, saves_us, total_us,
       if(unsettled, $assumes, null) as saves_only_if, kind, calls_from, problem as text
from shown left join best using (problem) order by {key} desc nulls last, {other} desc nulls last, problem
"""
_LEFT_OUT = f"""
    select (select coalesce(sum(count), 0) from rejects where run = $run),
           (select coalesce(sum(count), 0) from calls where run = $run and by_tool and (kind = 'conv') in (
                select kind = 'conv' from calls where run = $run and not by_tool)),
           count(distinct if(called_kind and not called and us, problem, null)), count(*) filter (us and not here),
           count(*) filter (not us and not (pick and time_us is null))
    from (select problem, time_us, list_contains({list(LOGGED)}, origin) as pick,
                 source_id in (select source_id from files) as here, kind <> 'family' as whole,
                 whole and (kind = 'conv') in (from called) as called_kind,
                 problem in (select problem from w union select other from linked
                             where problem in (select problem from w)) as called,
                 status = 'ok' and coalesce(time_us > 0, false) as us
          from measurements where run = $run and origin <> 'trace'
              and ($kind is null or kind = $kind or ($kind = 'gemm' and kind = 'grouped')))"""
"""SQL of ``LeftOut``, over the table ``linked`` and those of ``_COUNTED``."""
_COUNTED = tuple(name for name in _STAGES if name != "traced")
"""The tables of ``_STAGES`` that ``_LEFT_OUT`` needs."""
LEFT_OUT = " ".join([*(_STAGES[name] for name in _COUNTED), _LEFT_OUT])
"""The SQL of ``left_out``. A connection for it has the views that this SQL names."""
_SUMS = """
    select count(*), sum(calls), count(total_us), sum(total_us), sum(saves_us) filter (not unsettled),
           coalesce(sum(saves_us) filter (unsettled), 0), count(*) filter (unsettled) from ranked"""
_UNTOLD = "select count(*) from ranked where pick is null and traced_us is null and pick_us is null and best_us > 0"
_UNSETTLED = "select problem from ranked where unsettled order by saves_us desc nulls last, problem limit 3"
_STEPS = """
    select coalesce(bool_and(calls_from = 'profiler'), false),
           (select sum(try_cast(value as double)) from facts
            where run = $run and name = 'profiler_steps'),
           (select count(distinct pid) from calls where run = $run and by_tool is distinct from true
              and ($kind is null or kind = $kind or ($kind = 'gemm' and kind = 'grouped'))),
           (select sum(try_cast(value as double)) from facts where run = $run and name = 'gpu_window_us'
            having count(*) = (select count(distinct source_id) from kernels where run = $run))
    from w"""
"""SQL for four values: whether only traces count the calls, the number of traced steps, the number of processes, and
the time that the traces cover, µs. The time is missing if a trace does not state it.
"""
"""SQL for the sums over all ranked matrix products and convolutions.

The ranking (``_RANKED``) first reduces millions of times to one row per problem, GPU, run and origin.  Then it chooses
one such row for each problem, by these criteria in this order:

* The row is from this run.
* It has a time of the library's own choice.
* It comes from a confirmation.
* It has the most times.

The name of the kernel is read only for the problems that are shown.
"""


def top(
    store: Store, *, by: str = "calls", kind: str | None = None, n: int = 20, run: str | None = None
) -> pd.DataFrame:
    """Return the job's matrix products and convolutions, sorted by their number of calls or by their time.

    The time of a problem (product or convolution) is its calls × the time per call.  The time per call is the first one
    known in this list:

    * the average in the run's traces,
    * the time of the solution (kernel) that ran,
    * the time of the solution that MIOpen's system find-db picks, if a user find-db has a faster one, and no log shows
      which file the job reads (``libraries/miopen/find_db_choice.py``),
    * the best known time.

    If a run has logs and traces, the calls in the traces are scaled from the traced steps to all steps of the run.

    One log may state which solution ran, and another log may count the calls but state other fields.  If a counted
    problem can be only one of the problems with a known solution, its calls are added to that problem.
    (``picks_vs_best`` of ``analyzers`` does the same.)  ``pick_us`` and ``best_us`` come from one run, one tool and one
    GPU, never from a GPU that is known to be another model than the run's.

    The columns are calls, share (of all calls, or of all known time), problem (short name), pick (the solution that
    ran), pick_us, best, best_us, saves_us (calls × the difference of the two times), total_us, saves_only_if (the
    condition of the saving, if any), kind, calls_from and text.
    """
    frame: pd.DataFrame = rank_problems(store, by=by, kind=kind, n=n, run=run).rows.to_pandas()
    return frame


_REJECTS = " (`sql 'from rejects'` lists them)"


def count_damaged_lines(store: Store, run: str | None = None) -> str:
    """Return a sentence with the number of damaged lines in a run (execution of a job). Empty without such lines.

    By default it is the latest run.
    """
    sql = "select coalesce(sum(count), 0) from rejects where run = $run"
    with store.reading(sql) as con:
        ((count,),) = con.execute(sql, {"run": store.latest_run(run)}).fetchall()
    return f"{pluralize(int(count), 'damaged line')}{_REJECTS}" if count else ""


@dataclass(frozen=True)
class LeftOut:
    """Counts of the lines and results that ``top`` and ``recommend`` do not use, by reason.

    * ``rejects``: damaged lines.
    * ``by_tool``: calls that a person or a benchmark tool made, if a log of the job has calls of the kind.
    * ``uncalled``: matrix products or convolutions with a time that no log of the run calls, if a log calls others of
      the kind.
    * ``elsewhere``: times that are known to be of another device.
    * ``untimed``: results without a time, such as kernels that failed. Lines that name the library's choice are used.
    """

    rejects: int = 0
    by_tool: int = 0
    uncalled: int = 0
    elsewhere: int = 0
    untimed: int = 0

    @property
    def text(self) -> str:
        """A sentence that tells the user what was left out, for example damaged lines, and how often.

        Empty if nothing was left out.
        """
        parts = [
            (self.rejects, "damaged line", _REJECTS),
            (self.by_tool, "call", " of benchmark commands"),
            (self.uncalled, "measured problem", " without calls in the run's logs"),
            (self.elsewhere, "measured time", " of another device"),
            (self.untimed, "result", " without a time"),
        ]
        return ", ".join(f"{pluralize(n, noun)}{more}" for n, noun, more in parts if n)


@dataclass(frozen=True)
class Ranking:
    """The table of a job's most important matrix products and convolutions, and the sums over all of them.

    * ``rows`` is a table with the columns of ``top``.
    * ``problems`` and ``calls`` are the number of all products and convolutions, and of all their calls.
    * ``timed`` is how many of them have a known time, and ``total_us`` is the sum of their times.
    * ``saves_us`` is the time that the best known kernels would save.  It is missing (None) if the time of the kernel
      that ran and the best time are never both known.
    * ``left_out`` counts what is left out.  The counts are zero if they were not asked for.
    """

    rows: pa.Table
    problems: int
    calls: int | None
    timed: int
    total_us: float | None
    saves_us: float | None
    left_out: LeftOut = LeftOut()
    steps: float | None = None
    """The number of traced steps to which the calls belong. None if logs count calls, or if no steps are marked."""
    traced: bool = False
    """True if the calls are counted in traces only."""
    processes: int = 0
    """The number of processes whose calls are added up. 0 if no log names its process."""
    untold: int = 0
    """The number of products and convolutions that are counted with the best known time, because no log names the pick.
    """
    traced_us: float | None = None
    """The time that the traces cover, µs. None if logs count calls, or if a trace does not state its time."""
    by: str = "calls"
    """``calls`` or ``time``. The column ``share`` has shares of it."""
    saves_if_us: float = 0.0
    """The additional saving (µs) if the job does not read its user find-db (``libraries/miopen/find_db_choice.py``)."""
    unsettled: int = 0
    unsettled_names: tuple[str, ...] = ()
    """The number of convolutions that have this additional saving, and the names of the three largest savings."""

    @property
    def table(self) -> Rows:
        """The rows for the terminal, with the time of a call (µs). A pick that no log names is ``not logged``.

        A saving that is unknown is ``unknown``, if another one is known. The name of the column ``share`` says what the
        shares are of: ``of_calls`` or ``of_time``.
        """
        out = []
        some = any(x is not None for x in self.rows["saves_us"].to_pylist())
        for row in self.rows.to_pylist():
            calls, total_us = row["calls"], row["total_us"]
            call_us = total_us / calls if calls and total_us is not None else None
            picked = row | ({"pick": "not logged"} if row["best"] and not row["pick"] else {})
            picked |= {"saves_us": "unknown"} if some and row["saves_us"] is None else {}
            last = {"call_us": call_us} | {x: row[x] for x in ("total_us", "kind", "calls_from", "saves_only_if")}
            names = [name for name in picked if name not in last and name != "text"]
            out.append({f"of_{self.by}" if name == "share" else name: picked[name] for name in names} | last)
        return out

    @property
    def total(self) -> str:
        """The last line that ``logparse top`` prints: the sums over all matrix products and convolutions."""
        out = f"total: {pluralize(self.problems, 'problem')}"
        out += f", {pluralize(self.calls, 'call')}" if self.calls is not None else ""
        if self.traced:
            some = "traced step" if self.steps == 1 else "traced steps"
            out += f" in {self.steps:,g} {some}" if self.steps else " in the whole trace (no steps are marked)"
        elif self.processes > 1 and self.calls is not None:
            out += f" of {self.processes:,} processes together"
        if self.timed and self.total_us is not None:
            of = "" if self.timed == self.problems else f" by the times of {self.timed:,} of them"
            out += f"; {duration(self.total_us)}{of}{self._part_of_traces()}"
        if self.untold:
            out += f" ({pluralize(self.untold, 'problem')} by the best known time, because no log names the pick)"
        known, more = self.saves_us or 0.0, self.saves_if_us
        saved = [duration(known)] if known else []
        saved += [f"{'another ' * bool(known)}{duration(more)} if {find_db_choice.ASSUMES}"] if more else []
        return out + f"; the best known solutions save {', and '.join(saved)}" * bool(saved)

    def _part_of_traces(self) -> str:
        """Return which part of a traced step, or else of the traces, all problems take. Empty if no trace states it."""
        each, whole = (self.total_us or 0.0) / (self.steps or 1.0), (self.traced_us or 0.0) / (self.steps or 1.0)
        known = [f"{duration(each)} a step"] if self.steps else []
        known += (
            [f"{each / whole:.0%} of {'a traced step of' if self.steps else 'the traced'} {duration(whole)}"]
            if whole
            else []
        )
        return f" ({', '.join(known)})" if known else ""

    def rest_note(self, store: Store, run: str) -> str:
        """Return a note that names the command for the rest of the traced time. Empty if that time is unknown."""
        if not self.traced_us:
            return ""
        return f"where the rest of the time goes: {command_line(store.url, 'recommend', '--run', run)}"

    def unsettled_note(self, store: Store, run: str) -> str:
        """Return a note about convolutions whose solver depends on which find-db the job reads. Empty without any."""
        if not self.unsettled:
            return ""
        more = self.unsettled - len(self.unsettled_names)
        named = ", ".join(self.unsettled_names) + f" and {more:,} more" * (more > 0)
        return (
            f"{named}: the time is of the system find-db's pick. A user find-db has a faster solution, and no log "
            "shows whether the job reads it. To settle it: "
            f"{' && '.join(settling(store.url, run, store.runs(), 'top'))}"
        )


def rank_problems(
    store: Store,
    *,
    by: str = "calls",
    kind: str | None = None,
    n: int = 20,
    run: str | None = None,
    texts: Sequence[str] | None = None,
    count_left_out: bool = False,
) -> Ranking:
    """Return the table of ``logparse top``: the matrix products and convolutions with most calls or most time.

    The sums over all of them come with it. ``texts`` limits the table to these products. ``count_left_out`` also counts
    what is left out.
    """
    key, other = ("total_us", "calls") if by == "time" else ("calls", "total_us")
    run = store.latest_run(run)
    with store.reading(
        " ".join([_OPEN, *_STAGES.values(), find_db_choice.RIVALS, _TIMED, _STEPS, LEFT_OUT * count_left_out])
    ) as con:
        ((may_be,),) = con.execute(_OPEN).fetchall()  # this takes a third of the time that it takes to read the links
        con.execute(f"create temp table linked as {_LINKED if may_be else _NO_LINKS}")
        _make(con, run, _STAGES)
        con.execute(f"create temp table rivals as {find_db_choice.chosen_rivals_sql(con)}")
        ((several,),) = con.execute("select exists (from mixed)").fetchall()
        timed = (_TIMED if may_be else _OF_ITSELF).format(rows=_PARTS if several else _FILES)
        con.execute(_RANKED.format(timed=timed), {"kind": kind, "texts": None if texts is None else list(texts)})
        (sums,) = con.execute(_SUMS).fetchall()
        shown = {"n": n, "assumes": find_db_choice.ASSUMES}
        # This is an Arrow table, because to import pandas takes longer than most answers.
        rows: pa.Table = con.sql(_SHOWN.format(key=key, other=other, timed=timed), params=shown).to_arrow_table()
        traced, steps, processes, traced_us = con.execute(_STEPS, {"run": run, "kind": kind}).fetchall()[0]
        ((untold,),) = con.execute(_UNTOLD).fetchall()
        open_ = [problem_from_text(text).label for (text,) in con.execute(_UNSETTLED).fetchall()]
        not_used = _count(con, run, kind) if count_left_out else LeftOut()
    labels = column([problem_from_text(text).label for text in rows["text"].to_pylist()], pa.string())
    named = rows.set_column(rows.column_names.index("problem"), "problem", labels)
    problems, calls, with_time, total_us, saves_us, saves_if_us, unsettled = sums
    return Ranking(
        named,
        problems,
        calls,
        with_time,
        total_us,
        saves_us,
        left_out=not_used,
        steps=steps if traced else None,
        traced=bool(traced),
        traced_us=traced_us if traced and total_us and traced_us and total_us <= traced_us else None,
        by=by,
        processes=int(processes),
        untold=int(untold),
        saves_if_us=saves_if_us,
        unsettled=unsettled,
        unsettled_names=tuple(dict.fromkeys(open_)),
    )


def left_out(con: duckdb.DuckDBPyConnection, run: str) -> LeftOut:
    """Count what ``top`` and ``recommend`` do not use of a run (execution of a job).

    ``con`` needs the views in ``LEFT_OUT`` and a table ``linked`` with the rows of ``open_links``.
    """
    # ``linked`` and temporary tables with the names of ``_STAGES`` are replaced.
    con.execute(f"create or replace temp table linked as {_OF_LINKS.format('linked')}")
    _make(con, run, _COUNTED)
    return _count(con, run, None)


def _make(con: duckdb.DuckDBPyConnection, run: str, names: Iterable[str]) -> None:
    for name in names:
        made = _STAGES[name]
        con.execute(f"create or replace temp table {name} as {made}", {"run": run} if "$run" in made else None)


def _count(con: duckdb.DuckDBPyConnection, run: str, kind: str | None) -> LeftOut:
    (counts,) = con.execute(_LEFT_OUT, {"run": run, "kind": kind}).fetchall()
    return LeftOut(*map(int, counts))


def _rows(store: Store, sql: str) -> pa.Table:
    with store.reading(sql) as con:
        return con.sql(sql).to_arrow_table()


def no_problem(store: Store, run: str, kind: str | None) -> str:
    """Return the sentence that ``logparse top`` prints if a run has no matrix product or convolution of this kind."""
    what = {None: "problem", "gemm": "GEMM", "grouped": "grouped GEMM", "conv": "convolution"}[kind]
    sql = "select count(distinct kernel) from kernels where calls > 0"
    with store.reading(sql, run) as con:
        ((kernels,),) = con.execute(sql).fetchall()
    ask = command_line(store.url, "sql", "from kernels order by total_us desc")
    instead = f"it holds {pluralize(int(kernels), 'kernel')} of a profiler, which `{ask}` lists"
    status = f"`{command_line(store.url, 'status')}` lists what runs hold"
    return f"run {run} holds no {what} that a job called or that was measured ({instead if kernels else status})"


@dataclass(frozen=True)
class Known:
    """Everything that was recorded about one matrix product or convolution: its calls and its measured times.

    The tables' column ``level`` tells how certain each row is about this product (see ``links.find_link_level``).
    """

    problem: Problem
    # Sometimes a log does not state all fields of a product. So the tables also contain rows that may be about it.
    calls: pa.Table
    measurements: pa.Table


def known_lines(store: Store, known: Sequence[Known]) -> Iterator[str | Rows]:
    """Yield what ``logparse show`` prints about some matrix products and convolutions.

    For each of them there is a sentence about the kernel that ran, and a table with one row per time.
    """
    for label in dict.fromkeys(entry.problem.label for entry in known):
        same = [entry for entry in known if entry.problem.label == label]
        calls = _distinct(entry.calls.to_pylist() for entry in same)
        times = _distinct(entry.measurements.to_pylist() for entry in same)
        yield f"{label}: {_sentence(store, calls, times)}"
        if calls or times:
            yield _one_table(calls, times)
        if told := _called_from(store, {entry.problem.text for entry in same} | {str(x["problem"]) for x in calls}):
            yield told
        if logs := sorted({str(row["category"]) for row in calls}):
            yield f"logged as: {', '.join(logs)}"
        if len(same) == 1:
            yield same[0].problem.text
        else:
            yield f"problems of this name: {len(same):,}, which differ in"
            yield from (f"  {words}" for words in _drop_common_words([entry.problem.text for entry in same]))


def _called_from(store: Store, texts: Collection[str]) -> str:
    """Say from where in the program these problems are called, as the latest run with such a trace shows it.

    The result is empty if no trace has stacks.
    """
    sql = "select run, value from facts where name = $name"
    values: dict[str, list[str]] = {}
    with store.reading(sql) as con:
        for run, value in con.execute(sql, {"name": places.FACT}).fetchall():
            values.setdefault(run, []).append(value)
    told = (places.sentence(values[run], texts) for run in reversed(store.runs()) if run in values)
    return next(filter(None, told), "")


def _drop_common_words(texts: Sequence[str]) -> list[str]:
    """Remove from each text the words that all texts have in common, and return the results."""
    words = [text.split(" ") for text in texts]
    common = set(words[0]).intersection(*words)
    return [" ".join(word for word in x if word not in common) for x in words]


def _distinct(several: Iterable[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Join the rows of several tables, and drop duplicates.

    Rows that differ only in the column ``level`` are duplicates.
    """
    rows = {
        tuple(str(value) for name, value in row.items() if name != "level"): row for table in several for row in table
    }
    return list(rows.values())


def _called(calls: Iterable[Mapping[str, Any]]) -> Mapping[tuple[str, str | None], int]:
    """Return how often each kernel was called, by run (one execution of the job).

    Calls of a benchmark tool are left out.
    """
    logs: dict[tuple[str, int | None], dict[str, Counter[str | None]]] = {}
    for row in calls:
        if not row["by_tool"]:
            log = logs.setdefault((row["run"], row["pid"]), {}).setdefault(row["category"], Counter())
            log[row["solution"]] += row["count"] or 0
    out: Counter[tuple[str, str | None]] = Counter()
    # Several logs of one process may record the same calls, so only the log with the most calls is used.
    for (run, _), by_log in logs.items():
        for solution, count in max(by_log.values(), key=lambda log: sum(log.values())).items():
            out[run, solution] += count
    return out


def _one_table(calls: Iterable[Mapping[str, Any]], times: Iterable[Mapping[str, Any]]) -> Rows:
    """Return a table of the kernels of one matrix product or convolution, with their times and calls.

    * There is one row per time, the fastest first.  The row also has the number of calls of that kernel in that run
      (one execution of the job).
    * Then come rows for calls of kernels without a time.
    * The column ``slower`` compares a time with the fastest time of the same run and the same tool.
    """
    left: dict[tuple[str, str | None], int | None] = dict(_called(calls))
    fastest: dict[tuple[str, str], float] = {}
    for row in times:
        if row["time_us"]:
            of = row["run"], row["origin"]
            fastest[of] = min(row["time_us"], fastest.get(of, row["time_us"]))
    out: list[dict[str, object]] = []
    for row in times:
        us, least = row["time_us"], fastest.get((row["run"], row["origin"]))
        if row["origin"] == "trace" and (row["run"], row["solution"]) not in left:
            left[row["run"], row["solution"]] = left.pop((row["run"], None), None)
        out.append(
            {
                "solution": row["solution"],
                "calls": left.pop((row["run"], row["solution"]), None),
                "time_us": us,
                "slower": f"{us / least:.2f} ×" if us and least and us > least else "",
                "from": row["origin"],
                "run": row["run"],
                "status": "" if row["status"] == "ok" else row["status"],
                "error": row["error"],
            }
        )
    empty = dict.fromkeys(("time_us", "slower", "from", "status", "error"))
    out += [{"solution": x, "calls": n, **empty, "run": run} for (run, x), n in left.items()]
    names = ("solution", "calls", "time_us", "slower", "from", "run", "status", "error")
    filled = [name for name in names if any(row[name] not in (None, "") for row in out)]
    return [{name: row[name] for name in filled} for row in out]


def _sentence(store: Store, calls: Iterable[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence about one matrix product or convolution: which kernel the job uses, and how slow it is.

    The kernel is compared with the best known one.
    """
    texts = sorted({str(row["problem"]) for row in (*calls, *times)})
    if not texts:
        return "the store has neither calls nor times of this matrix product or convolution"
    called = {run for run, _ in _called(calls)}
    runs = [run for run in store.runs() if run in called]
    said = [
        _describe_pick(run, rank_problems(store, by="time", n=1, run=run, texts=texts).rows.to_pylist())
        for run in runs[-_RUNS:]
    ]
    if said:
        earlier = len(runs) - len(said)
        return "; ".join([*said, *([f"{pluralize(earlier, 'earlier run')} in the table"] if earlier else [])])
    timed = [row for row in times if row["time_us"]]
    if not timed:
        return "no run calls this matrix product or convolution, and its time is unknown"
    best = f"{timed[0]['solution']} ({duration(timed[0]['time_us'])})"
    return f"no run calls this matrix product or convolution; its fastest known solution is {best}"


_RUNS = 3  # maximum number of runs in the sentence of ``show``


def _describe_pick(run: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which kernel one execution of the job used for a product or convolution, and how slow it is against the best.

    ``rows`` has the row of ``logparse top``, if there is one. The result is a part of a sentence.
    """
    row = (
        rows[0] if rows else dict.fromkeys(("calls", "pick", "best", "pick_us", "best_us", "total_us", "saves_only_if"))
    )
    pick, best, pick_us, best_us = (row[x] for x in ("pick", "best", "pick_us", "best_us"))
    if row["saves_only_if"] and pick_us and best_us:
        return (
            f"the pick of run {run} is not logged; {pick} of the system find-db takes {duration(pick_us)} a call, and "
            f"{best} of the user find-db {duration(best_us)} ({pick_us / best_us:.3g} × faster, if the job reads that "
            f"file; a log with {find_db_choice.SETTLED_BY} names the solver)"
        )
    named = f"run {run} picks {pick}" if pick else f"the pick of run {run} is not logged"
    if best_us is None and row["total_us"]:
        us = row["total_us"] / (row["calls"] or 1)
        return f"a call of run {run} takes {duration(us)}, and no other time on its device is known"
    if best_us is None:
        return f"{named}, and no time of it is known"
    if pick_us is None and pick != best:
        return f"{named}; the fastest known solution is {best} ({duration(best_us)} a call)"
    if pick_us is None or pick_us <= best_us:
        return (
            f"{named}, which is the fastest known" if pick else f"{named}; the library's default is the fastest known"
        )
    slower = f"{pick_us / best_us:.3g} × slower than {best}: {duration(pick_us)} and {duration(best_us)} a call"
    return f"{named}, {slower}" if pick else f"{named}; the library's default is {slower}"


def found_about(store: Store, known: Sequence[Known]) -> list[str]:
    """Return warnings that these matrix products or convolutions are slower than similar ones.

    The warnings were stored by the last ``logparse recommend``, and each is one line of text.  They also cover calls
    with unknown fields that may be the same.
    """
    sql = (
        "select distinct message || coalesce('; compared with ' || comparable, '') from findings"
        " where analyzer = 'slower-than-comparable' and list_contains(?, problem)"
    )
    texts = {x.problem.text for x in known}
    texts |= {text for x in known for rows in (x.calls, x.measurements) for text in rows["problem"].to_pylist()}
    with store.reading(sql) as con:
        return sorted(str(message) for (message,) in con.execute(sql, [sorted(texts)]).fetchall())


def known_table(known: Sequence[Known]) -> pa.Table:
    """Return one table with all calls and all measured times of some matrix products or convolutions.

    The column ``what`` tells whether a row is a ``call`` or a ``time``.
    """
    tables = [
        rows.append_column("what", column([what] * len(rows), pa.string()))
        for k in known
        for what, rows in (("call", k.calls), ("time", k.measurements))
    ]
    return pa.concat_tables(tables, promote_options="default")


_CANDIDATES = """
    select distinct problem from (select problem from gemm_rows union all select problem from conv_rows)
    where starts_with(problem, $kind) and contains(problem, $sizes)"""
_KNOWN_CALLS = """
    select level, run, category, pid, solution, cast(sum(count) as bigint) as count, min(first_seen) as first_seen,
           max(last_seen) as last_seen, by_tool, problem from calls join levels using (problem)
    group by all order by count desc nulls last, run, category, pid, solution, problem, level"""
_KNOWN_TIMES = """
    select level, run, origin, solution, status, time_us, workspace_bytes, error, key_text, problem
    from measurements join levels using (problem) where origin <> 'replay-host'
    order by time_us nulls last, solution, origin, run, problem, key_text"""
"""SQL for the measured times of a matrix product or convolution.

The time that the host needs to start a call is left out, because a call's time is the time on the GPU.
"""


def show(store: Store, text: str) -> list[Known]:
    """Return all that the store knows of the matrix products and convolutions that a pasted text names.

    ``text`` is a line of a log or of a table of logparse. Raises InputError if it names no product.
    """
    from logparse.links import find_link_level

    problems = _find_by_label(store, text) or problems_in(text)
    out = []
    with store.reading(f"{_CANDIDATES} {_KNOWN_CALLS} {_KNOWN_TIMES}") as con:
        for problem in problems:
            wanted = {"kind": problem.kind, "sizes": _sizes(problem)}
            candidates = [text for (text,) in con.execute(_CANDIDATES, wanted).fetchall()]
            levels = {text: at for text in candidates if (at := find_link_level(problem, problem_from_text(text)))}
            names, found = (column(x, pa.string()) for x in (list(levels), list(levels.values())))
            con.register("levels", pa.Table.from_arrays([names, found], names=["problem", "level"]))
            calls, times = (con.sql(sql).to_arrow_table() for sql in (_KNOWN_CALLS, _KNOWN_TIMES))
            con.unregister("levels")
            out.append(Known(problem, calls, times))
    return out


def _find_by_label(store: Store, text: str) -> list[Problem]:
    """Return the matrix products and convolutions that tables show under this name, or under a name that begins so.

    The sizes in the text may be joined by × or x.
    """
    text = " ".join(re.sub(r"(?<=\d)x(?=\d)", "×", text).split())
    sizes = _LABELLED_SIZES.match(text)
    if not sizes:
        return []
    written = ",".join(filter(None, sizes.groups()))
    sql = """select problem from (select problem from gemm_rows union select problem from conv_rows)
             where contains(problem, ?) order by problem"""
    with store.reading(sql) as con:
        texts = [row[0] for row in con.execute(sql, [written]).fetchall()]
    problems = list(map(problem_from_text, texts))
    exact = [problem for problem in problems if problem.label == text]
    return exact or [problem for problem in problems if problem.label.startswith(f"{text} ")]


_LABELLED_SIZES = regex(r"[NTC?]{2} (\d+)×(\d+)×(\d+)[ +]|[FBW+]+ (\d+)×(\d+)×")
"""Pattern for the start of the name that a GEMM or a convolution has in tables, for example ``TN 4096×512×1024``."""


def _sizes(problem: Problem) -> str:
    """Return the part of a product's text that states the sizes, for example `` mnk=4096,512,1024 `` for a GEMM."""
    # Every product or convolution with these sizes has this part in its text. So a search for the same call needs to
    # parse only texts with this part.
    if isinstance(problem, GemmProblem) and not problem.members:
        return f" mnk={problem.m},{problem.n},{problem.k} "
    if isinstance(problem, ConvProblem):
        text = problem.text
        return text[text.index(" in=") : text.index(" pad=") + 1]
    return ""


def problems_in(text: str) -> list[Problem]:
    """Return the matrix products and convolutions in a log line that the user pasted. The line may have any format.

    Raises InputError if no format can read the line.
    """
    text = text.strip()
    try:
        return [problem_from_text(text)]
    except (ValueError, IndexError, TypeError, KeyError):
        found = {problem.text: problem for problem in _find_in_text(text)}
    if not found:
        raise InputError(
            f"{text[:60]!r} is no matrix product or convolution. Paste a line of a log (bench, trace, profile), a "
            "MIOpenDriver command, a key or row of a find-db, a row of TunableOp, or a name from a table of logparse"
        )
    return list(found.values())


def _find_in_text(text: str) -> Iterator[Problem]:
    """Yield the matrix products and convolutions in a text that the user pasted.

    The text is read as a line of a log, as a whole file, and as a key of MIOpen's find-db.
    """
    from logparse.ingest.input_file import InputFile
    from logparse.ingest.lines import LineReader
    from logparse.libraries import FORMATS  # imported here, because ``top`` and ``status`` do not need them
    from logparse.libraries.kinds.format import FileFormat, LineFormat

    reader = LineReader([f for f in FORMATS if isinstance(f, LineFormat)])
    reader.feed(text.encode(), 0)
    outcomes = [line.format.read(line.text) for line in reader.take().distinct]
    with TemporaryDirectory() as folder:
        for pasted in (text, f"{text}=ConvDirectNaiveConvFwd:0,0,miopenConvolutionFwdAlgoDirect"):
            Path(folder, "pasted").write_bytes(pasted.encode() + b"\n")
            source = InputFile(f"{folder}/pasted")
            readers = (x for x in FORMATS if isinstance(x, FileFormat) and x.recognise(source.head()))
            outcomes += [outcome for format in readers for outcome in format.read(source)]
    for outcome in outcomes:
        yield from (problem for x in outcome.records if (problem := getattr(x, "problem", None)) is not None)
        for table in outcome.tables.values():
            if "problem" in table.column_names:
                yield from map(problem_from_text, table["problem"].unique().to_pylist())


_WIDTH = 80
MANY_FILES = 2_000
"""Number of small files in a store above which opening the store takes seconds."""


def hints(store: Store) -> list[str]:
    """Return advice about a store: if it is empty, if many small files make it slow, or if rows cannot be read."""
    if not store.runs():
        return [store.empty]
    count, out = store.unmerged, list[str]()
    if count > MANY_FILES:
        out.append(f"the store has {count:,} small files, which slow it down; `logparse compact` merges them")
    if copies := store.copies():
        path, first = copies[0]
        out.append(
            f"{pluralize(len(copies), 'file')} with the content of another file of the run, so each content "
            f"counts once ({short_path(path)} is a copy of {short_path(first)}; the column copy_of of the view sources "
            "lists all)"
        )
    if left_out := store.left_out():
        first = shorten_texts([store.unreadable()[0]], _WIDTH)[0]
        out.append(
            f"{pluralize(left_out, 'row')} of an earlier version are left out, because their problems cannot be "
            f"read, such as {make_printable(first)}; if ingested again, their lines become rejects with a reason"
        )
    return out


_HOLDINGS = """
    select run, format, count(*) as files, cast(sum(lines) as bigint) as lines,
           cast(sum(call_lines) as bigint) as call_lines, cast(sum(measurement_lines) as bigint) as measurement_lines,
           cast(sum(message_lines) as bigint) as message_lines, cast(sum(reject_lines) as bigint) as rejects,
           cast(sum(foreign_lines) as bigint) as foreign_lines, cast(sum(bytes) as bigint) as bytes
    from sources where copy_of is null group by run, format order by min(ingested_at), format"""


def list_contents(store: Store) -> pa.Table:
    """Return a table of what the store contains, with one row per run (execution of a job) and file format.

    The columns are the number of files, their bytes, and the number of lines of each category.
    """
    # The categories are calls, rejects and so on. Copies are left out, and ``hints`` counts them.
    return _rows(store, _HOLDINGS)
