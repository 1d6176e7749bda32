"""The table ``points`` behind every chart: one row per problem, with the time it takes now and the best known time.

A problem is a GEMM or a convolution with all its sizes and types. A row is a problem that the run calls. If the run
logged no call of a kind (GEMM or convolution), the rows of that kind are the problems that its files measured: one row
per problem and file, with one call each. The library's choice (pick) and the findings of such a row are from its own
file. Times from a device that is known to be another one than the run's are not used.

The columns are the filters and numbers of ``selection``, and:

* ``id``, ``problem``, ``label``, ``kind``.
* ``calls``: number of calls. It is per step if only traces count the calls and the traces mark steps, else per run. All
  sums are per step or per run alike.
* ``unit``: the word for a step, or ``run``.
* ``pick``: the solution that the library chose.
* ``pick_us``: time of the pick, if another solution was tried, too. If only the pick was timed, its time is
  ``best_us``, and the loss is unknown.
* ``basis``: how the pick's time is known.
* ``best``, ``best_us``: the best known solution. If only the run's traces time the problem, it is their mean.
* ``time_us``: time of a call, from the first source that has it: the run's own traces, the pick, the system find-db's
  pick if no log shows which find-db the job reads (``libraries/miopen/find_db_choice.py``), a finding, the best.
* ``at_least``: True if no log names the solution that ran, and that time is the best known one. The solution that ran
  takes at least this time if it is among the timed ones.
* ``own``: True if that time is from the run itself. If it is from another run, ``file`` names that run.
* ``total_us``: calls × time.
* ``then_us``: time of a call with the best known solution. If the pick is timed, it is ``time_us`` × best / pick,
  however and wherever the two were timed.
* ``loss_us``: time lost per call.
* ``saving_us``: calls × loss. If no pick is timed, the finding's own saving. ``saving_from``: ``measured`` or
  ``estimated``, or ``conditional`` if it rests on the condition ``find_db_choice.ASSUMES``.
* ``aim_us``: time of a call that an estimated saving expects. ``then_is``: whose time that is, such as ``the time of
  its B``.
* ``finding``; ``proposed``: ``recommend``'s override as JSON.
* ``solutions``, ``failed``: number of solutions with a time, and of failed measurements.
* ``flops``, ``bytes``, ``intensity`` (flop/byte), ``tflops``, ``device``, ``roof_tflops``, ``efficiency``.
* ``apart``: True if ``best_us`` is from a file of a known device, and the device of the run's calls is unknown. The
  time is then shown, but it is no time of the run: ``time_us``, the sums and the savings are unknown.
* ``w_us``, ``f_us``, ``b_us``: times of the three passes of a layer, in the row of its backward weights (W). All are
  from one source, which ``passes_from`` names: the run's traces, else the row's file, else another file. In traces they
  are means, so ``w_us`` is ``time_us``. If a log names another solver of W, ``w_us`` is the time of that solver.
  ``w_solution``: the solution that takes ``w_us``.
* ``sibling_us``: the longer time of F and B. ``sibling_ratio``: ``w_us`` over it. ``w_total_us``: calls × ``w_us``.
  ``beyond_us``: calls × (``w_us`` − ``sibling_us``), at least 0.
* ``source_id``; ``measured``: text of the measured problem: the same one, or one that may mean the same call.
* ``here_us``, ``other_us``, ``change`` (here over other, minus one), ``moved`` (slower, faster …), ``pick_here`` and
  ``pick_there``: a comparison with another run. ``pick_here_us`` and ``pick_there_us`` are times of the two picks, if
  they differ and the row's file has both. ``change_us``: calls × (here − other), or else calls × (time of this run's
  pick − time of the other run's pick).
* ``dtype``: the one name of the input type (``BF16`` for GEMMs, too). ``input_type``: its name in the problem.
* ``action``: title of the first thing to do about the problem. ``todos``: list of the names of all things to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.picks import devices_of_processes
from analyzers.evidence.runs import split_by_device
from analyzers.evidence.units import unit_word, units_each
from analyzers.explore.queries import copy_for_duckdb
from analyzers.explore.selection import TYPE_NAMES
from analyzers.findings.finding import THEN
from analyzers.job.gpu_time import STEPS
from logparse.devices import PEAK_COLUMN, device_of, devices
from logparse.lazy import duckdb, pd
from logparse.libraries.miopen import find_db_choice
from logparse.model import TRIED, TYPE_BYTES, Finding, Override
from logparse.store.rules import DEFAULTS, counted_as_sql, picks_sql, traced_sql
from logparse.target import Facts, arch, device_of_file, different_devices, same_device
from logparse.text import sql_text

_TEXT, _NUMBER = "object", "float64"
COMPARED: Mapping[str, str] = {
    **dict.fromkeys(("problem", "pick", "basis", "best", "origin", "measured", "source_id"), _TEXT),
    **dict.fromkeys(("calls", "pick_us", "best_us"), _NUMBER),
}
FOUND: Mapping[str, str] = {
    **dict.fromkeys(
        ("problem", "analyzer", "message", "advice", "action", "todos", "found_in", "then_is", "proposed"), _TEXT
    ),
    **dict.fromkeys(("held_us", "per_call_us", "found_us"), _NUMBER),
    "timed": "bool",
}
"""Columns that the table of findings must have for this module, with their types."""
NEARBY: Mapping[str, pa.DataType] = {
    "problem": pa.string(),
    "told": pa.string(),
    **dict.fromkeys(("low_us", "high_us"), pa.float64()),
    "times_us": pa.list_(pa.float64()),
}
"""Columns of a table that states how long GEMMs or convolutions similar to a given one take.

The times are converted to the size of the given one. ``told`` is a sentence, ``low_us`` and ``high_us`` are the range,
and ``times_us`` are the single times (µs).
"""


def write_nearby(con: duckdb.DuckDBPyConnection, table: str, rows: pd.DataFrame | None = None) -> None:
    """Create a database table with the times of GEMMs or convolutions that are about as large as the job's.

    * ``rows``: the columns in ``NEARBY``. None makes an empty table.
    """
    schema = pa.schema(NEARBY)
    made = schema.empty_table() if rows is None else pa.Table.from_pandas(rows, schema=schema, preserve_index=False)
    con.register("given_", made)
    con.execute(f"create or replace table {table} as select * from given_")
    con.unregister("given_")


def tabulate_findings(findings: Sequence[Finding]) -> pd.DataFrame:
    """Convert findings (possible savings) about GEMMs and convolutions to a table with one row each.

    The columns ``action`` and ``todos`` are filled later.
    """

    def as_text(override: Override) -> str:
        own = {"problem": override.problem.text, "solution": vars(override.solution), "target": dict(override.target)}
        return json.dumps({**vars(override), **own, "fallback": None})

    rows = [
        (
            *(x.problem.text, x.analyzer, x.message, x.advice, None, None, x.evidence.source_id),
            x.evidence.details.get(THEN),
            as_text(x.override) if x.override is not None else None,
            *(x.now_us, x.per_call_us, x.saving_us),
            x.sureness != "estimated",
        )
        for x in findings
        if x.problem is not None
    ]
    # If one file gave several findings about the same GEMM or convolution, the best one is kept, the first that
    # recommend lists.
    frame = pd.DataFrame(rows, columns=list(FOUND)).drop_duplicates(["problem", "found_in"], ignore_index=True)
    return frame.astype({name: kind for name, kind in FOUND.items() if kind != _TEXT})


def build(
    con: duckdb.DuckDBPyConnection,
    run: str,
    compared: pd.DataFrame | None = None,
    findings: pd.DataFrame | None = None,
    others: Path | None = None,
    table: str = "points",
    *,
    surveyed: bool = False,
) -> None:
    """Create the table ``points`` behind the charts: one row per GEMM or convolution of a run.

    It is made from the stored views in ``con``. These optional inputs fill more columns:

    * ``compared``: the libraries' choices beside the best kernels, as ``picks_vs_best`` returns them.
    * ``findings``: findings as ``tabulate_findings`` returns them.
    * ``others``: times of another run, a Parquet file that ``beside.keep`` wrote.

    ``surveyed`` must only be True if ``con`` has already made such a table of this run. The store is then not read
    again.
    """
    if not surveyed:
        _survey(con, run)
    for name, frame, columns in (("picked_", compared, COMPARED), ("found_", findings, FOUND)):
        known = pd.DataFrame(columns=list(columns)) if frame is None else frame[list(columns)]
        con.register(name, copy_for_duckdb(known.astype(dict(columns))))
    con.execute(f"create or replace table {table} as {_POINTS}")
    con.unregister("picked_")
    con.unregister("found_")
    if others is not None:
        _set_beside(con, table, others)


def _survey(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Create the view ``bases``: all that the files state about each GEMM or convolution, before any analysis.

    Also creates two tables:

    * ``places``: ``source_id, file, device, hbm_gbs, own`` (True for files of this run)
    * ``peaks``: ``device, dtype, peak_tflops``
    """
    split_by_device(con)
    stated = con.execute("select source_id, run, name, value from facts where value is not null").df()
    facts, own = facts_by_source(stated), stated[stated["run"] == run]
    rates = [(x.name, dtype, x.peak_tflops(dtype)) for x in devices() for dtype in PEAK_COLUMN]
    peaks = pd.DataFrame(rates, columns=["device", "dtype", "peak_tflops"])
    known = [(source, x.name, x.hbm_gbs) for source, one in facts.items() if (x := device_of(one))]
    types = {"source_id": "string", "device": "string", "hbm_gbs": _NUMBER}
    places = pd.DataFrame(known, columns=list(types)).astype(types)
    made = {"made_": places, "rates_": peaks, "foreign_": _find_files_of_other_devices(con, facts, run)}
    for name, table in made.items():
        con.register(name, table)
    con.execute(f"create or replace macro unit_word() as {sql_text(unit_word(own))}")
    con.execute(f"create or replace macro units_each() as {units_each(own)!r}::double")
    con.execute(f"create or replace macro type_bytes(t) as (case t {_TYPE_CASES} end)")
    names = " ".join(f"when {sql_text(x)} then {sql_text(y)}" for x, y in TYPE_NAMES.items())
    con.execute(f"create or replace macro type_name(t) as (case t {names} else t end)")
    con.execute("create or replace table peaks as select * from rates_")
    con.execute(
        """create or replace table places as
           select source_id, any_value(device) as device, any_value(hbm_gbs) as hbm_gbs,
                  any_value(regexp_extract(path, '[^/]*$') || if(run <> $run, ' (run ' || run || ')', '')) as file,
                  any_value(run) = $run as own
           from sources full join made_ using (source_id) group by source_id""",
        {"run": run},
    )
    con.execute(f"create or replace table counted_as as with picks as ({picks_sql(_OWN)}) {_COUNTED_AS}", {"run": run})
    _blocked(con, facts, run)
    _rivals(con, run)
    for name, sql in _STAGES.items():
        con.execute(f"create or replace table {name} as {sql}", {"run": run} if "$run" in sql else None)
    con.execute(f"create or replace view bases as {_BASES}")
    con.execute("drop table own_")
    for name in made:
        con.unregister(name)


def _blocked(con: duckdb.DuckDBPyConnection, facts: Mapping[str, Facts], run: str) -> None:
    """Create the table ``blocked``: measured times that must not be compared with the job's calls.

    A time is in the table if it may be from another GPU than the calls. That is so if neither a log nor another log of
    its process names the GPU on which it was written. The columns are ``h`` (the hash of ``problem``), ``problem`` (a
    GEMM or convolution), ``source_id`` (the file with the time), and ``known`` (True if the GPU of the calls is known
    to be another one).
    """
    own = con.execute("select distinct source_id from sources where run = ?", [run]).fetchall()
    pairs = sorted(different_devices(facts, [str(x) for (x,) in own]))
    device = {source: device_of_file(known) for source, known in facts.items()}
    logs = con.execute("select distinct pid, source_id from calls where run = ? and source_id is not null", [run]).df()
    homes = list((device | devices_of_processes(logs, device)).items())
    for name, columns, rows in (("apart_", ("log", "time"), pairs), ("homes_", ("source_id", "device"), homes)):
        made = pa.table({x: pa.array([row[i] for row in rows], pa.string()) for i, x in enumerate(columns)})
        con.register(name, made)
    con.execute(f"create or replace table blocked as {_BLOCKED}", {"run": run})
    con.unregister("apart_")
    con.unregister("homes_")


def _rivals(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Create the table ``rivals``: convolutions for which two find-dbs pick different solvers (``find_db_choice``).

    Its columns are those of ``rivals_sql``. Convolutions whose solver a log names are left out.
    """
    con.execute(
        f"""create or replace temp table find_dbs as
            from ({find_db_choice.FIND_DBS}) anti join foreign_ using (source_id)"""
    )
    con.execute(
        f"""create or replace table rivals as select r.* from ({find_db_choice.chosen_rivals_sql(con)}) r
            anti join blocked b on b.problem = r.problem and b.source_id in (r.system_id, r.user_id)
            anti join ({picks_sql(_OWN)}) p on p.problem = r.problem""",
        {"run": run},
    )


def _set_beside(con: duckdb.DuckDBPyConnection, points: str, others: Path) -> None:
    """Add the times of another run to the table ``points``, so that the user can compare the two runs.

    * ``others``: a Parquet file from ``beside.keep``.
    """
    # A GEMM or convolution may have several rows, one per file that measured it. Only one of them gets the times.
    con.execute(
        f"""create or replace temp table moved_ as
            select min(id) as id, any_value(here_us) as here_us, any_value(other_us) as other_us,
                   any_value(moved) as moved, any_value(pick_here) as pick_here, any_value(pick_there) as pick_there
            from (select id, hash(problem) as h from {points})
            join (select * exclude (problem), hash(problem) as h from read_parquet({sql_text(others)})) using (h)
            group by h"""
    )
    con.execute(
        f"""create or replace temp table both_ as
            select id, here_us, there_us from (
              select p.id, m.origin, min(m.time_us) filter (m.solution = o.pick_here) as here_us,
                     min(m.time_us) filter (m.solution = o.pick_there) as there_us
              from {points} p join moved_ o on o.id = p.id and o.pick_here <> o.pick_there
              join measurements m on m.source_id = p.source_id and hash(m.problem) = hash(p.measured)
                  and m.solution in (o.pick_here, o.pick_there)
              where m.status = 'ok' and m.time_us > 0 and isfinite(m.time_us) group by all)
            where here_us is not null and there_us is not null
            qualify row_number() over (partition by id order by origin) = 1"""
    )
    con.execute(
        f"""update {points} as p set here_us = o.here_us, other_us = o.other_us, change = o.here_us / o.other_us - 1,
                                     moved = o.moved, pick_here = o.pick_here, pick_there = o.pick_there,
                                     pick_here_us = b.here_us, pick_there_us = b.there_us,
                                     change_us = coalesce(p.calls, 1) * coalesce(
                                         o.here_us - o.other_us, b.here_us - b.there_us)
            from moved_ o left join both_ b using (id) where o.id = p.id"""
    )
    con.execute("drop table both_")
    con.execute("drop table moved_")


def _find_files_of_other_devices(con: duckdb.DuckDBPyConnection, facts: Mapping[str, Facts], run: str) -> pa.Table:
    """Return the files of other runs that are certainly from another device than this run.

    The result is a table with the column ``source_id``.
    """
    mine = {str(x) for (x,) in con.execute("select distinct source_id from facts where run = ?", [run]).fetchall()}
    here = [facts[x] for x in mine if arch(facts[x])]
    others = (x for x in facts if x not in mine and all(same_device(facts[x], own) is False for own in here))
    return pa.table({"source_id": pa.array(sorted(others) if here else [], pa.string())})


_TYPE_CASES = " ".join(f"when '{name}' then {size}" for name, size in TYPE_BYTES.items())

_GEMMS = """
  select problem, null as layer, case kind when 'grouped' then 'grouped GEMM' else 'GEMM' end as operation,
         null as direction, a_type as dtype, coalesce(trans_a, '?') || coalesce(trans_b, '?') as layout,
         flops::double as flops,
         batch_count::double * (m::double * k * coalesce(type_bytes(a_type), 0)
             + k::double * n * coalesce(type_bytes(coalesce(b_type, a_type)), 0)
             + m::double * n * (coalesce(type_bytes(coalesce(d_type, a_type)), 0)
                + if(beta = 'nonzero', coalesce(type_bytes(coalesce(c_type, d_type)), 0), 0))) as bytes,
         case when members is not null and members <> '' then
                 coalesce(trans_a, '?') || coalesce(trans_b, '?') || ' grouped, '
                 || len(string_split(members, ',')) || ' members ' || coalesce(a_type, '?')
              else concat(coalesce(trans_a, '?'), coalesce(trans_b, '?'), ' ', coalesce(m::bigint::varchar, '?'), '×',
                 coalesce(n::bigint::varchar, '?'), '×', coalesce(k::bigint::varchar, '?'),
                 if(coalesce(batch_count, 1) = 1, '', ' b' || batch_count::bigint), ' ', coalesce(a_type, '?'),
                 if(coalesce(epilogue, 'DEFAULT') = 'DEFAULT', '', ' ' || epilogue)) end as label
  from gemm_problems"""
_CONVOLUTIONS = """
  select problem, layer, 'convolution' as operation, direction, in_type as dtype, layout,
         flops::double as flops,
         n::double * c * d * h * w * type_bytes(in_type)
             + k::double * c * filter_d * filter_h * filter_w / coalesce(groups, 1)
               * type_bytes(coalesce(weights_type, in_type))
             + n::double * k * out_d * out_h * out_w * type_bytes(coalesce(out_type, in_type)) as bytes,
         if(direction is null or n is null or c is null or h is null or w is null or k is null or filter_h is null
                or filter_w is null or spatial = 3 and (d is null or filter_d is null), null,
             concat(direction, ' ', n::bigint, '×', c::bigint, if(spatial = 3, '×' || d::bigint, ''),
                 '×', h::bigint, '×', w::bigint, ' k', k::bigint, ' ', if(spatial = 3, filter_d::bigint || '×', ''),
                 filter_h::bigint, '×', filter_w::bigint,
                 if(coalesce(stride_h, 1) = 1, '', ' s' || stride_h::bigint),
                 if(coalesce(groups, 1) = 1, '', ' g' || groups::bigint), ' ', coalesce(in_type, '?'), ' ',
                 coalesce(in_layout, '?'))) as label
  from conv_problems"""
"""SQL that gives GEMMs and convolutions the same columns.

``concat`` joins texts in half the time of ``||``, which makes a new text at each step. But ``concat`` ignores nulls.
"""

_TRIED_STATUSES = ", ".join(sql_text(x) for x in sorted(TRIED))
_TRIES = f"""
  select f.file, hash(problem) as h, s.solver, o.solver as own, time_us,
         coalesce(status = 'ok' and time_us > 0 and isfinite(time_us), false) as good,
         coalesce(o.solver is null and status in ({_TRIED_STATUSES}), false) as rival
  from measurements m join files_ f on f.source_id is not distinct from m.source_id and f.kind = m.kind
      and f.run is not distinct from m.run and f.origin is not distinct from m.origin
  join solvers_ s on s.solution is not distinct from m.solution
  left join own_ o on o.file = f.file and o.solver = s.solver"""
"""SQL for the measurements of kernels. To save time, it has numbers in place of long or frequent texts.

* ``own``: the kernel, if it is the library's choice.
* ``rival``: True if the kernel is not the library's choice and was tried. The two can then be compared.
"""

_OWN = "run = $run"
_COUNTED_AS = f"from ({counted_as_sql('links', 'picks')})"
_STAGES: Mapping[str, str] = {
    "steps_": f"""
        select nullif(sum(try_cast(value as double)), 0) as steps from facts
        where run = $run and name = '{STEPS}'
          and (select bool_and(calls_from = 'profiler') from workload where run = $run)""",
    "files_": """
        select *, cast(row_number() over (order by source_id, run, origin, kind) as integer) as file,
               coalesce(run = $run, true) as own_run
        from (select distinct source_id, run, origin, kind from measurements
              where kind <> 'family' and source_id not in (select source_id from foreign_))""",
    "solvers_": """
        select solution, cast(row_number() over (order by solution) as integer) as solver
        from (select distinct solution from measurements where kind <> 'family')""",
    "own_": f"""
        select distinct file, solver from files_ left join ({DEFAULTS}) f using (source_id)
        join solvers_ s on s.solution = coalesce(f.solution, 'Default')""",
    "each_": f"""
        select * exclude (best), best.us as best_us, best.solver as best
        from (select file, h, count(*) filter (not good) as failed, count(distinct solver) filter (good) as solutions,
                     min({{'us': time_us, 'solver': solver}}) filter (good) as best,
                     any_value(own) filter (good) as own, avg(time_us) filter (good and own is not null) as default_us,
                     bool_or(rival) as contested
              from ({_TRIES}) group by file, h)""",
    "traced_": f"select hash(problem) as h, traced_us from ({traced_sql(_OWN, 'counted_as')})",
    "called_": """
        with counted_ as (
          select coalesce(m.other, w.problem) as problem, kind, calls_from,
                 calls * if(calls_from = 'profiler' and not bool_and(calls_from = 'profiler') over (), units_each(), 1)
                   as calls
          from workload w left join counted_as m on m.problem = w.problem where run = $run),
        work as (
          select hash(problem) as h, any_value(kind) as kind, sum(calls)::double as calls,
                 min(calls_from) as calls_from from counted_ group by h)
        select w.h, w.kind, w.calls, w.calls_from, k.traced_us,
               t.* exclude (h, in_trace) replace (if(in_trace, coalesce(traced_us, best_us), best_us) as best_us)
        from work w left join traced_ k using (h) left join (
            select t.*, b.h is not null as apart, own_run and origin = 'trace' as in_trace
            from each_ t semi join work using (h) join files_ f using (file)
            left join blocked b on b.h = t.h and b.source_id = f.source_id
            where b.h is null or not b.known and t.h not in (select h from traced_)
            qualify row_number() over (
                partition by t.h
                order by best_us is null, apart, not own_run, solutions desc, best_us, file) = 1) t using (h)""",
    "alone_": """
        select file from files_ f
        where not exists (select 1 from called_ w where (w.kind = 'conv') = (f.kind = 'conv'))
          and (source_id in (select source_id from sources where run = $run)
               or not exists (select 1 from sources where run = $run))""",
    "dimensions_": f"""
        select *, hash(problem) as h, hash(layer) as layer_h
        from ({_GEMMS} union all by name {_CONVOLUTIONS})""",
}
"""SQL for temporary tables, which are created one after the other.

To save time, texts are replaced by numbers. The long texts of GEMMs and convolutions become hashes. The names of files
and kernels become ranks.
"""
_BASES = """
    with rows_ as (  -- one for each called problem, and for each file that measured what no run of the kind called
      select true as called, * from called_
      union all by name
      select false as called, * from each_ semi join alone_ using (file)),
    in_trace_ as (  -- the medians of the run's traces, whose means are traced_us
      select e.* from each_ e join files_ f using (file) join traced_ using (h) where own_run and f.origin = 'trace'),
    best_ as (  -- of each file; without a file as the run's traces have it
      select file, h, best_us, best from each_ anti join in_trace_ using (file, h) where best_us is not null
      union all select null, c.h, c.traced_us, t.best from called_ c
        left join (select h, any_value(best) as best from in_trace_ group by h) t using (h)
      where c.traced_us is not null),
    passes_ as (
      select t.file, d.layer_h, min(best_us) filter (d.direction = 'F') as f_us,
             min(best_us) filter (d.direction = 'B') as b_us
      from best_ t join dimensions_ d using (h) where d.direction in ('F', 'B') group by all),
    layers_ as (  -- W beside F and B of one source
      select r.h, r.called, r.file, w.best_us as w_us, w.best as w_solver, p.f_us, p.b_us, w.file as of_file
      from rows_ r join dimensions_ d on d.h = r.h and d.direction = 'W' join best_ w on w.h = r.h
      join passes_ p on p.layer_h = d.layer_h and p.file is not distinct from w.file
      left join files_ f on f.file = w.file
      left join blocked b on b.h = r.h and b.source_id = f.source_id
      where (r.called or w.file = r.file) and not coalesce(b.known, false)
      qualify row_number() over (
          partition by r.h, r.called, r.file
          order by w.file is not null, w.file is not distinct from r.file desc, not f.own_run,
                   p.f_us is null or p.b_us is null, w.file) = 1)
    select left(md5(d.problem || if(r.called, '', '|' || f.source_id || '|' || f.origin)), 12) as id,
           r.* exclude (h, file, kind, best, own), coalesce(r.kind, f.kind) as kind, f.source_id, f.origin,
           f.own_run, b.solution as best, o.solution as own, d.* exclude (h, layer, layer_h), p.w_us, p.f_us, p.b_us,
           s.solution as w_solution, p.h is not null as has_passes, x.source_id as passes_source
    from rows_ r join dimensions_ d using (h) left join files_ f using (file)
    left join solvers_ b on b.solver = r.best left join solvers_ o on o.solver = r.own
    left join layers_ p on p.h = r.h and p.called = r.called and p.file is not distinct from r.file
    left join files_ x on x.file = p.of_file left join solvers_ s on s.solver = p.w_solver"""
_BLOCKED = """
    with caller as (
      select distinct hash(coalesce(m.other, c.problem)) as h, coalesce(o.device, '') as device
      from calls c left join counted_as m using (problem) left join homes_ o on o.source_id = c.source_id
      where run = $run and c.source_id is not null),
    timed as (
      select distinct hash(problem) as h, problem, source_id from measurements
      where hash(problem) in (select h from caller))
    select h, problem, t.source_id, bool_or(caller.device <> '') as known
    from timed t join caller using (h) left join homes_ o on o.source_id = t.source_id
    left join apart_ on log = caller.device and time = coalesce(o.device, '')
    group by all having bool_and(log is not null)"""
_SAME = 1e-9  # The mean of equal times may differ from them in its last bits. Such a difference is no saving.
_POINTS = f"""
with picks as (
  select problem, arg_max(pick, coalesce(calls, 1)) as pick, arg_max(basis, coalesce(calls, 1)) as basis,
         sum(coalesce(calls, 1) * pick_us) filter (pick_us is not null)
           / sum(coalesce(calls, 1)) filter (pick_us is not null) as pick_us,
         arg_min(best, best_us) as best, min(best_us) as best_us, arg_min(origin, best_us) as origin,
         arg_min(measured, best_us) as measured, arg_min(source_id, best_us) as source_id
  from picked_ group by problem),
merged as (
  select b.* exclude (calls, best, best_us, origin, source_id, own, default_us, own_run, contested, apart),
         coalesce(b.apart, false) and p.problem is null as apart,
         b.calls / coalesce(steps, 1) as calls, if(steps is null, 'run', unit_word()) as unit,
         coalesce(p.best, b.best)::varchar as best,
         coalesce(p.best_us, b.best_us) as best_us, coalesce(p.origin, b.origin) as origin,
         coalesce(p.measured, b.problem) as measured, coalesce(p.source_id, b.source_id) as source_id,
         if(coalesce(b.apart, false) and p.problem is null, null, coalesce(p.pick, b.own))::varchar as pick,
         if(coalesce(b.apart, false) and p.problem is null, null, coalesce(p.pick_us, b.default_us)) as own_us,
         p.pick_us is not null or b.contested as contested,
         coalesce(p.basis, case when b.default_us is not null then 'default' end) as basis,
         f.message::varchar as finding, f.advice::varchar as advice, f.analyzer::varchar as analyzer,
         f.action::varchar as action, f.todos::varchar as todos,
         if(f.blocked, null, f.per_call_us) as per_call_us, if(f.blocked, null, f.held_us) as held_us,
         if(f.blocked, null, f.found_us) / coalesce(steps, 1) as found_us,
         f.then_is::varchar as then_is, f.proposed::varchar as proposed, coalesce(f.timed, false) as found_timed,
         v.system_solution, v.system_us, v.user_solution, v.user_us, v.user_id
  -- pick and best are of one record: one without a time of the pick takes no place of one that has it
  from bases b cross join steps_ left join picks p on p.problem = b.problem and (b.called or p.source_id = b.source_id)
      and (p.pick_us is not null or b.default_us is null)
  left join (
      select f.*, n.problem is not null as blocked,
             row_number() over (partition by f.problem order by n.problem is not null) as place
      from found_ f left join blocked n on n.problem = f.problem and n.source_id = f.found_in) f
    on f.problem = b.problem
       and if(b.called, f.place = 1, coalesce(f.found_in, b.source_id) = b.source_id)
  left join rivals v on b.called and v.problem = b.problem and b.traced_us is null),
settled as (  -- no log shows which find-db the job reads: now is the pick of the system find-db
  select * replace (if(unsettled, system_solution, pick) as pick, if(unsettled, user_solution, best) as best,
                    if(unsettled, user_us, best_us) as best_us, if(unsettled, user_id, source_id) as source_id,
                    if(unsettled, problem, measured) as measured, if(unsettled, 'find-db', origin) as origin)
  from (select *, system_us is not null and not (contested and own_us is not null)
                  and coalesce(pick, 'Default') = 'Default' as unsettled from merged)),
known as (  -- the pick's own time is no better solution where another run, or another try of it, was faster
  select * exclude (own_us, contested) replace (if(best = pick, coalesce(own_us, best_us), best_us) as best_us),
         if(contested, own_us, null) as pick_us
  from settled),
timed as (
  select *, coalesce(traced_us, pick_us, if(unsettled, system_us, null), if(per_call_us > 0, held_us, null),
                     if(apart, null, best_us)) as time_us,
         greatest(f_us, b_us) as sibling_us,
         flops / nullif(bytes, 0) as intensity,
         case when pick_us > best_us * (1 + {_SAME}) then coalesce(traced_us, pick_us) * (1 - best_us / pick_us)
              when pick_us is not null then 0.0
              when unsettled then system_us - user_us
              when per_call_us is not null
              then least(per_call_us * coalesce(traced_us / nullif(held_us, 0), 1), traced_us) end as loss_us
  from known),
ran as (  -- W as it runs now, if a log names another solver than the fastest one of the file with F and B
  select * replace (if(other_w, time_us, w_us) as w_us, if(other_w, pick, w_solution) as w_solution)
  from (select *, called and pick <> w_solution and (pick_us is not null or best = pick) and time_us > 0
                  as other_w from timed)),
placed as (
  select t.*, coalesce(s.file, '–') as file, s.device,
         if(has_passes, if(passes_source is null, 'the trace',
            concat(if(other_w and s.file <> q.file, s.file || '; F and B from ', ''), q.file)), null) as passes_from,
         traced_us is not null or s.own as own,
         least(x.peak_tflops, t.intensity * s.hbm_gbs / 1e3) as roof_tflops
  from ran t left join places s using (source_id) left join places q on q.source_id = t.passes_source
  left join peaks x on x.device = s.device and x.dtype = t.dtype)
select id, problem, coalesce(label, left(problem, 80)) as label, kind, coalesce(operation, '?') as operation,
       coalesce(direction, '–') as direction,
       coalesce(type_name(dtype), '?') as dtype,
       coalesce(dtype, '?') as input_type,
       coalesce(nullif(split_part(case when contains(best, ':') then best when contains(pick, ':') then pick
                                       else '' end, ':', 1), ''), 'unknown') as library,
       coalesce(calls_from, '–') as calls_from, coalesce(origin, 'not measured') as origin,
       coalesce(nullif(layout, ''), '?') as layout,
       coalesce(best, 'not measured') as solver, file, calls, pick, pick_us, basis, best, best_us, time_us,
       case when pick_us is not null then time_us - loss_us
            when apart and time_us is null then best_us
            when best = pick and basis is distinct from 'incomparable' then time_us
            else least(best_us, time_us) end as then_us,
       coalesce(calls, 1) * time_us as total_us, loss_us,
       coalesce(if(pick_us is null, found_us, null), coalesce(calls, 1) * loss_us) as saving_us,
       case when unsettled then 'conditional' when saving_us is null then null
            else if(pick_us is null and not found_timed, 'estimated', 'measured') end as saving_from,
       case when saving_from = 'estimated'
            then nullif(greatest(time_us - saving_us / coalesce(calls, 1), 0), 0) end as aim_us, then_is,
       if(abs(pick_us / best_us - 1) < {_SAME}, 0.0, pick_us / best_us - 1) as regret, finding, advice,
       analyzer, action, coalesce(string_split(todos, '|'), []) as todos, proposed, solutions, failed, flops, bytes,
       intensity,
       flops / time_us / 1e6 as tflops, device,
       roof_tflops, flops / time_us / 1e6 / roof_tflops as efficiency,
       coalesce(own, true) as own, apart,
       coalesce(traced_us is null and pick_us is null and not unsettled and origin is distinct from 'trace'
                and coalesce(pick, 'Default') = 'Default' and best is distinct from 'Default'
                and time_us <= best_us * (1 + {_SAME}), false) as at_least, w_us,
       coalesce(w_solution, best)::varchar as w_solution, f_us, b_us,
       sibling_us, w_us / sibling_us as sibling_ratio,
       coalesce(calls, 1) * w_us as w_total_us,
       coalesce(calls, 1) * greatest(w_us - sibling_us, 0) as beyond_us, passes_from,
       source_id, measured, unit,
       null::double as here_us, null::double as other_us, null::double as change, null::double as change_us,
       null::varchar as moved,
       null::varchar as pick_here, null::varchar as pick_there, null::double as pick_here_us,
       null::double as pick_there_us
from placed
"""
