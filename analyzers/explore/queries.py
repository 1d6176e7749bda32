"""SQL queries for the charts of the web page, with the user's filters.

They read the table ``points``, one row per GEMM or convolution (``point_table.build``,
or ``open_points`` for a DataFrame).
Every answer is a small DataFrame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from analyzers.explore.selection import FACETS, Selection
from logparse.lazy import duckdb, pd
from logparse.libraries.torch_profiler import places

DRAWN = 2_000
"""Largest number of points in one chart.

More points could not be distinguished, and the browser would take longer than 300 ms.
"""
ORDER = "saving_us desc nulls last, total_us desc nulls last, calls desc nulls last, id"
"""SQL for the order of the rows in the web page's table, if the user chose no order."""
_REPICKED = "coalesce(moved = 'other pick', false) desc"
MOVED = f"abs(change_us) desc nulls last, {_REPICKED}, {ORDER}"
"""SQL for the order of the rows in the web page's table, if two runs are compared.

The largest change of (time × calls) is first. GEMMs and convolutions for which the library chose another kernel follow.
"""
BEYOND = f"beyond_us desc nulls last, w_total_us desc nulls last, {ORDER}"
"""SQL for the order of the rows on the tab Backward weights, if the user chose no order."""


class Order(NamedTuple):
    """The order of the table's rows on a tab, if the user chose no order.

    * ``by``, ``where``: SQL for the order and for the rows listed.
    * ``column``: shows the order.
    * ``first``: what the first rows have, as text.
    """

    by: str
    column: str
    first: str
    where: str = "true"


def order_of(view: str, *, compared: bool, empty: Collection[str]) -> Order:
    """Return the order of the table's rows on the tab ``view``.

    ``compared`` is True if another run is compared. ``empty`` are the columns without any value, or with zeros only.
    """
    if view == "weights":
        return Order(
            BEYOND,
            "beyond_us",
            "the largest excess of W over the slower of F and B",
            "direction = 'W'",
        )
    if view == "compare" and compared:
        return Order(MOVED, "moved" if "change_us" in empty else "change_us", "the largest change")
    if "saving_us" in empty:
        return Order(f"total_us desc nulls last, {ORDER}", "total_us", "the most time")
    return _BY_SAVING


def find_zero_columns(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the columns of amounts in which no row has a value other than 0. An order by them has no meaning."""
    names = ("saving_us", "change_us")
    found = con.execute(f"select {', '.join(f'bool_or({x} <> 0)' for x in names)} from points").fetchall()[0]
    return frozenset(name for name, some in zip(names, found, strict=True) if not some)


_BY_SAVING = Order(ORDER, "saving_us", "the largest saving")


FIRST_ROWS = 100
"""Number of table rows that the browser requests at once."""

TABLE: Mapping[str, str] = {
    "label": "Problem",
    "saving_us": "Could save (ms)",
    "total_us": "Total time (ms)",
    "calls": "Calls",
    "time_us": "Now (µs)",
    "then_us": "Best (µs)",
    "best": "Best known",
    "pick": "Pick",
    "action": "Action",
    "saving_from": "Saving is",
    "moved": "What changed",
    "change_us": "Calls × change (ms)",
    "change": "Change (%)",
    "other_us": "Compared run (µs)",
    "here_us": "This run (µs)",
    "pick_there": "Pick, compared run",
    "pick_here": "Pick, this run",
    "pick_there_us": "Compared run's pick (µs)",
    "pick_here_us": "This run's pick (µs)",
    "regret": "Regret (%)",
    "beyond_us": "Lost by W (ms)",
    "sibling_ratio": "W ÷ max(F, B)",
    "w_total_us": "Calls × W (ms)",
    "w_us": "W (µs)",
    "f_us": "F (µs)",
    "b_us": "B (µs)",
    "passes_from": "W, F, B from",
    "tflops": "TFLOP/s",
    "efficiency": "Of roofline (%)",
    "solutions": "Solutions",
    "operation": "Operation",
    "direction": "Direction",
    "dtype": "Type",
    "layout": "Layout",
    "device": "Device",
    "file": "File",
    "finding": "Finding",
}
"""Columns of the web page's table with their titles. ``SCALED`` has the factors for the units in the titles."""
SHOWN_AS: Mapping[str, str] = {
    "saving_us": "Kernel time to save",
    "then_us": "Then",
    "other_us": "Earlier run",
    "here_us": "Later run",
    "pick_there": "Pick, earlier run",
    "pick_here": "Pick, later run",
    "pick_there_us": "Earlier run's pick",
    "pick_here_us": "Later run's pick",
}
"""Titles of columns on the page, if they differ from the titles in ``TABLE``. The CSV has the titles of ``TABLE``."""
ABOUT: Mapping[str, str] = {
    "label": "A GEMM or a convolution with all its sizes.",
    "saving_us": "Calls × (now − then): what its kernels alone could save. ≈ estimates a kernel that is faster than "
    "the best known one. Empty means unknown. A step that waits for something else gains less.",
    "total_us": "Calls × time of a call. ≥: as in the time of a call.",
    "calls": "How often the logs or traces count it.",
    "time_us": "Time of a call as it runs now. ≥: no log names the solution that ran, and this is the time of the best "
    "known one. The solution that ran takes at least this time if it is among the timed ones.",
    "then_us": "Time of a call after the change: with the fastest known solution. ≈: no known solution is that fast, "
    "but the estimated saving assumes this time.",
    "best": "The fastest solution that any file has timed.",
    "pick": "The solution that the job ran, if a log names it.",
    "action": "The first thing to do about it.",
    "saving_from": "Measured: both times (now and then) were measured. Estimated: one of them was estimated.",
    "moved": "What changed from the earlier run to the later one: slower, faster, another choice of the library …",
    "change_us": "Calls × (time in the later run − time in the earlier run). If the runs' times cannot be compared, "
    "it is the difference of the times of their two solutions. Negative: faster.",
    "change": "Time of a call in the later run ÷ its time in the earlier run, minus 100%.",
    "other_us": "Time of a call in the earlier run.",
    "here_us": "Time of a call in the later run.",
    "pick_there": "The solution that the earlier run used.",
    "pick_here": "The solution that the later run used.",
    "pick_there_us": "Time of the solution that the earlier run used. The solutions of both runs were timed alone, in "
    "the same file.",
    "pick_here_us": "Time of the solution that the later run used. The solutions of both runs were timed alone, in the "
    "same file.",
    "regret": "How much longer the library's choice takes than the fastest known solution.",
    "beyond_us": "Calls × (time of backward weights − time of forward or backward data, the slower one). The three "
    "passes do the same work, so this estimates what a faster solver of W saves (≈).",
    "sibling_ratio": "Time of backward weights ÷ time of the layer's forward or backward data, the slower one. "
    "About 1 is usual.",
    "w_total_us": "Calls × time of the backward-weight pass.",
    "w_us": "Time of the backward-weight pass (wgrad). ≥: no log names the solver that ran, and this is the best time "
    "of the file.",
    "f_us": "Time of the forward pass of the same layer.",
    "b_us": "Time of the backward-data pass (dgrad) of the same layer.",
    "passes_from": "The file with the times of the three passes.",
    "tflops": "Rate (TFLOP/s) of a call as it runs now.",
    "efficiency": "Rate ÷ what the device's peak rate and memory bandwidth allow.",
    "solutions": "How many solutions have a time.",
    "operation": "GEMM, grouped GEMM or convolution.",
    "direction": "F: forward, B: backward data (dgrad), W: backward weights (wgrad).",
    "dtype": "Type of the inputs.",
    "layout": "Memory layout of the tensors; for GEMMs which inputs are transposed (T) or not (N).",
    "device": "The device on which it was timed.",
    "file": "The file with its time.",
    "finding": "What an analyzer found about it.",
}
"""The meaning of each column of the table, for its tooltip."""
PRESETS: Mapping[str, Sequence[str]] = {
    "What to do": ("saving_us", "total_us", "calls", "time_us", "then_us", "action", "device"),
    "Times": ("total_us", "calls", "time_us", "then_us", "regret", "sibling_ratio", "tflops", "efficiency", "device"),
    "Solutions": ("saving_us", "time_us", "pick", "then_us", "best", "solutions", "finding"),
    "Where from": ("total_us", "calls", "operation", "dtype", "layout", "device", "file"),
    "Backward weights": (
        *("beyond_us", "sibling_ratio", "w_total_us", "calls", "w_us", "f_us", "b_us", "passes_from", "action"),
    ),
    "Two runs": (
        *("moved", "change_us", "change", "other_us", "here_us", "pick_there", "pick_here", "pick_there_us"),
        *("pick_here_us", "calls", "total_us", "device"),
    ),
}
"""Sets of table columns that the user can choose by name. The label is always shown. The first set is the default."""
SETS: Mapping[str, str] = {"compare": "Two runs", "weights": "Backward weights"}
"""Tabs whose table has columns of its own, each with the name of the set of columns.

Without another run, the first columns of the set ``Two runs`` are empty.
"""
COMPARED = (
    *("moved", "change_us", "change", "other_us", "here_us", "pick_there", "pick_here", "pick_there_us"),
    "pick_here_us",
)
"""Names of the table columns that compare this run with another one."""
SPARED = (
    *("device", "file", "calls", "efficiency", "tflops", "finding", "layout", "solutions", "best", "pick"),
    *("pick_there_us", "pick_here_us", "f_us", "b_us", "passes_from"),
)
"""Table columns that the web page omits if the window is too narrow, the first to be omitted first."""
SCALED: Mapping[str, float] = {
    "total_us": 1e-3,
    "saving_us": 1e-3,
    "beyond_us": 1e-3,
    "w_total_us": 1e-3,
    "change_us": 1e-3,
    "change": 100.0,
    "regret": 100.0,
    "efficiency": 100.0,
}
TEXTS = frozenset(
    {
        *("label", "pick", "best", "operation", "direction", "dtype", "layout", "file", "passes_from"),
        *("finding", "action", "device", "saving_from", "moved", "pick_here", "pick_there"),
    }
)


@dataclass(frozen=True)
class Sample:
    """The GEMMs and convolutions that a chart draws: some of the selected ones, the costliest first.

    ``total`` is the number of all selected ones.
    """

    rows: pd.DataFrame
    total: int

    @property
    def note(self) -> str:
        """A text for the user if only some GEMMs and convolutions are drawn. It is empty if all are drawn."""
        what = f"{len(self.rows):,} of {self.total:,} problems drawn"
        return f"{what}: the costliest half, and an even sample of the rest" if len(self.rows) < self.total else ""


AMOUNTS: Mapping[str, str] = {
    "problems": "count(*)",
    "calls": "sum(calls)",
    "total_us": "sum(total_us)",
    "untimed_calls": "sum(calls) filter (total_us is null)",
    "unit": "any_value(unit)",
    "saving_us": "sum(saving_us) filter (saving_from = 'measured')",
    "conditional_us": "coalesce(sum(saving_us) filter (saving_from = 'conditional'), 0)",
    "at_least": "coalesce(bool_or(at_least and total_us > 0), false)",
    "borrowed": "list(distinct file order by file) filter (total_us > 0 and not own)",
}
"""The sums that the function ``totals`` returns, each with its SQL.

Only measured savings are added. A saving that an analyzer infers is an estimate, and is left out. Savings that rest on
a condition are added up apart. ``at_least`` is True if a time in the sum is a lower bound. ``borrowed`` lists the files
of other runs with times that are in the sum.
"""


def copy_for_duckdb(frame: pd.DataFrame) -> pd.DataFrame:
    """Copy a DataFrame so that DuckDB reads all of its columns correctly.

    DuckDB refuses reversed and strided columns. In addition, versions before 2 read a column without any value as
    integers, which cannot be compared with text.
    """
    empty = [name for name in frame.columns if frame[name].dtype == object and frame[name].isna().all()]
    return frame.astype(dict.fromkeys(empty, "string")).copy()


@contextmanager
def open_points(points: pd.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB database whose table ``points`` is a copy of this DataFrame."""
    with duckdb.connect() as con:
        con.register("given_", copy_for_duckdb(points))
        con.execute("create table points as select * from given_")
        yield con


def totals(con: duckdb.DuckDBPyConnection, chosen: Selection) -> pd.Series:
    """Add up the selected GEMMs and convolutions: their number, calls, time and possible saving (``AMOUNTS``)."""
    where, parameters = chosen.where()
    columns = ", ".join(f"{sql} as {name}" for name, sql in AMOUNTS.items())
    return con.execute(f"select {columns} from points where {where}", parameters).df().iloc[0]


def groups(
    con: duckdb.DuckDBPyConnection, chosen: Selection, facets: Sequence[str] = tuple(FACETS), most: int = 8
) -> pd.DataFrame:
    """Return the most common values of each filter column, with the calls and the time of their rows.

    The filter on a column itself is ignored when its values are counted, so that the user sees the other choices. The
    columns are ``facet, value, problems, calls, total_us, values``. ``facet`` is the filter column, and ``values`` is
    the number of its different values. At most ``most`` values of a column are returned, the longest in time first.
    """
    where, parameters = replace(chosen, values={}).where()
    amounts = "count(*) as problems, sum(calls) as calls, sum(total_us) as total_us"
    source = f"(select {', '.join(FACETS)}, {amounts} from points where {where} group by all)"
    each = ", ".join(f"{{'facet': '{x}', 'value': {x}}}" for x in facets)
    conditions = ["true"]
    for facet, values in chosen.values.items():
        where, more = Selection(values={facet: values}).where()
        conditions.append(f"(each.facet = '{facet}' or {where})")
        parameters += more
    largest = "sum(total_us) desc nulls last, sum(problems) desc, value"
    sql = f"""
        with every as (select *, unnest([{each}]) as each from {source})
        select each.facet as facet, each.value as value, sum(problems)::bigint as problems, sum(calls) as calls,
               sum(total_us) as total_us, count(*) over (partition by each.facet) as values
        from every where {" and ".join(conditions)} group by each
        qualify row_number() over (partition by facet order by {largest}) <= {most} order by {largest}"""
    return con.execute(sql, parameters).df()


def sample(
    con: duckdb.DuckDBPyConnection,
    chosen: Selection,
    columns: Sequence[str],
    known: Sequence[str] = (),
    size: int = DRAWN,
) -> Sample:
    """Return at most ``size`` of the selected GEMMs and convolutions, so that a chart can draw them.

    Half are the costliest. Rows without a value in a column of ``known`` are left out.
    """
    where, parameters = chosen.where()
    where += "".join(f" and {name} is not null" for name in known)
    count, wanted = _count(con, where, parameters), ", ".join(columns)
    if count <= size:
        sql = f"select {wanted} from points where {where} order by total_us desc nulls last, id"
        return Sample(con.execute(sql, parameters).df(), count)
    # The other half is spread evenly over the rest. Only the named columns are read, because reading texts takes most
    # of the time.
    sql = f"""
        with chosen as materialized (select rowid as place, total_us from points where {where}),
        dear as materialized (
          select place from chosen order by total_us desc nulls last, place limit {size // 2}),
        rest as (select place from chosen where place not in (from dear) order by hash(place), place
                 limit {size - size // 2})
        select {wanted} from points where rowid in (from dear union all from rest)
        order by total_us desc nulls last, id"""
    return Sample(con.execute(sql, parameters).df(), count)


def find_largest_savings(con: duckdb.DuckDBPyConnection, chosen: Selection, most: int = 2_000) -> pd.DataFrame:
    """Return the GEMMs and convolutions with the largest measured savings, the largest first.

    The columns are ``id, label, saving_us, calls, unit, total_saving_us, count``. The last two are the sum and the
    number of all savings, even if not all are returned.
    """
    where, parameters = chosen.where()
    sql = f"""
        select id, label, saving_us, calls, unit, sum(saving_us) over () as total_saving_us, count(*) over () as count
        from points where {where} and saving_us > 0 and saving_from = 'measured'
        order by saving_us desc, id limit {most}"""
    return con.execute(sql, parameters).df()


def regrets(con: duckdb.DuckDBPyConnection, chosen: Selection) -> pd.DataFrame:
    """Count the GEMMs and convolutions in classes of lost time: 0 to 1 %, 1 to 2 % and so on.

    Lost time (regret): (time of the library's choice) / (best time) − 1. Columns: ``low, high, problems, total_us``.
    """
    where, parameters = chosen.where()
    sql = f"""
        with edges as (select unnest([0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]) as low,
                              unnest([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9]) as high)
        select low, high, count(regret) as problems, coalesce(sum(total_us), 0) as total_us
        from edges left join (select greatest(regret, 0) as regret, total_us from points
                              where {where} and regret is not null) p
          on regret >= low and regret < high group by all order by low"""
    return con.execute(sql, parameters).df()


def count_solvers(con: duckdb.DuckDBPyConnection) -> dict[str | None, int]:
    """Count the layers of the run by the solution that takes the time of their backward-weight pass, without filters.

    A layer counts if another of its passes has a time, too. An unknown solution has the key None.
    """
    sql = """
        select w_solution, count(*) from points where direction = 'W' and w_us > 0 and sibling_us > 0
        group by 1 order by 1"""
    return {solution: int(count) for solution, count in con.execute(sql).fetchall()}


def find_unnamed_weights(con: duckdb.DuckDBPyConnection) -> tuple[int, list[str]]:
    """Return for how many backward-weight passes (W) no log names the solver, and the files with their times.

    Files that are no find-db are left out of the list.
    """
    rows = con.execute(
        """select count(*), list(distinct file order by file) filter (origin = 'find-db') from points
           where direction = 'W' and at_least and w_us > 0"""
    )
    ((count, files),) = rows.fetchall()
    return int(count), list(files or ())


def changes(con: duckdb.DuckDBPyConnection, chosen: Selection) -> pd.Series:
    """Return sums that compare the selected GEMMs and convolutions in this run and in another run.

    Only those with comparable times in both runs are counted, except for ``repicked``.

    * ``problems``: their number.
    * ``faster, slower``: how many are faster or slower in this run, by the rules of ``logparse diff``.
    * ``called``: for how many the calls are counted.
    * ``here_us, there_us``: sum of time × calls in this run and in the other run, µs.
    * ``picked``: for how many the library's choice is known in both runs. ``repicked``: for how many it differs.
    * ``both_picks``: for how many of these one file has the times of both kernels. ``pick_here_us`` and
      ``pick_there_us`` are the sums of these times × calls of this run, µs. ``pick_files`` lists the files.
    """
    where, parameters = chosen.where()
    sql = f"""
        with chosen as (select *, other_us > 0 and here_us > 0 as timed from points where {where})
        select count(*) filter (timed) as problems, count(calls) filter (timed) as called,
               count(*) filter (timed and moved = 'faster') as faster,
               count(*) filter (timed and moved = 'slower') as slower,
               count(*) filter (pick_here is not null and pick_there is not null) as picked,
               count(*) filter (pick_here <> pick_there) as repicked,
               count(pick_there_us) as both_picks,
               list(distinct file order by file) filter (pick_there_us is not null) as pick_files,
               sum(coalesce(calls, 1) * pick_here_us) as pick_here_us,
               sum(coalesce(calls, 1) * pick_there_us) as pick_there_us,
               sum(coalesce(calls, 1) * here_us) filter (timed) as here_us,
               sum(coalesce(calls, 1) * other_us) filter (timed) as there_us
        from chosen"""
    return con.execute(sql, parameters).df().iloc[0]


def sum_time_by_kind(con: duckdb.DuckDBPyConnection, chosen: Selection) -> pd.DataFrame:
    """Return the time (µs) of the selected GEMMs and convolutions by kind of work, such as ``miopen wgrad``.

    The kind with the most time is first. ``saving_us`` is the measured saving, ``estimated_us`` the estimated one, and
    ``conditional_us`` the one that rests on a condition. ``at_least`` is True if a time in the sum is a lower bound.
    """
    where, parameters = chosen.where()
    # A kind is an operation or direction, and the library that runs it if the files name the library.
    sql = f"""
        select concat(if(library = 'unknown', '', library || ' '), case direction when 'F' then 'forward'
                   when 'B' then 'dgrad' when 'W' then 'wgrad' else operation end) as kind,
               sum(total_us) as us, coalesce(sum(saving_us) filter (saving_from = 'measured'), 0) as saving_us,
               coalesce(sum(saving_us) filter (saving_from = 'estimated'), 0) as estimated_us,
               coalesce(sum(saving_us) filter (saving_from = 'conditional'), 0) as conditional_us,
               coalesce(bool_or(at_least), false) as at_least
        from points where {where} and total_us > 0 group by 1 order by us desc, 1"""
    return con.execute(sql, parameters).df()


class KernelRow(NamedTuple):
    """A row of the table of kernels: all launches of one kernel by one operator, of one GEMM or convolution or input.

    * ``calls``, ``us``: launches and time (µs) per step.
    * ``id``, ``label``: its GEMM or convolution, if any.
    * ``input``: size and type of the operator's first input, such as ``32×256×56×56 float16``, if it is another
      operator. Empty if the trace has no sizes.
    """

    kernel: str
    op: str
    kind: str
    # They are sums over all traces if no trace marks steps.
    calls: float
    us: float
    id: str | None
    label: str | None
    input: str = ""


_INPUT = r"'(\w+)\(([0-9,]+)\|'"
"""SQL: the type and the sizes of the first input in the text of an operator (``libraries/torch_profiler``)."""


def kernels(con: duckdb.DuckDBPyConnection, most: int, problem: str = "") -> list[KernelRow]:
    """Return the kernels with the longest times, at most ``most``.

    With ``problem``, return only the kernels of that GEMM or convolution.
    """
    sql = f"""
        with named as (select problem, min(id) as id, any_value(label) as label from points group by problem),
        sized as (select *, regexp_extract(operator, {_INPUT}, ['type', 'sizes']) as first from kernels),
        shown as (select kernel, op, kind, sum(calls) as calls, sum(us) as us, id, label,
                         if(id is null and first.sizes <> '', replace(first.sizes, ',', '×') || ' ' || first.type, '')
                           as input
                  from sized k left join named n on n.problem = k.problem and k.problem <> ''
                  where ? in ('', k.problem) group by all)
        from shown order by us desc, kernel, op, input limit {most}"""
    return [KernelRow(*row) for row in con.execute(sql, [problem]).fetchall()]


def called_from(con: duckdb.DuckDBPyConnection, run: str, problem: str) -> str:
    """Say from where the program of a run calls a GEMM or convolution. Empty if the run has no trace with stacks.

    The sentence has names of files from the trace.
    """
    found = con.execute("select value from facts where run = ? and name = ?", [run, places.FACT]).fetchall()
    return places.sentence((str(value) for (value,) in found), [problem])


def kernels_us(con: duckdb.DuckDBPyConnection) -> tuple[float, bool]:
    """Return two values: how long all kernels take together, µs, and whether this time is for one step of the job.

    If the second value is False, the time is the sum over everything that was traced.
    """
    ((us, per_step),) = con.execute(
        "select (select coalesce(sum(us), 0) from kernels), (select bool_or(per_step) from step)"
    ).fetchall()
    return float(us), bool(per_step)


def read_work_of_step(con: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, str, str]:
    """Return the data for a chart that shows the GPU's work during one step of the job.

    * the GPU's kernels and copies, by start
    * the times in which the GPU was idle
    * the host's calls of the CUDA or HIP runtime
    * the chart's title
    * a sentence about when the host launched the work
    """
    named = "select problem, min(id) as id from points group by problem"
    found = con.execute(
        f"select w.*, coalesce(id, '') as id from works w left join ({named}) n using (problem) order by start"
    )
    rows, gaps = found.df(), con.execute("from gaps order by start").df()
    about = con.execute("select title, launched from step").fetchall()
    host = con.execute("from host order by start").df()
    title, launched = map(str, about[0]) if about else ("", "")
    return rows, gaps, host, title, launched


@dataclass(frozen=True)
class Nearby:
    """Times of GEMMs or convolutions that are similar to a given one, converted to its size.

    ``told`` is a sentence about them. ``times_us`` has the single times, µs.
    """

    told: str
    times_us: Sequence[float]


def find_similar_times(con: duckdb.DuckDBPyConnection, row: pd.Series) -> Nearby | None:
    """Return the times of GEMMs or convolutions that resemble the one in this row of the web page's table.

    Returns None if too few of them were measured.
    """
    found = con.execute("select told, times_us from nearby where problem = ?", [str(row["problem"])]).fetchall()
    return Nearby(str(found[0][0]), [float(x) for x in found[0][1]]) if found else None


def todos(con: duckdb.DuckDBPyConnection, chosen: Selection) -> frozenset[str]:
    """Return the names of all recommended changes that concern the selected GEMMs and convolutions."""
    where, parameters = chosen.where()
    found = con.execute(f"select distinct unnest(todos) from points where {where}", parameters).fetchall()
    return frozenset(str(name) for (name,) in found)


def analyzers(con: duckdb.DuckDBPyConnection, chosen: Selection) -> frozenset[str]:
    """Return the names of all analyzers with a finding about the selected GEMMs and convolutions."""
    where, parameters = chosen.where()
    found = con.execute(f"select distinct analyzer from points where {where} and analyzer is not null", parameters)
    return frozenset(str(name) for (name,) in found.fetchall())


def rows_of_todos(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count the rows that each thing to do concerns. Maps the names of the things to do to these numbers."""
    found = con.execute("select todo, count(*) from (select unnest(todos) as todo from points) group by todo")
    return {str(name): int(count) for name, count in found.fetchall()}


def rows_of_pairs(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    """Count the rows that two things to do both concern. The keys are pairs of names, each pair in both orders."""
    found = con.execute(
        """with each as (select rowid as row, unnest(todos) as todo from points)
           select a.todo, b.todo, count(*) from each a join each b using (row) where a.todo <> b.todo group by all"""
    )
    return {(str(one), str(other)): int(count) for one, other, count in found.fetchall()}


def has_kernels(con: duckdb.DuckDBPyConnection) -> bool:
    """Return True if the run has a trace with kernels, so that the timeline shows something."""
    return bool(con.execute("select 1 from kernels limit 1").fetchall())


def empty_columns(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the columns of the web page's table that have no value in any row."""
    counts = ", ".join(f"count({name})" for name in TABLE)
    found = con.execute(f"select {counts} from points").fetchall()[0]
    return frozenset(name for name, count in zip(TABLE, found, strict=True) if not count)


def _count(con: duckdb.DuckDBPyConnection, where: str, parameters: Sequence[object]) -> int:
    ((count,),) = con.execute(f"select count(*) from points where {where}", parameters).fetchall()
    return int(count)


def table(
    con: duckdb.DuckDBPyConnection,
    chosen: Selection,
    *,
    start: int = 0,
    end: int | None = None,
    sort: Sequence[Mapping[str, object]] = (),
    filters: Mapping[str, Mapping[str, object]] | None = None,
    default: Order = _BY_SAVING,
) -> tuple[pd.DataFrame, int]:
    """Return rows ``start`` to ``end`` of the web page's table, in the units of its titles, and the number of all rows.

    The rows also have ``id``, ``aim_us`` and ``at_least``, which are no columns of the table.

    * ``sort``, ``filters``: in the form of AG Grid, a table component for browsers.
    """
    where, parameters = chosen.where()
    where += f" and {default.where}"
    for name, rule in (filters or {}).items():
        rule_sql, more = _grid_filter(name, rule)
        where += f" and {rule_sql}"
        parameters += more
    # Unknown columns in the order and the filters are ignored.
    known = [x for x in sort if x.get("colId") in TABLE]
    # Rows that are equal in the user's order are in the default order.
    order = [f"{x['colId']} {'desc' if x.get('sort') == 'desc' else 'asc'} nulls last" for x in known]
    columns = ", ".join(f"{name} * {SCALED[name]} as {name}" if name in SCALED else name for name in TABLE)
    limit = "" if end is None else f"limit {max(0, end - start)} offset {max(0, start)}"
    by = ", ".join([*order, default.by])
    # The query selects the rows first and then reads their texts, because sorting whole rows takes twice as long.
    shown = f"select rowid from points where {where} order by {by} {limit}"
    sql = f"select id, {columns}, aim_us, at_least from (from points where rowid in ({shown}) order by {by})"
    return con.execute(sql, parameters).df(), _count(con, where, parameters)


_COMPARISONS = {"equals": "=", "lessThan": "<", "greaterThan": ">"}
NUMBER_RULES = (*_COMPARISONS, "inRange", "blank", "notBlank")
TEXT_RULES = ("contains", "notContains", "blank", "notBlank")
"""Names of the filters that the user can set on a table column with texts. ``NUMBER_RULES`` is for numbers."""


def _grid_filter(name: str, rule: Mapping[str, object]) -> tuple[str, list[object]]:
    """Convert the user's filter on one table column to an SQL condition and its parameters.

    The filter has the form of AG Grid, a table component for browsers. A filter that is not understood becomes
    ``true``.
    """
    kind, value = rule.get("type"), rule.get("filter")
    if name not in TABLE:
        return "true", []
    if kind in ("blank", "notBlank"):
        return f"{name} is {'not ' if kind == 'notBlank' else ''}null", []
    if name in TEXTS and isinstance(value, str) and kind in TEXT_RULES:
        if name == "label" and value.rstrip() != value:  # "W " is the beginning of a label, and no end of "NCHW ".
            return f"coalesce(starts_with(lower({name}), ?), false) = {kind == 'contains'}", [value.lower()]
        return f"coalesce(contains(lower({name}), ?), false) = {kind == 'contains'}", [value.lower()]
    if name in TEXTS or not isinstance(value, int | float):
        return "true", []
    column = f"{name} * {SCALED.get(name, 1.0)}"
    if kind == "inRange":
        return f"{column} between ? and ?", [value, rule.get("filterTo")]
    return (f"{column} {_COMPARISONS[str(kind)]} ?", [value]) if kind in _COMPARISONS else ("true", [])


def find_point(con: duckdb.DuckDBPyConnection, problem_id: str) -> pd.Series | None:
    """Return the row of the GEMM or convolution with this id, or None if there is no such id."""
    found = con.execute("select * from points where id = ?", [problem_id]).df()
    return found.iloc[0] if len(found) else None
