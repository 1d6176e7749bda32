"""Hold the SQL for ``ranking``: the temporary tables that it needs, the ranking itself, and its sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logparse.lazy import duckdb
from logparse.libraries.miopen import find_db_choice
from logparse.libraries.own.job_units import UNITS_EACH
from logparse.links import links_sql, open_sql
from logparse.store.rules import DEFAULTS, counted_as_sql, main_picks_sql, traced_sql

_PART = "array_to_string(string_split(key_text, ',')[:gfx::int + cu::int], ',')"
"""SQL expression for the first values of a key in a table of aiter, which name the GPU.

It is needed if a table holds rows for several GPUs.
"""
FILES = "measurements m join files using (source_id)"
PARTS = f"""
    (from measurements left join mixed using (source_id)) m
    join files f on f.source_id = m.source_id and f.part = case when gfx is null then '' else {_PART} end"""
"""SQL for the measurements with the files that they come from.

If a file holds rows for several GPUs, each measurement gets only the facts of its own GPU.
"""
PLACED = f"""
    select m.* exclude (gfx, cu), arch, cu_count
    from (from measurements left join mixed using (source_id)) m
    left join (select * exclude (cu), cu as cu_count from places) f
        on f.source_id = m.source_id and f.part = case when gfx is null then '' else {_PART} end"""
"""SQL for the measurements, each with the facts ``arch`` and ``cu_count`` of its GPU.

They are empty if the GPU is unknown.  The SQL needs the tables ``PLACES`` of ``STAGES``.
"""
PLACES = ("mixed", "places")
DEVICE = "concat_ws(' ', arch, '(' || cu_count || ' CUs)')"
"""SQL expression for the text of a GPU, for example ``gfx942 (304 CUs)``.  The text is empty if the GPU is unknown."""
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
OF_ITSELF = _ROWS.format(problem="problem", linked="", rows="{rows}", subject=_SUBJECT)
_OTHER = "join linked o on o.other = m.problem"
_OF_LINKED = _ROWS.format(problem="o.problem", linked=_OTHER, rows="{rows}", subject="false")
OPEN = f"select exists ({open_sql('gemm_rows')}) or exists ({open_sql('conv_rows')})"
_OPEN_LINKS = links_sql("gemm_rows", "conv_rows")["open_links"]
OF_LINKS = "select problem, other, level from {} where problem <> other"
LINKED = OF_LINKS.format(f"({_OPEN_LINKS})")
"""SQL for the other problems that may be the same call.

It is the view ``open_links``. Because making this view takes long and most stores have no such links, the view's SQL is
run only if it is needed.
"""
NO_LINKS = "select '' as problem, '' as other, '' as level where false"
TIMED = f"{OF_ITSELF} union all {_OF_LINKED}"
"""SQL for all stored times that may belong to a matrix product or convolution.

They are the times of the product or convolution itself, and the times of others that may be the same call.  The SQL
scans the table twice, because a common table expression would hold all texts in memory.
"""
_OWN = "run = $run"
STAGES: Mapping[str, str] = {
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
RANKED = """
create or replace temp table ranked as
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
"""SQL for the ranking.

The ranking first reduces millions of times to one row per problem, GPU, run and origin.  Then it chooses
one such row for each problem, by these criteria in this order:

* The row is from this run.
* It has a time of the library's own choice.
* It comes from a confirmation.
* It has the most times.

The name of the kernel is read only for the problems that are shown.
"""
SHOWN = """
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
SUMS = """
    select count(*), sum(calls), count(total_us), sum(total_us), sum(saves_us) filter (not unsettled),
           coalesce(sum(saves_us) filter (unsettled), 0), count(*) filter (unsettled) from ranked"""
"""SQL for the sums over all ranked matrix products and convolutions."""
UNTOLD = """
select count(*) filter (pick is null and traced_us is null and pick_us is null and best_us > 0), count(traced_us)
from ranked"""
DEVICES = f"""
    select {DEVICE} as text, arch, cu_count, bool_or(shown) as shown
    from (select source_id, part, own, device in (select device from ranked where best_us > 0) as shown from files)
    join (select * exclude (cu), cu as cu_count from places) using (source_id, part)
    where own or shown group by all order by text"""
"""SQL for the GPUs of the run's files and of the times in the ranking.  ``shown`` is True for the latter."""
UNSETTLED = "select problem from ranked where unsettled order by saves_us desc nulls last, problem limit 3"
STEPS = """
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


def make_tables(con: duckdb.DuckDBPyConnection, run: str, names: Iterable[str]) -> None:
    for name in names:
        made = STAGES[name]
        con.execute(f"create or replace temp table {name} as {made}", {"run": run} if "$run" in made else None)
