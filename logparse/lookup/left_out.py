"""Count the lines and results of a run that no answer uses: damaged lines, calls of benchmark tools and so on."""

from __future__ import annotations

from dataclasses import dataclass

from logparse.lazy import duckdb
from logparse.lookup.ranking_sql import OF_LINKS, STAGES, make_tables
from logparse.store import Store
from logparse.store.rules import LOGGED
from logparse.text import pluralize

_LEFT_OUT = f"""
    select (select coalesce(sum(count), 0) from rejects where run = $run),
           (select coalesce(sum(count), 0) from calls where run = $run and by_tool and (kind = 'conv') in (
                select kind = 'conv' from calls where run = $run and not by_tool)),
           count(distinct if(called_kind and not called and us, problem, null)), count(*) filter (us and not here),
           count(*) filter (not us and not (pick and time_us is null))
    from (select problem, time_us, list_contains({list(LOGGED)}, origin) as pick,
                 source_id in (select source_id from files) as here, kind <> 'family' as whole,
                 whole and (kind = 'conv') in (from called) as called_kind,
                 problem in (select problem from w union select other from linked
                             where problem in (select problem from w)) as called,
                 status = 'ok' and coalesce(time_us > 0, false) as us
          from measurements where run = $run and origin <> 'trace'
              and ($kind is null or kind = $kind or ($kind = 'gemm' and kind = 'grouped')))"""
"""SQL of ``LeftOut``. It reads the table ``linked`` and the tables of ``_COUNTED``."""
_COUNTED = tuple(name for name in STAGES if name != "traced")
"""The tables of ``STAGES`` that ``_LEFT_OUT`` needs."""
LEFT_OUT = " ".join([*(STAGES[name] for name in _COUNTED), _LEFT_OUT])
"""The SQL of ``left_out``. A connection for it has the views that this SQL names."""
_REJECTS = " (`sql 'from rejects'` lists them)"


def count_damaged_lines(store: Store, run: str | None = None) -> str:
    """Return a sentence with the number of damaged lines in a run (execution of a job). Empty without such lines.

    By default it is the latest run.
    """
    sql = "select coalesce(sum(count), 0) from rejects where run = $run"
    with store.reading(sql) as con:
        ((count,),) = con.execute(sql, {"run": store.latest_run(run)}).fetchall()
    return f"{pluralize(int(count), 'damaged line')}{_REJECTS}" if count else ""


@dataclass(frozen=True)
class LeftOut:
    """Counts of the lines and results that ``top`` and ``recommend`` do not use, by reason.

    * ``rejects``: damaged lines.
    * ``by_tool``: calls that a person or a benchmark tool made, if a log of the job has calls of the kind.
    * ``uncalled``: matrix products or convolutions with a time that no log of the run calls, if a log calls others of
      the kind.
    * ``elsewhere``: times that are known to be of another device.
    * ``untimed``: results without a time, such as kernels that failed. Lines that name the library's choice are used.
    """

    rejects: int = 0
    by_tool: int = 0
    uncalled: int = 0
    elsewhere: int = 0
    untimed: int = 0

    @property
    def text(self) -> str:
        """Sentence for the user. It names all left-out things, for example damaged lines, with their numbers.

        It is empty if nothing was left out.
        """
        parts = [
            (self.rejects, "damaged line", _REJECTS),
            (self.by_tool, "call", " of benchmark commands"),
            (self.uncalled, "measured problem", " without calls in the run's logs"),
            (self.elsewhere, "measured time", " of another device"),
            (self.untimed, "result", " without a time"),
        ]
        return ", ".join(f"{pluralize(n, noun)}{more}" for n, noun, more in parts if n)


def left_out(con: duckdb.DuckDBPyConnection, run: str) -> LeftOut:
    """Count what ``top`` and ``recommend`` do not use of a run (execution of a job).

    ``con`` needs the views in ``LEFT_OUT`` and a table ``linked`` with the rows of ``open_links``.
    """
    # ``linked`` and temporary tables with the names of ``STAGES`` are replaced.
    con.execute(f"create or replace temp table linked as {OF_LINKS.format('linked')}")
    make_tables(con, run, _COUNTED)
    return read_left_out(con, run, None)


def read_left_out(con: duckdb.DuckDBPyConnection, run: str, kind: str | None) -> LeftOut:
    (counts,) = con.execute(_LEFT_OUT, {"run": run, "kind": kind}).fetchall()
    return LeftOut(*map(int, counts))
