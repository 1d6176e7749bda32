"""Reading a store for the page, in processes of their own (``reading`` starts them).

Reading 200,000 problems takes more than half a gigabyte for some seconds, which the page must not keep.  So a child
reads the store, writes what the page needs into a folder and reports each step when it is done.  The first step is
all that the first view needs; the analyzers' results come later, at a lower priority than the page.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from analyzers.explore import point_table, queries
from analyzers.explore.load.beside import beside, compared, keep
from analyzers.explore.load.job import (
    BEGUN,
    DONE,
    FAILED,
    FILES,
    FIRST,
    FRONT,
    JUDGED,
    READY,
    TRIES,
    VERDICT,
    Job,
)
from logparse.errors import LogparseError
from logparse.store import open_store
from logparse.text import sql_text

if TYPE_CHECKING:
    import duckdb

    from analyzers.explore.load.analysis import Analysis
    from analyzers.explore.load.job import Verdict
    from logparse.store import Store

_SMALL = {
    "sources": "select * from sources where run = $run",
    "facts": "select * from facts",
}
_JUDGED = f"""
    from (from new_ order by {queries.ORDER}) union all
    from first_.points where hash(problem) not in (from changed_)"""
"""What picks and findings change, and what they leave as the files have it."""
_MB, _ROWS_PER_MB = 300, 20_000
"""DuckDB's memory limit: so much, and a megabyte per so many measurements.  A store of 193,590 problems (649,000
measurements) is read within it as fast as without; 400 MB were too few for 4.5 million.
"""
_COMPARISON, _BESIDE_ANALYSIS, _EVERY_ROW = 0.5, 0.6, 1.5
"""The part of it that the judge takes for a comparison, which makes tables outside DuckDB too; for its rows, while the
findings stay in memory; and where all rows change.
"""
_ROWS = 30_720
"""Rows that one thread takes at a time: by default 122,880, which leaves the second core nothing to do."""
_OFTEN, _PLAIN = ("label",), " using compression uncompressed"
"""Texts that each chart fetches by the thousand from anywhere: to unpack them would take a third of its time."""
_TRIES = """
    select hash(problem) as h, source_id, origin, library, solution, raw, algorithm, status, time_us, min_us, max_us,
           std_us, samples_us, workspace_bytes, error, key_text from measurements where kind <> 'family'"""
_GROUP = 16_384
_BLOOM = f"row_group_size {_GROUP}, dictionary_size_limit {_GROUP}"
"""Rows are found by the Bloom filters of their hashes, which DuckDB writes beside each dictionary: as fast as rows in
their order, and to order them would take twice as long as all else.
"""


def main(job: Mapping[str, Any]) -> None:
    """What a child runs: a line of JSON on standard output for each step.  Never raises."""
    pa.set_memory_pool(pa.system_memory_pool())  # the other pools hold on to what was freed
    gc.set_threshold(200_000)  # as of the program: findings are many objects that stay
    with contextlib.suppress(BrokenPipeError), _reports() as reports:  # the page has ended
        for step, text in _steps(Job(**job)):
            print(json.dumps((step, text)), file=reports, flush=True)


@contextlib.contextmanager
def _reports() -> Iterator[TextIO]:
    """Standard output for the steps alone: what a library prints there goes to standard error meanwhile."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reports:
        os.dup2(2, 1)
        try:
            yield reports
        finally:
            os.dup2(reports.fileno(), 1)


def _steps(job: Job) -> Iterator[tuple[str, str]]:
    try:
        yield from _judge(job) if job.judge else _read(job)
    except (LogparseError, OSError) as error:
        yield FAILED, str(error)
    except Exception as error:  # of any kind: the page shows why it stays empty
        yield FAILED, f"{type(error).__name__}: {error}"


class _WithoutPandas:
    """Hides pandas, which pyarrow would import to see whether a list of strings is a Series: a third of a second."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _read(job: Job) -> Iterator[tuple[str, str]]:
    """The files' own data, the first view first."""
    sys.meta_path.insert(0, _WithoutPandas())
    store, folder = open_store(job.url), Path(job.folder)
    run = store.latest_run(job.run)
    other = beside(job.other, store) if job.other else None
    with _connect(store) as con:
        point_table.survey(con, run)
        shown = {"run": run, "runs": store.runs(), "other": other and (other[0].url, other[1])}
        (folder / "run.json").write_text(json.dumps(shown))
        con.execute(f"attach {sql_text(folder / FRONT)} as front_")
        point_table.front(con, "front_")
        con.execute("detach front_")
        yield BEGUN, ""
        os.nice(5)  # the page draws its first view now
        point_table.hold(con)
        con.execute("set force_compression = 'uncompressed'")  # which takes as long as all else; the judge does it
        with point_table.points_sql(con) as points:
            _database(con, folder / FIRST, run, points)
        yield READY, ""
        os.nice(10)
    _tries(store, folder)
    yield TRIES, ""
    yield DONE, ""


def _database(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    run: str,
    points: str,
    more: Mapping[str, str] = MappingProxyType({}),
    others: Path | None = None,
) -> None:
    """The tables that the page asks, as a file of DuckDB: compressed, opened in no time, and in memory by parts.

    ``more``: queries over ``points`` that are tables, too; ``others``: another run's times, as of ``set_beside``.
    """
    con.execute(f"attach {sql_text(path)} as out_ (row_group_size {_ROWS})")
    con.execute("set disabled_optimizers = 'build_side_probe_side'")  # it might hash the rows, and so lose their order
    lean = f"select * replace (nullif(measured, problem) as measured) from ({points})"  # most are equal, and long
    for name, sql in {"points": lean, **_SMALL}.items():
        given = {"run": run} if "$run" in sql else None
        columns = con.execute(f"describe {sql}", given).fetchall()
        typed = ", ".join(f"{x} {kind}{_PLAIN if x in _OFTEN else ''}" for x, kind, *_ in columns)
        con.execute(f"create table out_.{name} ({typed})")
        con.execute(f"insert into out_.{name} {sql}", given)
    if others is not None:
        point_table.set_beside(con, "out_.points", others)
    for name, sql in {"sums": queries.sums("{points}"), **more}.items():
        con.execute(f"create table out_.{name} as {sql.format(points='out_.points', texts='out_.texts')}")
    con.execute("reset disabled_optimizers")
    con.execute("detach out_")


def _tries(store: Store, folder: Path) -> None:
    """Every measurement, laid out so that those of one problem are found without reading the rest."""
    with _connect(store) as con:
        con.execute(f"copy ({_TRIES}) to {sql_text(folder / 'tries.parquet')} (format parquet, {_BLOOM})")


def _judge(job: Job) -> Iterator[tuple[str, str]]:
    """Run the analyzers and add their results."""
    os.nice(5)
    import duckdb

    from analyzers.analyzer import Settings
    from analyzers.explore.load.actions import archive
    from analyzers.explore.load.analysis import analyse

    store, folder = open_store(job.url), Path(job.folder)
    known = json.loads((folder / "run.json").read_text())
    run, settings = str(known["run"]), Settings(target=job.target)
    others = None
    if known["other"]:  # before the findings fill the memory
        with store.reading("measurements") as con:  # of this process's one DuckDB, in which the two are compared
            _limit(con, _COMPARISON)
        url, other = known["other"]
        others = keep(compared(store, run, open_store(url), other), folder)
    analysis = analyse(store, run, settings)
    try:
        verdict = _judged(store, folder, analysis, others)
    except duckdb.OutOfMemoryException:  # where a pick is known of most problems, most rows change
        for begun in folder.glob(f"{JUDGED}*"):
            begun.unlink()
        verdict = _judged(store, folder, analysis, others, every=True)
    verdict.write(folder / "verdict.json")
    yield VERDICT, ""
    part = folder / f"{FILES}.part"
    try:
        archive(analysis.recommendation, settings, part)
        part.rename(folder / FILES)
    except OSError:  # without room for them the page has everything else
        part.unlink(missing_ok=True)
    for made in (FRONT, FIRST):
        (folder / made).unlink()  # who has one open keeps it
    yield DONE, ""


def _judged(store: Store, folder: Path, analysis: Analysis, others: Path | None, *, every: bool = False) -> Verdict:
    """Make the tables with the analyzers' results.  ``every``: make all rows anew, in the memory of one thread."""
    from analyzers.explore.load.actions import verdict_of

    run = analysis.run
    with _connect(store, _EVERY_ROW if every else _BESIDE_ANALYSIS) as con:
        con.execute(f"set threads = {1 if every else 2}")
        con.execute(f"attach {sql_text(folder / FIRST)} as first_ (read_only)")
        with point_table.points_sql(con, analysis.compared, analysis.found) as points:
            con.execute(f"create table changed_ as {point_table.CHANGED}")
            if not every:
                point_table.narrow(con, "memory", "from changed_")
            point_table.survey(con, run)
            point_table.hold(con)
            judged = points  # nearly in order; to sort all of it takes more memory than there is
            if not every:
                con.execute(f"create table new_ as select * from ({points}) where hash(problem) in (from changed_)")
                judged = _JUDGED
            con.execute("set preserve_insertion_order = true")
            _database(con, folder / JUDGED, run, judged, queries.FOLDED, others)
        con.execute(f"attach {sql_text(folder / JUDGED)} as judged_ (read_only)")
        return verdict_of(con, analysis, "judged_.points")


def _connect(store: Store, part: float = 1.0) -> duckdb.DuckDBPyConnection:
    con = store.connect()
    _limit(con, part)
    con.execute("set preserve_insertion_order = false")
    con.execute("set enable_progress_bar = false")
    con.execute(f"attach ':memory:' as work (row_group_size {_ROWS})")
    con.execute("set search_path = 'work,memory'")
    return con


def _limit(con: duckdb.DuckDBPyConnection, part: float) -> None:
    (count,) = con.execute("select count(*) from measurements").fetchall()[0]
    con.execute("set threads = 2")
    con.execute(f"set memory_limit = '{part * (_MB + count // _ROWS_PER_MB):.0f}MB'")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
