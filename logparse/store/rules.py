"""Rules that several verbs share, each stated here alone, as SQL over the store's views.

``top``, ``status``, ``diff`` and the page run them over views; evidence runs the same text over the frames of a run
(``analyzers.evidence.tables.reading``).  Of ``where`` each is limited to a run (``run = $run``); a connection of one
run, and its frames, need no limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.text import sql_text

LOGGED = ("miopen-chosen",)
"""Origins of measurements without a time in which a log names the solution that was taken."""

DEFAULTS = "select source_id, max(value) as solution from facts where name = 'pick' group by source_id"
"""SQL of the library's own choice in each source that names it (``source_id, solution``): a replay's fact ``pick``."""


def picks_sql(where: str = "true", origins: Sequence[str] = LOGGED) -> str:
    """SQL of the solutions that logs name (``source_id, problem, pick, count``), without lines of tools.

    Several categories of a log name the solution of one launch.  So per problem the category with the most picks
    counts, of equal ones the first by name.
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
    """SQL of each problem's most frequent pick (``problem, pick``), of equally frequent ones the first by text."""
    return f"""
        select problem, pick from ({picks_sql(where, origins)}) group by problem, pick
        qualify row_number() over (partition by problem order by sum(count) desc, pick) = 1"""


def counted_as_sql(links: str, picks: str) -> str:
    """SQL of the problems whose calls count as another problem's (``problem, other``).

    A log may name the pick for one text of a problem and count its calls for another.  So a problem without a pick
    counts as the one problem with a pick that is linked to it at its closest level; as none, if there are several.
    ``links`` and ``picks`` are names of tables; links of a problem to itself may be missing.
    """
    return f"""
        with near as (
            select l.problem, l.other, rank() over (
                partition by l.problem order by list_position(['exact', 'layout', 'shape'], l.level)) as place
            from {links} l semi join {picks} p on p.problem = l.other anti join {picks} q on q.problem = l.problem)
        select problem, any_value(other) as other from near where place = 1 group by problem
        having count(distinct other) = 1"""


def launches_sql(where: str = "true") -> str:
    """SQL of what traces hold of each problem (``problem, calls, total_us``), in µs.

    A call may launch several kernels.  Where no operator was counted, the largest count of a kernel of one operator in
    a trace is that of its calls.
    """
    return f"""
        select problem, coalesce(any_value(counted), sum(n)) as calls, fsum(us) as total_us from (
            select problem, max(calls) as n, fsum(total_us) as us from kernels
            where problem is not null and {where} group by problem, source_id, device, op, unit) left join (
            select problem, sum(count) as counted from calls where category = 'profiler' and {where} group by problem
        ) using (problem) group by problem"""


def traced_sql(where: str, counted_as: str) -> str:
    """SQL of the mean time of a call in the run's traces (``problem, traced_us``), in µs.

    ``counted_as`` is the name of a table of ``counted_as_sql``.
    """
    return f"""
        select coalesce(m.other, problem) as problem, sum(total_us) / sum(calls) as traced_us
        from ({launches_sql(where)}) left join {counted_as} m using (problem) group by 1"""
