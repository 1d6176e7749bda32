"""Find the time of one call of each operator (with sizes) in a run, separately for each kind of source.

A kind of source is, for example, a trace, a replay or a tuning file. Times of two kinds are never compared. A trace
contains the times of the job's own calls. A measured file contains times of several kernels. From it the time of one
kernel is used:

* the library's choice, if a log names it
* otherwise, in a replay, the default
* otherwise the kernel of the system find-db, if a user find-db has a faster one, and no log shows which file the job
  reads (``logparse/libraries/miopen/find_db_choice.py``). ``top`` and ``recommend`` take the same time
* otherwise the fastest kernel, because a tuner or a find-db makes the library use it

The module is SQL over stored tables or DataFrames. So the hundreds of thousands of operators do not become Python
objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from analyzers.evidence.origins import ACTION, CONFIRM, IS_EVIDENCE, RACE, TRACE, list_picked
from analyzers.evidence.tables import Tables, cached_per_run, query_frames
from logparse.lazy import duckdb, pd
from logparse.libraries.miopen import find_db_choice
from logparse.libraries.own.job_units import UNITS_EACH
from logparse.links import find_link_level
from logparse.model import DEFAULT, problem_from_text
from logparse.store import Store
from logparse.store.rules import DEFAULTS, launches_sql, main_picks_sql
from logparse.target import machine_of_files

NEAREST = (TRACE, CONFIRM, "driver", "bench", "tunableop-verbose", "miopen-log", "find-db", "tunableop", "tuning-file")
RANK = f"coalesce(list_position({list(NEAREST)}, basis), {len(NEAREST) + 1})"
"""SQL for the rank of a source of times, such as a trace or a tuning file.

The source nearest to the real job has rank 1. Sources that are not listed come last.
"""

COLUMNS = ("problem", "basis", "solution", "time_us", "noise")


@dataclass(frozen=True, eq=False)
class RunTimes:
    """The calls of a run and their times.

    ``rows`` has several rows per operator (with sizes), in no order, with the columns ``problem, named, calls, pick,
    solutions`` and ``COLUMNS``.

    * One row has the operator's number of ``calls``, its ``pick`` (the kernel that the logs name most often) and the
      number of ``solutions`` (kernels) that ran.
    * Another row for each kind of source (``basis``, for example a trace) has ``solution``, ``time_us`` and ``noise``.
      ``noise`` is the relative standard error of the time, null if it is unknown.
    * ``named`` is True if the run calls the operator or measures it. A replay does not make it True, because a replay
      also times variants that the job never calls.
    * ``calls`` is the number in the whole run. If only traces have the operator, their calls are scaled to the number
      of steps of the run.

    ``machine`` has facts about the run's machine.
    """

    run: str
    rows: pa.Table
    machine: Mapping[str, str]
    formats: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The formats of the run's files, each with its number of lines with calls and of lines with measurements."""
    processes: int = 0
    """The number of processes whose calls are logged. 0 means that no log names its process."""
    processes_of: Mapping[str, int] = field(default_factory=dict)
    """The number of processes by kind of their calls, such as ``gemm``. A kind whose logs name none is left out."""
    steps: float = 0.0
    """The number of steps to which ``calls`` belong, if only traces count them. 0 if a trace marks no steps."""


_RAN = "driver"
_SOLUTIONS = f"""
    select problem, max(n) as solutions from (
        select problem, count(distinct solution) as n from (
            select category, problem, solution from calls where solution is not null and not coalesce(by_tool, false)
            union all select origin, problem, solution from measurements where origin in {(*list_picked(), _RAN)})
        group by problem, category)
    group by problem"""
"""SQL for the number of different kernels with which the job ran each operator (with sizes).

The number is counted within one log, or within the runs of one tool. Kernels that were only tried in a search are not
counted.
"""
_CALLED = """
    select problem, true as named, cast(round(sum(calls * if(traced, each, 1))) as bigint) as calls from (
        select problem, calls, calls_from is not distinct from 'profiler' as traced from workload
        union all select problem, calls, true from launched anti join workload using (problem)), units_each
    group by problem"""
_NOISE = """
    case when len(samples_us) > 1 then 1.4826 * list_median(list_transform(
        samples_us, lambda x: abs(x / list_median(samples_us) - 1))) / sqrt(len(samples_us))
    else std_us / time_us end"""
"""SQL for the uncertainty of a time, as a relative standard error (0.01 means 1 %).

It is computed from the single samples if the file has them, otherwise from the standard deviation in the file.
"""
_OTHERS = f"kind = 'family' or exists (from workload) and origin in {(RACE, CONFIRM, ACTION)}"
_ROWS = f"""
    select problem, true as named, calls, pick, solutions, null as basis, null as solution, null as time_us,
           null as noise
    from called full join picks using (problem) full join solutions_run using (problem)
    union all by name
    select problem, {TRACE!r} as basis, string_agg(distinct kernel, ' + ' order by kernel) as solution,
           nullif(any_value(l.total_us / l.calls), 'nan') as time_us
    from kernels join launched l using (problem) group by problem
    union all by name
    select problem, named, basis, f.time_us as time_us, f.solution as solution, f.noise as noise from (
        select problem, if({IS_EVIDENCE}, origin, null) as basis,
               bool_or(({_OTHERS}) is distinct from true) as named, min({{
                   'rank': case when solution = pick then 0
                           when origin = '{CONFIRM}' and solution = coalesce(own, '{DEFAULT.text}') then 1 else 2 end,
                   'time_us': time_us, 'solution': solution, 'source_id': source_id,
                   'noise': nullif({_NOISE}, 'nan')}}) as f
        from (
            select * from (select * replace (coalesce(called_as, problem) as problem)
                           from measurements left join meant using (problem)
                           left join (select problem, system_id, system_solution from rivals) using (problem))
            left join picks using (problem) left join defaults using (source_id)
            where status = 'ok' and time_us > 0 and isfinite(time_us)
                  and (system_id is null or pick is not null or origin <> 'find-db'
                       or source_id = system_id and solution = system_solution)
            qualify called_as is null or pick is null
                    or bool_or(solution = pick) over (partition by problem, origin))
        group by problem, basis)"""
"""SQL of ``RunTimes.rows``.

If a time may not be used, it is left empty. Its row then only shows that the operator was measured. If the run calls
the operator by another text (``meant``), and a log names its kernel, only a file that times this kernel has a time.
If two find-dbs disagree (``rivals``) and no log names the kernel, the system find-db has the time.
"""
_STAGES = {
    "picks": main_picks_sql(origins=list_picked()),
    "solutions_run": _SOLUTIONS,
    "defaults": f"select source_id, solution as own from ({DEFAULTS})",
    "launched": launches_sql(),
    "called": _CALLED,
    "find_dbs": find_db_choice.FIND_DBS,
}
"""SQL for small intermediate tables, which ``_ROWS`` reads.

They are real tables, because DuckDB would plan a common table expression again wherever it is named, which takes
longer.
"""
_FORMATS = """
    select unnest(string_split(format, '+')) as name, cast(sum(call_lines) as bigint),
           cast(sum(measurement_lines) as bigint)
    from sources where format <> 'foreign' group by name order by name"""
_PROCESSES = "select count(distinct pid) from calls where by_tool is distinct from true"
_PROCESSES_OF = """
    select split_part(problem, ' ', 1), count(distinct pid) as n from calls
    where by_tool is distinct from true group by 1 having n > 0 order by 1"""
_TRACED_STEPS = """
    select (select sum(try_cast(value as double)) from facts where name = 'profiler_steps')
           * (select each from units_each)
    where (select bool_and(calls_from is not distinct from 'profiler') from workload)
      and not exists (from calls where category = 'profiler' and source_id not in (
              select source_id from facts where name = 'profiler_steps'))"""
_BATCH = 1 << 16
"""The number of rows in a batch of data for DuckDB, which reads each batch in one thread. Its default is a million."""


def times_of_run(store: Store, run: str | None = None) -> RunTimes:
    """Return the calls of a stored run and their times. By default the latest run is read.

    Raises StoreError if there is no such run.
    """
    run = store.latest_run(run)
    with store.reading(" ".join([*_STAGES.values(), find_db_choice.RIVALS, _ROWS, _FORMATS]), run) as con:
        con.execute(f"create temp table units_each as {UNITS_EACH}", {"run": run})
        return _times(con, run)


@cached_per_run
def times_of(tables: Tables) -> RunTimes:
    frames = {name: getattr(tables, name) for name in _READ}
    own = {name: frame[frame["run"] == tables.run] if "run" in frame else frame for name, frame in frames.items()}
    with query_frames(own, _READ) as con:
        # The factor is 1, because the tables' calls are weighed already if their caller wants that.
        con.execute("create temp table units_each as select 1 as each")
        return _times(con, tables.run)


_READ = {
    "sources": "format text, call_lines int, measurement_lines int",
    "calls": "source_id text, category text, problem text, solution text, count float, by_tool bool, pid int",
    "workload": "problem text, calls_from text, calls float",
    "measurements": "source_id text, origin text, kind text, problem text, solution text, status text, time_us float, "
    "std_us float, samples_us floats, evidence bool",
    "kernels": "source_id text, device float, op text, unit text, problem text, kernel text, calls float, "
    "total_us float",
    "facts": "source_id text, name text, value text",
}
"""The columns of each stored table that this module needs. Other columns are not read, to save time."""


def _times(con: duckdb.DuckDBPyConnection, run: str) -> RunTimes:
    for name, sql in _STAGES.items():
        con.execute(f"create temp table {name} as {sql}")
    meant = _meant(con)
    con.execute("create temp table meant (problem text, called_as text)")
    if meant:
        con.executemany("insert into meant values (?, ?)", [*meant.items()])
    con.execute(f"create temp table rivals as {find_db_choice.chosen_rivals_sql(con)}")
    rows = con.sql(_ROWS).to_arrow_table(_BATCH)
    machine = machine_of_files(con.execute("select source_id, name, value from facts").fetchall())
    formats = {name: (calls or 0, times or 0) for name, calls, times in con.execute(_FORMATS).fetchall()}
    ((processes,),) = con.execute(_PROCESSES).fetchall()
    processes_of = dict(con.execute(_PROCESSES_OF).fetchall())
    steps = next((float(x or 0.0) for (x,) in con.execute(_TRACED_STEPS).fetchall()), 0.0)
    return RunTimes(run, rows, machine, formats, processes, processes_of, steps)


_SIZES = r"mnk=\S+|in=\S+ k=\S+ filter=\S+"
_MEANT = f"""
    with wanted as (select problem, regexp_extract(problem, '{_SIZES}') as sizes from called where calls is not null),
    measured as (
        select distinct problem, origin, regexp_extract(problem, '{_SIZES}') as sizes from measurements
        where status = 'ok' and problem not in (select problem from called))
    select m.problem, m.origin, w.problem from measured m join wanted w using (sizes) where sizes <> '' limit $most"""
_MOST_PAIRS = 20_000


def _meant(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Find operators that the run's logs call by another text than a measured file. Maps the file's text to the log's.

    For example, the output of hipblaslt-bench does not state all fields of a line of the job's log. Two texts are one
    operator if their memory layouts are equal and no field that both state differs, and if no other text is possible.
    Runs with more than ``_MOST_PAIRS`` pairs of equal sizes are left as they are, because texts are compared in Python.
    """
    pairs = con.execute(_MEANT, {"most": _MOST_PAIRS + 1}).fetchall()
    if len(pairs) > _MOST_PAIRS:
        return {}
    parsed = {text: problem_from_text(text) for text in {x for one, _, other in pairs for x in (one, other)}}
    possible: dict[str, dict[str, str]] = {}
    for one, _, other in pairs:
        if (level := find_link_level(parsed[one], parsed[other])) is not None:
            possible.setdefault(one, {})[other] = level
    sure = {one: next(iter(found)) for one, found in possible.items() if [*found.values()] in (["layout"], ["exact"])}
    # If a file has several texts for one call, none of them is known to be the call.
    of = {(one, origin) for one, origin, _ in pairs if one in sure}
    texts = Counter((origin, sure[one]) for one, origin in of)
    rivals = {one for one, origin in of if texts[origin, sure[one]] > 1}
    return {one: called for one, called in sure.items() if one not in rivals}


def timings(tables: Tables) -> pd.DataFrame:
    """Return the times of a run's operators (with sizes): one time for each kind of file, such as a trace.

    The table has the columns ``COLUMNS``.
    """
    frame: pd.DataFrame = times_of(tables).rows.select(list(COLUMNS)).to_pandas()
    return frame[frame["basis"].notna()].reset_index(drop=True)


def main_pick(tables: Tables) -> dict[str, str]:
    """Return for each operator (with sizes) the kernel that the run's logs name most often."""
    rows = times_of(tables).rows.select(["problem", "pick"]).drop_null()
    return dict(zip(rows["problem"].to_pylist(), rows["pick"].to_pylist(), strict=True))


def kernels_of(tables: Tables) -> dict[str, str]:
    """Return which kernels the calls of each operator (with sizes) launched in the traces.

    The names of an operator's kernels are joined into one text.
    """
    rows = timings(tables).query("basis == @TRACE")
    return dict(zip(rows["problem"], rows["solution"], strict=True))
