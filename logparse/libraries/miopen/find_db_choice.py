"""Decide what a convolution takes now if two find-dbs name different solvers, and no log shows which one the job reads.

MIOpen comes with a *system* find-db, a database of the fastest solvers. Its own search writes a *user* find-db. If the
user find-db has a convolution, MIOpen does not look at the system find-db (``find_db``). MIOpen ignores a user find-db
of another folder (``MIOPEN_USER_DB_PATH``) or build without a message. So a run with both files may use either one.

The rule is: the time now is the time of the solver that the **system** find-db picks. The saving is stated with the
condition ``ASSUMES``. The rule is used for backward weights (W) that ``slow-wrw`` reports: slow in the system find-db,
and faster with another solver in a user find-db of the same device. It is not used if a log names the solver, or if a
trace or a replay times the call.

``top``, ``show``, the analyzers and the web page read this rule from here. It is SQL text, because ``top`` and the page
run it over millions of rows.
"""

from __future__ import annotations

from logparse.lazy import duckdb

SLOW_FACTOR = 3.0
"""Backward weights (W) are slow if they take more than this many times as long as the slower of F and B."""
SLOW_FLOOR_MS = 0.05
"""Backward weights (W) that take less than this (ms) are not slow."""
TIE = 1e-9
"""Relative difference up to which two times are equal."""
ASSUMES = "the job does not read its user find-db yet"
"""The condition under which a user find-db saves time."""
SETTLED_BY = "MIOPEN_LOG_LEVEL=5"
"""The setting with which MIOpen's log names the solver of each call, and so shows which find-db the job reads.

The lines are ``Chosen Algorithm: <solver> , …`` (Find) and ``[ConvolutionWrwImmediate] solver_id = <solver>, …``
(immediate mode). Source: ROCm/MIOpen ``src/ocl/convolutionocl.cpp``, ``src/convolution_api.cpp``.
"""
FIND_DBS = """
    select source_id, max(value) filter (name = 'find_db') as find_db,
           max(split_part(value, ':', 1)) filter (name = 'arch') as arch,
           max(value) filter (name = 'cu_count') as cu_count
    from facts where name in ('find_db', 'arch', 'cu_count') group by source_id having find_db is not null"""
"""SQL over ``facts`` that lists the find-dbs (``source_id, find_db, arch, cu_count``).

``find_db`` is ``system`` or ``user``.
"""
_HAS_BOTH = "select count(distinct find_db) > 1 from find_dbs where find_db in ('system', 'user')"
_OF_USERS = """
    origin = 'find-db' and source_id in (select source_id from find_dbs) and hash(problem[8:]) in (
        select hash(problem[8:]) from measurements
        where source_id in (select source_id from find_dbs where find_db = 'user'))"""


def passes_sql(where: str) -> str:
    """Return SQL for the best times of the three passes of each convolution layer: F, B and W.

    There is one row for each file and W. The text of a convolution is ``conv``, the direction (F, B or W), and then the
    layer, which is hashed, because the texts are long. Columns, with times in µs:

    * ``source_id``: the file.
    * ``problem, problem_hash``: the text of W and its hash.
    * ``best_us, solution``: the fastest solver. Of equal times, the name that sorts first is used.
    * ``naive``: True if the fastest solver is one of MIOpen's naive ones.
    * ``f_us``, ``b_us``: best times of F and B of the layer. Missing if the file has none.

    ``where`` limits the rows of the view ``measurements``.
    """
    return f"""
    with timed as (
        select source_id, problem, solution, time_us, problem[6:7] as pass, hash(problem[8:]) as layer
        from measurements
        where status = 'ok' and time_us > 0 and isfinite(time_us) and kind = 'conv'
            and {where}),
    siblings as (
        select source_id, layer, min(time_us) filter (pass = 'F ') as f_us, min(time_us) filter (pass = 'B ') as b_us
        from timed where pass in ('F ', 'B ') group by all),
    w as (
        select source_id, layer, any_value(problem) as problem, min({{'us': time_us, 'solution': solution}}) as best
        from timed where pass = 'W ' group by all)
    select source_id, problem, hash(problem) as problem_hash, best.us as best_us, best.solution as solution,
        contains(lower(best.solution), 'naive') as naive, f_us, b_us
    from w left join siblings using (source_id, layer)"""


def rivals_sql(passes: str, slow: str) -> str:
    """Return SQL that lists backward weights (W) for which a system and a user find-db pick different solvers.

    W is slow in the system find-db, and the user find-db of the same device has a faster solver. There is one row for
    each W, with the fastest user record. Columns: ``problem, system_id, system_solution, system_us, user_id,
    user_solution, user_us`` (µs).

    * ``passes``: a table with the columns of ``passes_sql``.
    * ``slow``: an SQL condition over a row of it.

    The tables ``passes`` and ``find_dbs`` (``FIND_DBS``) must exist.
    """
    return f"""
        select s.problem, s.source_id as system_id, s.solution as system_solution, s.best_us as system_us,
               u.source_id as user_id, u.solution as user_solution, u.best_us as user_us
        from (from {passes} semi join (from find_dbs where find_db = 'system') using (source_id) where {slow}) s
        join find_dbs a on a.source_id = s.source_id
        join {passes} u on u.problem = s.problem and u.best_us < s.best_us and u.solution <> s.solution
        join find_dbs b on b.source_id = u.source_id and b.find_db = 'user' and b.arch = a.arch
            and coalesce(b.cu_count = a.cu_count, true)
        qualify row_number() over (partition by s.problem order by u.best_us, u.source_id, s.source_id) = 1"""


_SLOW = (
    f"best_us > {SLOW_FACTOR * (1 + TIE)!r} * greatest(f_us, b_us) and best_us > {SLOW_FLOOR_MS * 1e3 * (1 + TIE)!r}"
)
RIVALS = f"with passes as materialized ({passes_sql(_OF_USERS)}) {rivals_sql('passes', _SLOW)}"
"""SQL over ``measurements`` and the table ``find_dbs`` with the columns of ``rivals_sql``."""
_NO_RIVALS = """
    select null::varchar as problem, null::varchar as system_id, null::varchar as system_solution,
           null::double as system_us, null::varchar as user_id, null::varchar as user_solution,
           null::double as user_us where false"""
"""SQL for an empty table with the columns of ``RIVALS``, for stores without both kinds of find-dbs."""


def chosen_rivals_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return ``RIVALS``, or SQL for an empty table if the table ``find_dbs`` has no find-dbs of both kinds."""
    ((both,),) = con.execute(_HAS_BOTH).fetchall()
    return RIVALS if both else _NO_RIVALS
