"""The program of the child processes that read a Parquet folder (the store) for the web page.

``reader`` starts them. Reading 200,000 GEMMs and convolutions takes more than half a gigabyte for some seconds, which
the page's own process must not keep. So a child process reads the store, writes what the page needs into a folder and
reports each step when it is done. The first step provides all that the first view needs. For a small store the same
process runs the analyzers next. For a large store a second process runs them, at a lower priority than the page.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from analyzers.explore.load.beside import Beside, compare, find_run_to_compare, put_in_order, runs_alike
from analyzers.explore.load.job import (
    DONE,
    FAILED,
    FILES,
    FINAL,
    FIRST,
    JUDGED,
    READY,
    TRIES,
    VERDICT,
    VERDICT_FILE,
    Job,
)
from logparse.errors import LogparseError
from logparse.lazy import duckdb
from logparse.lookup.ranking import run_with_most_to_save
from logparse.store import open_store
from logparse.text import sql_text

if TYPE_CHECKING:
    from analyzers.explore.load.analysis import Analysis
    from analyzers.explore.load.job import PageVerdict
    from logparse.store import Store

_MB, _ROWS_PER_MB = 300, 20_000
"""DuckDB's memory limit: ``_MB`` megabytes, plus one megabyte per ``_ROWS_PER_MB`` measurements.

With this limit, reading 193,590 GEMMs and convolutions (649,000 measurements) is as fast as without. A limit of 400 MB
was too small for 4.5 million measurements.
"""
_SMALL = 100_000
"""Up to this number of measurements, one process both reads the files and runs the analyzers.

For more measurements, a second process runs the analyzers.
"""
_FEW = 60_000
"""Up to this number of measurements, the page shows no table before the analyzers have run.

They need only some seconds then. Tables that are written beside them delay the headline by a fifth.
"""
_COUNT = "select count(*) from measurements"
_TRIES = """
    select hash(problem) as h, source_id, origin, library, solution, raw, algorithm, status, time_us, min_us, max_us,
           std_us, samples_us, workspace_bytes, error, key_text from measurements where kind <> 'family'"""
_GROUP = 16_384
_BLOOM = f"row_group_size {_GROUP}, dictionary_size_limit {_GROUP}"
"""Settings for writing a Parquet file in which a row can be found quickly by its hash.

DuckDB writes a Bloom filter beside each dictionary. Finding rows in this way is as fast as in sorted rows, but sorting
would take twice as long as all other steps.
"""


def main(job: Mapping[str, Any]) -> None:
    """Run a child process that loads data for the web page. After each step, print a line of JSON to standard output.

    Never raises.
    """
    pa.set_memory_pool(pa.system_memory_pool())  # Other memory pools would keep memory that was freed.
    gc.set_threshold(200_000)  # The program uses the same value, because findings are many objects that stay.
    with contextlib.suppress(BrokenPipeError), _reports() as reports:  # A broken pipe means that the page has ended.
        for step, text in _steps(Job(**job)):
            print(json.dumps((step, text)), file=reports, flush=True)


@contextlib.contextmanager
def _reports() -> Iterator[TextIO]:
    """Context manager for writing reports to standard output, from which the parent process reads them.

    Text that a library prints to standard output in the meantime goes to standard error, so that it cannot be mistaken
    for a report.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reports:
        os.dup2(2, 1)
        try:
            yield reports
        finally:
            os.dup2(reports.fileno(), 1)


def _steps(job: Job) -> Iterator[tuple[str, str]]:
    try:
        yield from _judge_alone(job) if job.judge else _read(job)
    except (LogparseError, OSError) as error:
        yield FAILED, str(error)
    except Exception as error:  # The exception may be of any kind. Its text is shown on the page.
        yield FAILED, f"{type(error).__name__}: {error}"


def _judge_alone(job: Job) -> Iterator[tuple[str, str]]:
    os.nice(5)
    judged = _judge(job)
    yield VERDICT, ""
    with _connect(open_store(job.url)) as con:
        _write_final(job, con, judged)
    yield FINAL, ""
    yield from _archive(job)
    yield DONE, ""


def _read(job: Job) -> Iterator[tuple[str, str]]:
    """Read the data for the web page, in the order in which the page needs them.

    Yields the name of each finished step.
    """
    _import_soon("analyzers.explore.point_table", "analyzers.explore.load.one_step")
    store, folder = open_store(job.url), Path(job.folder)
    other = find_run_to_compare(job.other, store) if job.other else None
    with store.reading(_COUNT) as con:
        ((count,),) = con.execute(_COUNT).fetchall()
    small = count <= _SMALL
    chooses = job.run is None and other is None
    run = _most_to_save(store, count) if chooses else store.latest_run(job.run)
    if other:
        run, other_run = put_in_order(store, run, *other)
        other = other[0], other_run
    shown = {"run": run, "runs": store.runs(), "other": other and (other[0].url, other[1])}
    (folder / "run.json").write_text(json.dumps(shown))
    if small:  # A second process would import everything again, which takes longer than the analysis.
        yield from _judge_few(job, run) if count <= _FEW else _judge_beside_tables(job, run)
    else:
        _write_first(job, run).close()
        yield READY, ""
    os.nice(15)
    from analyzers.evidence.runs import split_by_device

    with store.connect(sql=f"{_TRIES} facts sources") as con:
        _limit(con)
        split_by_device(con)
        con.execute(f"copy ({_TRIES}) to {sql_text(folder / 'tries.parquet')} (format parquet, {_BLOOM})")
    yield TRIES, ""
    if small:
        yield from _archive(job)
    yield DONE, ""


def _judge_few(job: Job, run: str) -> Iterator[tuple[str, str]]:
    """Run the analyzers before any table is written, because both at once would delay the headline."""
    try:
        judged = _judge(job)
    except Exception:  # The exception may be of any kind. The page shows its text, and at least the tables.
        _write_first(job, run).close()
        yield READY, ""
        raise
    yield VERDICT, ""
    with _connect(open_store(job.url)) as con:
        con.execute(_UNCOMPRESSED)
        _write_final(job, con, judged)
    yield FINAL, ""


def _judge_beside_tables(job: Job, run: str) -> Iterator[tuple[str, str]]:
    """Run the analyzers in a second thread, while this thread writes the tables that need no analysis."""
    with ThreadPoolExecutor(1) as pool:
        judging = pool.submit(_judge, job)
        with _write_first(job, run) as con:  # DuckDB does not hold Python's lock.
            yield READY, ""
            judged = judging.result()
            yield VERDICT, ""
            _write_final(job, con, judged, Path(job.folder) / FIRST)
    yield FINAL, ""


_UNCOMPRESSED = "set force_compression = 'uncompressed'"
"""Setting of DuckDB. Compression takes as long as all other steps, so only the analysis of a large store compresses."""


def _write_first(job: Job, run: str) -> duckdb.DuckDBPyConnection:
    """Write the tables that need no analysis. Returns the connection from which they were read."""
    con = _connect(open_store(job.url))
    con.execute(_UNCOMPRESSED)
    _database(con, Path(job.folder) / FIRST, run)
    return con


@dataclass(frozen=True)
class _Judged:
    """Results of the analyzers about a run, from which the tables are written.

    * ``times``: a file with the times of another run, from ``beside.keep``.
    """

    analysis: Analysis
    times: Path | None
    verdict: PageVerdict


def _import_soon(*modules: str) -> None:
    """Import modules in a thread of its own. Meanwhile DuckDB reads the store, which needs no Python."""
    threading.Thread(target=lambda: [import_module(x) for x in modules], daemon=True).start()


def _database(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    run: str,
    analysis: Analysis | None = None,
    others: Path | None = None,
    first: Path | None = None,
) -> None:
    """Write the tables behind the web page to a DuckDB file, which the page can open at once.

    * ``con``: the connection from which the tables are read.
    * ``analysis``: results of the analyzers. None before they have run.
    * ``others``: a file with the times of another run, from ``beside.keep``.
    * ``first``: the file that was written before the analysis. Tables that the analysis does not change are copied from
      it.
    """
    con.execute(f"attach {sql_text(path)} as out_")
    if first is None:
        write_tables(con, "out_", run, analysis, others)
    else:
        con.execute(f"attach {sql_text(first)} as first_ (read_only)")
        for table in _UNCHANGED:
            con.execute(f"create table out_.{table} as from first_.{table}")
        con.execute("detach first_")
        _write_points(con, "out_", run, analysis, others, surveyed=True)
    con.execute("detach out_")


_UNCHANGED = ("facts", "kernels", "works", "gaps", "host", "step")
"""Tables of the page that hold what the files state, so the analysis does not change them."""


def write_tables(
    con: duckdb.DuckDBPyConnection, database: str, run: str, analysis: Analysis | None, others: Path | None
) -> None:
    """Write the tables that the web page and the report query into an attached database."""
    from analyzers.explore.load import one_step

    _write_points(con, database, run, analysis, others)
    con.execute(f"create table {database}.facts as select * from facts")
    one_step.write(con, run, database)


def _write_points(
    con: duckdb.DuckDBPyConnection,
    database: str,
    run: str,
    analysis: Analysis | None,
    others: Path | None,
    surveyed: bool = False,
) -> None:
    """Write two tables into ``database`` for the charts of the web page.

    * ``points``: one row for each GEMM or convolution of the job
    * ``nearby``: how long GEMMs or convolutions of similar sizes take
    """
    from analyzers.explore import point_table

    compared, found = (analysis.compared, analysis.found) if analysis else (None, None)
    # If the data are surveyed, they are not read again, because the connection has already made the table points once
    # for this job.
    point_table.build(con, run, compared, found, others, f"{database}.points", surveyed=surveyed)
    point_table.write_nearby(con, f"{database}.nearby", analysis.nearby if analysis else None)


_RUNS, _MOST_COMPARED = 4, 10_000
"""The web page opens with one of the ``_RUNS`` latest runs, or with the latest run of a large store.

A store with more than ``_MOST_COMPARED`` measurements is large.
"""


def _most_to_save(store: Store, count: int) -> str:
    """Choose the run that the web page shows first: of the latest runs, the one with the most time to save.

    It is the latest run if there are many measurements (``count``), because comparing would take too long.
    """
    runs = store.runs()[-_RUNS:]
    if len(runs) < 2 or count > _MOST_COMPARED:
        return store.latest_run(None)
    # The latest run would often be a bad choice: after tune, it already has all changes.
    return run_with_most_to_save(store, runs)


_archives: dict[str, Callable[[Path], None]] = {}
"""Functions that write the recommendation's files into a zip file. The keys are the folders of the web page's data."""


def _archive(job: Job) -> Iterator[tuple[str, str]]:
    """Write the recommendation's files as a zip file, which the user can download.

    This is done last, because nothing else on the page waits for it. It is a generator like the other steps, but it
    yields nothing.
    """
    _archives.pop(job.folder)(Path(job.folder) / FILES)
    (Path(job.folder) / FIRST).unlink(missing_ok=True)  # A process that has the file open can still read it.
    yield from ()


def _judge(job: Job) -> _Judged:
    """Run the analyzers for the web page, and write what needs no table: the headline, the cards and the remarks."""
    from analyzers.evidence.tables import Settings
    from analyzers.explore.load.actions import archive, verdict_of
    from analyzers.explore.load.analysis import analyse

    store, folder = open_store(job.url), Path(job.folder)
    known = json.loads((folder / "run.json").read_text())
    run, settings = str(known["run"]), Settings(target=job.target)
    beside = Beside()
    if known["other"]:  # The comparison runs first, before the findings fill the memory.
        with store.reading("measurements") as con:  # This is a connection to the one DuckDB of this process.
            _limit(con, 0.5)  # The comparison makes tables outside DuckDB too.
        url, other = known["other"]
        beside = compare(store, run, open_store(url), other, folder)
    analysis = analyse(store, run, settings)
    verdict = verdict_of(analysis, job.url, beside, store.runs())
    verdict.write(folder / VERDICT_FILE)
    _archives[job.folder] = partial(archive, analysis.recommendation, settings)
    return _Judged(analysis, beside.times, verdict)


def _write_final(job: Job, con: duckdb.DuckDBPyConnection, judged: _Judged, first: Path | None = None) -> None:
    """Write the tables with the results of the analyzers, and the runs that call the same GEMMs or convolutions.

    ``first`` is the file with the tables that need no analysis, if ``con`` has written it.
    """
    folder, run = Path(job.folder), judged.analysis.run
    con.execute("set threads = 1")  # The findings stay in memory beside DuckDB.
    _database(con, folder / JUDGED, run, judged.analysis, judged.times, first)
    if len(open_store(job.url).runs()) > 2:
        replace(judged.verdict, alike=tuple(runs_alike(con, run))).write(folder / VERDICT_FILE)


def _connect(store: Store) -> duckdb.DuckDBPyConnection:
    con = store.connect()
    _limit(con)
    con.execute("set preserve_insertion_order = false")
    con.execute("set enable_progress_bar = false")
    return con


def _limit(con: duckdb.DuckDBPyConnection, part: float = 1.0) -> None:
    (count,) = con.execute("select count(*) from measurements").fetchall()[0]
    con.execute("set threads = 2")
    con.execute(f"set memory_limit = '{part * (_MB + count // _ROWS_PER_MB):.0f}MB'")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
