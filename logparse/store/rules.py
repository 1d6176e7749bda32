"""Rules that several verbs share, as SQL over the store's views.  Each rule is defined only here.

``top``, ``status``, ``diff`` and the page run the SQL over the views.  Evidence runs the same text over the frames of a
run (``analyzers.evidence.tables.reading``).  The argument ``where`` limits a rule to a run (``run = $run``).  It is not
needed if a connection or the frames hold only one run.
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.text import sql_text

LOGGED = ("miopen-chosen",)
"""Origins of measurements without a time, in which a log names the solution that the library chose."""

DEFAULTS = "select source_id, max(value) as solution from facts where name = 'pick' group by source_id"
"""SQL of the pick (the solution that the library's heuristic chose) per source (``source_id, solution``).

A replay names the pick in its fact ``pick``.
"""


def picks_sql(where: str = "true", origins: Sequence[str] = LOGGED) -> str:
    """Return SQL of the solutions that logs name (``source_id, problem, pick, count``).  Lines of tools are left out.

    Several categories of a log may name the solution of the same launch.  So for each problem only the category with
    the most picks counts.  If several categories have the most picks, the first by name counts.
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
    """Return SQL of each problem's most frequent pick (``problem, pick``).

    If several picks are equally frequent, the first by text counts.
    """
    return f"""
        select problem, pick from ({picks_sql(where, origins)}) group by problem, pick
        qualify row_number() over (partition by problem order by sum(count) desc, pick) = 1"""


def counted_as_sql(links: str, picks: str) -> str:
    """Return SQL of the problems whose calls count as another problem's calls (``problem, other``).

    A log may name the pick for one text of a problem and count the calls for another text.  So the calls of a problem
    without a pick count as calls of a problem with a pick: the one that is linked to it at the closest level.  If
    several problems with a pick are linked at the closest level, the calls count as none of theirs.  ``links`` and
    ``picks`` are names of tables.  The table of links need not link a problem to itself.
    """
    return f"""
        with near as (
            select l.problem, l.other, rank() over (
                partition by l.problem order by list_position(['exact', 'layout', 'shape'], l.level)) as place
            from {links} l semi join {picks} p on p.problem = l.other anti join {picks} q on q.problem = l.problem)
        select problem, any_value(other) as other from near where place = 1 group by problem
        having count(distinct other) = 1"""


def launches_sql(where: str = "true") -> str:
    """Return SQL of the calls and kernel times of each problem in traces (``problem, calls, total_us``), in µs.

    A call may launch several kernels.  If the calls of the operator were not counted, the launches of kernels are
    counted.  The number of calls is then the largest number of launches of one kernel of one operator in a trace.
    """
    return f"""
        select problem, coalesce(any_value(counted), sum(n)) as calls, fsum(us) as total_us from (
            select problem, max(calls) as n, fsum(total_us) as us from kernels
            where problem is not null and {where} group by problem, source_id, device, op, unit) left join (
            select problem, sum(count) as counted from calls where category = 'profiler' and {where} group by problem
        ) using (problem) group by problem"""


def traced_sql(where: str, counted_as: str) -> str:
    """Return SQL of the mean time of a call in the run's traces (``problem, traced_us``), in µs.

    ``counted_as`` is the name of a table made by ``counted_as_sql``.
    """
    return f"""
        select coalesce(m.other, problem) as problem, sum(total_us) / sum(calls) as traced_us
        from ({launches_sql(where)}) left join {counted_as} m using (problem) group by 1"""
