"""SQL rules that several commands use. A rule is SQL text over the store's views, and is defined only here.

``top``, ``status``,
``diff`` and the web page run the SQL over the views. ``analyzers.evidence.tables.query_frames`` runs
the same text over the DataFrames of a run. The argument ``where`` limits a rule to a run (``run = $run``). The argument
is not needed if a connection or the DataFrames hold only one run.
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.text import sql_text

LOGGED = ("miopen-chosen",)
"""Kinds of measurements without a time. They only say which kernel the library chose, because a log names it."""

DEFAULTS = "select source_id, max(value) as solution from facts where name = 'pick' group by source_id"
"""SQL that lists the kernel that the library chose by itself in each replay (``source_id, solution``).

A replay times the calls of a job again. The replay stores the library's choice as the fact ``pick``.
"""


def picks_sql(where: str = "true", origins: Sequence[str] = LOGGED) -> str:
    """Return SQL that lists the kernels that the library chose, according to the logs.

    The columns are ``source_id, problem, pick, count``. A problem is a GEMM or convolution, and ``pick`` is the kernel
    that the library chose for it. Commands of tools in the logs are left out. Several categories of log lines may state
    the same choice. So for each problem only the category with the most choices is used, and the first by name if
    several have equally many.
    """
    return f"""
        with named as (
            select source_id, category, problem, solution, coalesce(count, 1) as n from calls
            where solution is not null and not coalesce(by_tool, false) and {where}
            union all select source_id, origin, problem, solution, 1 from measurements
            where origin in ({", ".join(map(sql_text, origins))}) and {where}),
        logged as (
            select problem, category from named group by problem, category
            qualify row_number() over (partition by problem order by sum(n) desc, category) = 1)
        select source_id, problem, solution as pick, cast(sum(n) as double) as count
        from named join logged using (problem, category) group by source_id, problem, solution"""


def main_picks_sql(where: str = "true", origins: Sequence[str] = LOGGED) -> str:
    """Return SQL that lists the kernel that the library chose most often for each GEMM or convolution.

    The columns are ``problem, pick``. If several kernels were chosen equally often, the first by text is used.
    """
    return f"""
        select problem, pick from ({picks_sql(where, origins)}) group by problem, pick
        qualify row_number() over (partition by problem order by sum(count) desc, pick) = 1"""


def counted_as_sql(links: str, picks: str) -> str:
    """Return SQL that lists which matrix products and convolutions in the logs are probably the same call.

    The columns are ``problem`` and ``other``. A log may state the library's choice for one form of a problem (a GEMM or
    convolution), and count the calls in another form. So the calls of a problem without a stated choice are added to
    the problem with a stated choice that resembles it most. If several resemble it equally, the calls are added to
    none.

    ``links`` and ``picks`` are names of tables: similar problems, and the library's choices. The table of links need
    not link a problem to itself.
    """
    return f"""
        with near as (
            select l.problem, l.other, rank() over (
                partition by l.problem order by list_position(['exact', 'layout', 'shape'], l.level)) as place
            from {links} l semi join {picks} p on p.problem = l.other anti join {picks} q on q.problem = l.problem)
        select problem, any_value(other) as other from near where place = 1 group by problem
        having count(distinct other) = 1"""


def launches_sql(where: str = "true") -> str:
    """Return SQL that lists how often each GEMM and convolution was called in the traces, and the time of its kernels.

    The columns are ``problem, calls, total_us`` (microseconds). A trace shows the calls of operators and the kernels
    that they launched. If the calls of an operator were not counted, their number is estimated: a call may launch
    several kernels, so it is the largest number of launches of one kernel of one operator in a trace.
    """
    return f"""
        select problem, coalesce(any_value(counted), sum(n)) as calls, fsum(us) as total_us from (
            select problem, max(calls) as n, fsum(total_us) as us from kernels
            where problem is not null and {where} group by problem, source_id, device, op, unit) left join (
            select problem, sum(count) as counted from calls where category = 'profiler' and {where} group by problem
        ) using (problem) group by problem"""


def traced_sql(where: str, counted_as: str) -> str:
    """Return SQL that lists the mean time of a call of each matrix product and convolution, from the traces of a job.

    The columns are ``problem, traced_us`` (microseconds). ``counted_as`` is a table made by ``counted_as_sql``.
    """
    # The logs may name a product or convolution differently from the trace. ``counted_as`` has both names, and the time
    # is listed under the name in the logs.
    return f"""
        select coalesce(m.other, problem) as problem, sum(total_us) / sum(calls) as traced_us
        from ({launches_sql(where)}) left join {counted_as} m using (problem) group by 1"""
