"""SQL that defines the store's views."""

from __future__ import annotations

import re
from collections.abc import Mapping

from logparse.libraries.kinds.format import UNITS
from logparse.links import links_sql
from logparse.store.schema import SCHEMAS
from logparse.text import sql_text

CONV_SHAPE = (
    "'conv ' || direction || ' ' || n || 'x' || c || 'x' || d || 'x' || h || 'x' || w || 'x' || k || 'x' || filter_d"
    " || 'x' || filter_h || 'x' || filter_w || ' g' || groups || ' ' || in_type"
)
"""SQL expression for the short text of a convolution (``ConvProblem.shape``), made from its sizes and type.

It is null if a size or the type is unknown. It is not stored, because other columns hold all of it.
"""


def conv_problems_sql(rows: str) -> str:
    """Return SQL that lists each different convolution in some rows, with the columns of the view ``conv_problems``.

    ``rows`` is SQL that selects the rows from ``conv_rows``.
    """
    columns = ", ".join(f"any_value({name}) as {name}" for name in SCHEMAS["convs"].names[2:])
    return conv_columns_sql(f"select problem, {columns} from ({rows}) group by problem")


def conv_columns_sql(rows: str) -> str:
    """Return SQL that computes the columns of the view ``conv_problems`` for rows of the table ``convs``.

    ``rows`` is SQL that selects the rows. The result has one row for each of them.
    """
    return f"""
        select problem, {CONV_SHAPE} as shape, substr(problem, 7 + length(direction)) as layer,
               * exclude (problem), case when in_layout = weights_layout and in_layout = out_layout then in_layout
                       else concat_ws('-', in_layout, weights_layout, out_layout) end as layout,
               case when in_type = weights_type and in_type = out_type then in_type
                    else concat_ws('-', in_type, weights_type, out_type) end as dtype
        from ({rows})"""


_UNITS = ", ".join(f"cast(sum({unit}_lines) as bigint) as {unit}_lines" for unit in UNITS)
_JOINED = "select s.source_id, s.run, t.* exclude (attempt) from {t}_ t join commits_ s using (attempt)"
_GEMM_COLUMNS = ", ".join(f"any_value({name}) as {name}" for name in SCHEMAS["gemms"].names[2:])
_ROWS = "select t.* exclude (attempt){more} from {t}_ t join commits_ using (attempt)"

_VIEWS = {
    "sources": f"""
        select source_id, any_value(run) as run, any_value(path) as path,
               coalesce(array_to_string(list_sort(list_distinct(flatten(
                   list(string_split(replace(format, '_', '-'), '+')) filter (format <> 'foreign')
               ))), '+'), 'foreign') as format,
               cast(sum(bytes) as bigint) as bytes, cast(sum(lines) as bigint) as lines,
               cast(sum(splits) as bigint) as splits, {_UNITS}, arg_max(pid, "end") as pid,
               arg_max(pid_from, "end") as pid_from, arg_max(ended, committed_at) as ended,
               min(committed_at) as ingested_at, sum(seconds) as seconds, bool_or(job_log) as job_log,
               any_value(copy_of) as copy_of
        from sources_ left join copies_ using (source_id) group by source_id""",
    "calls": """
        select s.source_id, s.run, t.category, t.kind, t.problem, coalesce(t.pid, s.pid) as pid, t.device,
               t.first_seen, t.last_seen, t.solution, cast(sum(t.count) as bigint) as count,
               t.by_tool or (t.category = 'bench' and s.bench_output) as by_tool, t.workspace_bytes
        from calls_ t join commits_ s using (attempt) group by all""",
    "workload": """
        with per as (
            select run, pid, kind, kind = 'conv' as conv, category, by_tool, problem,
                   cast(sum(count) as bigint) as calls
            from calls where not by_tool or source_id in (
                select source_id from commits_ group by source_id having sum(measurement_lines) = 0)
            group by all),
        logged as (select distinct run, conv from per where not by_tool),
        best as (
            select run, pid, conv, category, by_tool from per
            where not by_tool or (run, conv) not in (select (run, conv) from logged)
            group by run, pid, conv, category, by_tool
            qualify row_number() over (
                partition by run, pid, conv order by sum(calls) desc nulls last, category) = 1)
        select per.run, per.pid, per.kind, per.problem, per.calls, per.category as calls_from
        from per join best on per.run = best.run and per.pid is not distinct from best.pid and per.conv = best.conv
                          and per.category = best.category and per.by_tool = best.by_tool""",
    "process_messages": """
        select s.source_id, s.run, t.category, coalesce(t.pid, s.pid) as pid, t.function, t.text,
               cast(sum(t.count) as bigint) as count, min(t."offset") as "offset"
        from messages_ t join commits_ s using (attempt) group by all""",
    "messages": """
        select source_id, run, category, function, text, cast(sum(count) as bigint) as count,
               min("offset") as offset_bytes, min("offset") as "offset" from process_messages group by all""",
    "gemm_problems": f"select problem, {_GEMM_COLUMNS} from gemms_ join commits_ using (attempt) group by problem",
    "conv_problems": conv_problems_sql("select t.* from convs_ t join commits_ using (attempt)"),
    "gemm_rows": _ROWS.format(t="gemms", more=""),
    "conv_rows": _ROWS.format(t="convs", more=f", {CONV_SHAPE} as shape"),
    **links_sql("gemm_rows", "conv_rows"),
    "measurements": """
        select s.source_id, s.run, t.* exclude (attempt), list_contains(s.evidence, t.origin) as evidence,
               list_contains(s.winners, t.origin) as winner
        from measurements_ t join commits_ s using (attempt)""",
    "solutions": """
        select distinct t.library, b.build, t.solution, t.name, t.kernel_name,
               (select any_value(m.algorithm) from measurements_ m where m.solution = t.solution) as algorithm
        from solutions_ t join commits_ s using (attempt) left join (
            select source_id, string_agg(value, ' ' order by name, value) as build from (
                select distinct s.source_id, t.name, t.value from facts_ t join commits_ s using (attempt)
                where t.name in ('hipblaslt_version', 'hipblaslt_revision'))
            group by source_id) b on s.source_id = b.source_id""",
    "kernels": f"""
        with same as (
            select distinct s.source_id, s.run, left(t.value, 1) as place,
                   regexp_replace(s.path, '[^/]*$', '') || substr(t.value, 3) as process
            from facts_ t join commits_ s using (attempt) where t.name = 'kernels_of')
        select * from ({_JOINED.format(t="kernels")}) where source_id not in (
            select o.source_id from same o join same b using (run, process) where b.place < o.place)""",
    "collectives": _JOINED.format(t="collectives"),
    "timelines": _JOINED.format(t="timelines"),
    "facts": "select distinct s.source_id, s.run, t.name, t.value from facts_ t join commits_ s using (attempt)",
    "rejects": """
        select s.source_id, s.path, s.run, min(t."offset") as offset_bytes, min(t."offset") as "offset",
               arg_min(t.length, t."offset") as length,
               cast(sum(t.count) as bigint) as count, t.reason, arg_min(t.text, t."offset") as text
        from rejects_ t join commits_ s using (attempt)
        group by s.source_id, s.path, s.run, t.reason, coalesce(t.line, t."offset")""",
}
"""SQL of each view except ``findings``. A view comes after the views that it uses."""


def view_sql(run: str | None) -> dict[str, str]:
    """Return the SQL of each view by its name. A view is listed after the views that it uses.

    Only the view ``findings`` is limited to ``run`` here, because the tables of the other views hold only that run.
    """
    return _VIEWS | {"findings": "select * from findings_" + (f" where run = {sql_text(run)}" if run else "")}


def named_in(sql: str, views: Mapping[str, str]) -> dict[str, str]:
    """Return only the ``views`` that a query needs: the views that it names, and the views that these views use.

    The order of ``views`` stays. Returns all views if the query names none.
    """
    words = set(re.findall(r"\w+", sql.lower()))
    for view in reversed(list(views)):
        if view in words:
            words.update(re.findall(r"\w+", views[view].lower()))
    return {view: text for view, text in views.items() if view in words} or dict(views)
