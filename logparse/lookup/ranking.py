"""Rank the matrix products and convolutions of a job by their calls or their time (``logparse top``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from logparse.lazy import duckdb, pd
from logparse.libraries.miopen import find_db_choice
from logparse.lookup.left_out import LEFT_OUT, LeftOut, read_left_out
from logparse.lookup.ranking_sql import (
    DEVICES,
    FILES,
    LINKED,
    NO_LINKS,
    OF_ITSELF,
    OPEN,
    PARTS,
    RANKED,
    SHOWN,
    STAGES,
    STEPS,
    SUMS,
    TIMED,
    UNSETTLED,
    UNTOLD,
    make_tables,
)
from logparse.model import problem_from_text
from logparse.output.terminal import Rows
from logparse.store import Store, command_line
from logparse.store.columns import column
from logparse.store.settling import settling
from logparse.target import several_devices
from logparse.text import duration, pluralize


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
    left_out: LeftOut = field(default_factory=LeftOut)
    steps: float | None = None
    """The number of traced steps to which the calls belong. None if logs count calls, or if no steps are marked."""
    traced: bool = False
    """True if the calls are counted in traces only."""
    processes: int = 0
    """The number of processes whose calls are added up. 0 if no log names its process."""
    untold: int = 0
    """The number of products and convolutions that are counted with the best known time, because no log names the pick.
    """
    alone: bool = False
    """True if no time is of the job's own calls: all were measured alone."""
    traced_us: float | None = None
    """The time that the traces cover, µs. None if logs count calls, or if a trace does not state its time."""
    by: str = "calls"
    """``calls`` or ``time``. The column ``share`` has shares of it."""
    saves_if_us: float = 0.0
    """The additional saving (µs) if the job does not read its user find-db (``libraries/miopen/find_db_choice.py``)."""
    unsettled: int = 0
    unsettled_names: tuple[str, ...] = ()
    """The number of convolutions that have this additional saving, and the names of the three largest savings."""
    devices: tuple[str, ...] = ()
    """The devices of the times in the table, if the run's files have times of several. Both times of a row are of one.
    """

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
            alone = " by times measured alone, not in the job" if self.alone else ""
            alone += f", each on {' or '.join(self.devices)}" if self.devices else ""
            out += f"; {duration(self.total_us)}{of}{alone}{self._part_of_traces()}"
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


TOP_STAGES = 3


def rank_problems(
    store: Store,
    *,
    by: str = "calls",
    kind: str | None = None,
    n: int = 20,
    run: str | None = None,
    texts: Sequence[str] | None = None,
    count_left_out: bool = False,
    begins: Callable[[str], None] = lambda stage: None,
) -> Ranking:
    """Return the table of ``logparse top``: the matrix products and convolutions with most calls or most time.

    * The sums over all of them come with it.
    * ``texts`` limits the table to these products.
    * ``count_left_out`` also counts what is left out.
    * ``begins`` is called with the name of each stage before it begins. There are at most ``TOP_STAGES``.
    """
    begins("reading the store")
    key, other = ("total_us", "calls") if by == "time" else ("calls", "total_us")
    run = store.latest_run(run)
    with store.reading(f"{_NEEDED} {STEPS} {LEFT_OUT * count_left_out}") as con:
        begins("ranking")
        timed = _rank(con, run, kind, texts)
        begins("adding up")
        (sums,) = con.execute(SUMS).fetchall()
        shown = {"n": n, "assumes": find_db_choice.ASSUMES}
        # This is an Arrow table, because to import pandas takes longer than most answers.
        rows: pa.Table = con.sql(SHOWN.format(key=key, other=other, timed=timed), params=shown).to_arrow_table()
        traced, steps, processes, traced_us = con.execute(STEPS, {"run": run, "kind": kind}).fetchall()[0]
        ((untold, timed_in_job),) = con.execute(UNTOLD).fetchall()
        devices = con.execute(DEVICES).fetchall()
        open_ = [problem_from_text(text).label for (text,) in con.execute(UNSETTLED).fetchall()]
        not_used = read_left_out(con, run, kind) if count_left_out else LeftOut()
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
        alone=not timed_in_job,
        saves_if_us=saves_if_us,
        unsettled=unsettled,
        devices=_named_devices(devices),
        unsettled_names=tuple(dict.fromkeys(open_)),
    )


def _named_devices(rows: Sequence[tuple[str, str | None, str | None, bool]]) -> tuple[str, ...]:
    """Name the devices of a ranking, from the rows of ``DEVICES``. Name none if the files may have one device."""
    facts = [{name: x for name, x in (("arch", arch), ("cu_count", count)) if x} for _, arch, count, _ in rows]
    return tuple(text for text, _, _, shown in rows if shown) if several_devices(facts) else ()


_NEEDED = " ".join([OPEN, *STAGES.values(), find_db_choice.RIVALS, TIMED])
"""SQL with the names of all views that ``_rank`` reads."""


def _rank(con: duckdb.DuckDBPyConnection, run: str, kind: str | None = None, texts: Sequence[str] | None = None) -> str:
    """Make the table ``ranked`` in a connection. Returns the SQL of the times from which it was made."""
    ((may_be,),) = con.execute(OPEN).fetchall()  # this takes a third of the time that it takes to read the links
    con.execute(f"create or replace temp table linked as {LINKED if may_be else NO_LINKS}")
    make_tables(con, run, STAGES)
    con.execute(f"create or replace temp table rivals as {find_db_choice.chosen_rivals_sql(con)}")
    ((several,),) = con.execute("select exists (from mixed)").fetchall()
    timed = (TIMED if may_be else OF_ITSELF).format(rows=PARTS if several else FILES)
    con.execute(RANKED.format(timed=timed), {"kind": kind, "texts": None if texts is None else list(texts)})
    return timed


def run_with_most_to_save(store: Store, runs: Sequence[str]) -> str:
    """Return the run for which the best known kernels save most time, by the sum that ``logparse top`` prints.

    If several save equally much (or nothing is known of any), the last one of ``runs`` is returned.
    """
    saves_us = dict.fromkeys(runs, 0.0)
    with store.reading(_NEEDED) as con:  # A connection for each run would need half as long as ranking the run.
        # A run saves nothing if only traces time its calls, as in runs that ``tune`` has made.
        ((may_be,),) = con.execute(OPEN).fetchall()
        timed = {str(run) for (run,) in con.execute(_TIMED_APART).fetchall()}
        for run in runs if may_be else timed.intersection(runs):
            _rank(con, run)
            saves_us[run] = con.execute(SUMS).fetchall()[0][4] or 0.0
    return max(reversed(runs), key=lambda run: saves_us[run])


_TIMED_APART = """
    select distinct run from workload
    where problem in (select problem from measurements where origin <> 'trace' and status = 'ok')"""
"""SQL for the runs with a called problem of which a solution was timed apart from the job."""


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
