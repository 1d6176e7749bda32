"""The store: a folder or URL of Parquet files that any program can read, and the SQL views over them.

    STORE/logparse-store.json                    schema version
    STORE/<table>/[category=C/]<attempt>-N.parquet   parts
    STORE/sources/<path>/<identity>.parquet      the commit of an attempt, written last, by put-if-absent: one row (in
                                                 older stores also one per attempt that read a range of the file)
    STORE/sources/inventory-<id>.json            the small files that existed (see ``inventory``)
    STORE/compactions/<number>.parquet           what was merged (see ``manifest``)

A *source* is an input file. An *attempt* is one reading of it. A *part* is a Parquet file with rows. The name of each
part contains the attempt that wrote it. Small input files share parts, which are named after their writer (see
``joint``). Each row contains its own attempt. The views show only attempts that are committed: that have a row in
``sources``. So if an ingest is killed, its files are invisible, and the next ingest removes them.

``<path>`` is a hash of the input file's path. With this hash a worker finds the commits of one input file without
reading all others. In older stores a commit may also be in ``sources`` itself. An input file may have several commits:
a log that grew, or standard input, which is committed every few seconds. A commit may replace earlier commits of its
input file.

A commit records its parts (see ``digests``). Before a table is read, two things are checked: all commits exist, and the
table's parts have the recorded sizes. For a local store the recorded checksums are checked, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from logparse.errors import StoreError
from logparse.location import (
    META,
    PutIfAbsent,
    explain_os_errors,
    flush,
    make_folder,
    put_if_absent,
    resolve,
)
from logparse.quoting import Shell, shell_line, sql_text
from logparse.store.columns import column, conform
from logparse.store.columns import table as arrow_table
from logparse.store.copies import copies, copies_table
from logparse.store.damage import find_damage, find_weaknesses, why_not
from logparse.store.database import database, shared_database
from logparse.store.digests import Part
from logparse.store.findings import read_findings, write_findings
from logparse.store.joint import JointAttempts
from logparse.store.manifest import (
    Manifest,
    record_forgotten,
)
from logparse.store.parts import Attempt, Place, attempt_of, path_folder, row_file, writers_of
from logparse.store.recorded import Recorded
from logparse.store.schema import (
    FOREIGN,
    PARTITIONED,
    RECORDED,
    SCHEMA_VERSION,
    SCHEMAS,
    VIEWS,
    Commit,
    commit_from_row,
    live_commits,
)
from logparse.store.store_files import COMBINED, READ_TOGETHER, StoreFiles
from logparse.store.sweep import sweep
from logparse.store.unreadable import COLUMNS, left_out_sql, unreadable_texts
from logparse.store.views import named_in, view_sql

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow.dataset as ds

_OWN = {"calls": "calls", "workload": "workload", "messages": "process_messages"}  # frames of one run, and their views
FRAMES = (
    *_OWN,
    "sources",
    "gemm_problems",
    "conv_problems",
    "links",
    "measurements",
    "solutions",
    "kernels",
    "collectives",
    "facts",
)
"""Names of the tables that the analyzers read."""
_FEW, _SMALL_BYTES = 64, 16 << 20
"""Largest number of files, and largest number of bytes, of a table that is read into memory as a whole."""
_LARGE = frozenset({"gemms", "convs", "measurements", "timelines"})
_TRIES = 3
"""How often a reader looks for a missing file, because another process may be replacing it at this moment."""
_VERIFIED: dict[str, tuple[int | None, Part]] = {}
"""Files of local stores whose checksums this process has already checked, by path.

The number is the time of the file's last change, in nanoseconds.
"""


def _rows_of(view: str) -> Callable[..., pd.DataFrame]:
    """Make a method of the class Store that returns all rows of a view. The order of the rows is not defined."""

    def rows(self: Store, run: str | None = None) -> pd.DataFrame:
        return self.query(f"select * from {view}", run)

    rows.__doc__ = f"A DataFrame, of one run if it is named: {VIEWS[view]}."
    return rows


class Store(StoreFiles):
    """The store: a folder or URL in which logparse keeps everything that it has read from logs and measured.

    ``open_store`` opens one. Its methods return tables as pandas DataFrames. The methods of ``StoreFiles`` tell which
    files it has, and which input files were read.
    """

    def __init__(self, url: str, filesystem: pafs.FileSystem, root: str) -> None:
        super().__init__(filesystem, root)
        self.url = url
        self._unreadable: dict[frozenset[str], list[str]] = {}

    # ------------------------------------------------------------------ writing

    @cached_property
    def put(self) -> PutIfAbsent:
        return put_if_absent(self.url, self.filesystem)

    @cached_property
    def place(self) -> Place:
        """The folder or URL into which this store's files are written."""
        return Place(self.filesystem, self.root, self.put)

    def attempt(self) -> Attempt:
        """Begin to store the rows of an input file. They become visible when ``commit`` of the result is called."""
        return Attempt(os.urandom(8).hex(), self.place)

    def joint_attempts(self) -> JointAttempts:
        """Begin to store the rows of several small input files together, in the same Parquet files."""
        return JointAttempts(os.urandom(8).hex(), self.place, lambda: self.manifest().attempts)

    def forget(self, name: str) -> list[str]:
        """Remove data from the store: a run (one execution of a job), input files, or a merged file.

        ``name`` is a run, the end of the path of input files, or the path of a merged file. Returns the paths of the
        removed input files, or the path of the merged file. The rows are invisible at once. Some rows stay on the disk
        until the next compaction: rows that were merged or are being merged, and rows in files that also hold rows of
        other input files. Raises StoreError if nothing matches.
        """
        manifest = self.manifest()
        rows = [commit_from_row(row) for row in self.commit_table(manifest).to_pylist()]
        if name in manifest.parts:
            self._forget([name])
            self.delete(f"{self.root}/{name}")
            return [name]

        def means(run: str, path: str) -> bool:
            return name in (run, path) or path.endswith("/" + name)

        named = [row for row in live_commits(rows) if means(row.run, row.path)]
        listed = [one for one in self.inventory.rows if means(one.run, one.path)]
        of_name = (f"sources/{path_folder(name)}/", *(one.file for one in listed))
        damaged = [path for path in self._damaged if self.below(path).startswith(of_name)]
        missed = {*(one.file for one in self._missing(manifest)), *map(self.below, damaged)}
        lost = [one for one in listed if one.file in missed]
        if not named and not lost and not damaged:
            runs, files = (command_line(self.url, *x) for x in (("status",), ("sql", "select path from sources")))
            raise StoreError(
                f"{self.url} has no run or file called {name!r}; `{runs}` lists the runs, `{files}` the files"
            )
        sources = {row.source_id for row in named}
        doomed = {row.attempt: row for row in rows if row.source_id in sources}
        # This step comes first.  After it all rows are invisible, and no reader reports a deleted row file as lost.
        self._forget({*doomed, *(one.attempt for one in lost)})
        gone = [f"{self.root}/{path}" for row in doomed.values() for path in _places(row)] + damaged
        for path in gone:
            self.delete(path)
        # The row files' folders are flushed before the parts are deleted.
        flush(self.filesystem, self.root, folders={path.rsplit("/", 1)[0] for path in gone})
        unused = writers_of(doomed) - writers_of(row.attempt for row in rows if row.attempt not in doomed)
        for table in SCHEMAS:
            for path in self.files(table):
                if attempt_of(path) in unused:
                    self.delete(path)
        return sorted({*(row.path for row in named), *(one.path for one in lost)}) or [name]

    def _forget(self, names: Iterable[str]) -> None:
        """Note in the store that the user has removed some data, so that their rows are no longer read.

        ``names`` are names of input files' data or of merged files.
        """
        record_forgotten(self.filesystem, self.root, names)
        # The small file with this note is added to a list, so that its loss would be noticed.
        self.take_inventory()

    def damage(self) -> list[str]:
        """Check all files of the store. Return a line for each missing or damaged file, with what is lost."""
        return find_damage(self)

    def remarks(self) -> list[str]:
        """Return remarks about weaknesses of this store that are no damage, one line for each kind."""
        return find_weaknesses(self)

    def sweep(self, older_than_s: float = 3600, *, unread: bool = False) -> int:
        """Remove files that no reader of the store needs any more. Return how many were removed.

        ``logparse.store.sweep`` lists these files. ``unread`` means that no other process reads the store.
        """
        return sweep(self, older_than_s, unread=unread)

    def write_findings(self, rows: pd.DataFrame, run: str | None = None) -> None:
        """Replace the rows of the view ``findings`` for ``run``. Without a run, all rows are replaced.

        The new rows have the columns of ``FINDINGS_SCHEMA``.
        """
        write_findings(self, rows, run, self.runs() if run is not None else ())

    # ------------------------------------------------------------------ reading

    def runs(self) -> list[str]:
        """Return the labels of the executions of jobs (runs) in the store, the oldest first."""
        table, first = self.live_table(), dict[str, float]()
        for run, at in zip(table["run"].to_pylist(), table["committed_at"].to_pylist(), strict=True):
            first[run] = min(at, first.get(run, at))
        return sorted(first, key=lambda run: first[run])

    def latest_run(self, run: str | None = None) -> str:
        """Return ``run`` if it is given, and otherwise the label of the latest run (execution of a job) in the store.

        Raises StoreError, which names the existing runs, if the run does not exist.
        """
        runs = self.runs()
        if not runs:
            raise StoreError(self.empty)
        if run is not None and run not in runs:
            raise StoreError(f"{self.url} has no run {run!r}; its runs are {', '.join(runs[-10:])}")
        if run is not None:
            return run
        # Runs that have no file of a known format are chosen only if there are no others.
        table = self.live_table()
        rows = zip(*(table[name].to_pylist() for name in ("run", "format", "lines")), strict=True)
        known = {run for run, format, lines in rows if format != FOREIGN or not lines}
        return next((run for run in reversed(runs) if run in known), runs[-1])

    @property
    def empty(self) -> str:
        """The sentence for the user if the store contains nothing."""
        return f"{self.url} is empty; ingest some logs first (`{command_line(self.url, 'ingest')} PATH…`)"

    def connect(
        self, run: str | None = None, *, sealed: bool = False, sql: str | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Return a new DuckDB connection in which the store's views can be queried.

        * ``run`` limits every view to one execution of a job.
        * ``sql`` is the query that will be run. Only the views that it needs are made, because making all takes longer
          than most queries.
        * ``sealed`` must be True if the caller will then deny access to files, for SQL that is not trusted. The files
          of the views stay readable.

        DuckDB itself reads the large tables of a local store, which takes a third less time and memory.
        """
        con = database()
        allowed = self._make_views(con, run, sql, "view")
        if sealed and allowed:
            con.execute(f"set allowed_paths = [{', '.join(map(sql_text, allowed))}]")
        return con

    def reading(self, sql: str | None = None, run: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a fast DuckDB connection for trusted SQL that only reads. It has the same views as ``connect``.

        The SQL must not change a setting, and may make only temporary tables.
        """
        # ``connect`` opens a new DuckDB, which takes longer than most queries. This method uses one DuckDB for all
        # readers in the process, and they have the same settings and tables.
        con = shared_database().cursor()
        self._make_views(con, run, sql, "temp view")
        return con

    def _make_views(self, con: duckdb.DuckDBPyConnection, run: str | None, sql: str | None, view: str) -> list[str]:
        """Create the store's SQL views in a DuckDB connection. ``connect`` describes ``run`` and ``sql``.

        ``view`` is ``view`` or ``temp view``. Returns the paths of the files that DuckDB itself will read.
        """
        views = view_sql(run)
        if sql is not None:
            views = named_in(sql, views)
            sql = " ".join([sql, *views.values()])
        tables = [table for table in SCHEMAS if sql is None or f"{table}_" in sql]
        commits, manifest, found = self.whole(run, tables)
        found_copies = copies(commits)
        con.register("copies_", copies_table(found_copies))
        con.register("sources_", counting := commits.drop_columns([RECORDED]))
        if found_copies:
            sources = counting["source_id"].to_pylist()
            counting = counting.filter(column([source not in found_copies for source in sources], pa.bool_()))
        con.register("commits_", counting)
        attempts = set(commits["attempt"].to_pylist())
        single = attempts - manifest.attempts
        # ``halves`` names joint parts of which a compaction merged only some rows.
        halves = writers_of(single) & writers_of(manifest.attempts)
        allowed: list[str] = []
        asked = sql is None or any(f"{table}_" in sql for table in COLUMNS)
        bad = self.unreadable(commits, manifest) if asked else []
        if bad:
            con.register("unreadable_", pa.table({"text": column(bad, pa.string())}))
        for table, parts in found.items():
            schema = SCHEMAS[table]
            whole = bool(bad) and table in COLUMNS
            name = f"{table}_whole_" if whole else f"{table}_"
            torn = [p for p in parts if attempt_of(p) in halves]
            paths = parts if table in _LARGE and self.folder is not None and not torn else []
            if torn:
                con.register(name, self._untorn(table, schema, parts, torn, single))
            elif paths:
                names = ", ".join(map(sql_text, paths))
                wanted = ", ".join(f'"{name}"' for name in schema.names)  # parts of earlier versions have more columns
                read = f"read_parquet([{names}], hive_partitioning=false, union_by_name=true)"
                con.register(f"{table}_none_", arrow_table([], schema))  # and lack some, which are then unknown
                every = f"select * from {read} union all by name select * from {table}_none_"
                con.execute(f"create {view} {name} as select {wanted} from ({every})")
                allowed += paths
            else:
                con.register(name, self._dataset(table, schema, parts))
            if whole:
                con.execute(f"create {view} {table}_ as from {name} where not ({left_out_sql(table)})")
        if sql is None or "findings_" in sql:
            con.register("findings_", read_findings(self))
        for name, definition in views.items():
            con.execute(f"create {view} {name} as {definition}")
        return allowed

    def whole(self, run: str | None, tables: Iterable[str]) -> tuple[pa.Table, Manifest, dict[str, list[str]]]:
        """Check that some tables are complete. Return the input files, the list of merged data, and the tables' files.

        ``run`` limits the input files to one execution of the job. Raises StoreError if a file is missing or damaged.
        """
        for left in reversed(range(_TRIES)):
            manifest = self.manifest()
            commits = self.live_table(run, manifest)
            try:
                if lost := self.lost_commits(manifest):
                    raise StoreError(f"{self.url}/{lost[0]}")
                recorded = Recorded(commits, manifest)
                return commits, manifest, {table: self.parts(table, recorded) for table in tables}
            except StoreError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def copies(self, run: str | None = None) -> list[tuple[str, str]]:
        """Return the input files that are copies of another input file of the same run, each with that other file.

        Files are given by their paths. The rows of a copy are left out of all views (see ``copies``).
        """
        commits = self.live_table()  # of all runs, because to filter a table imports pyarrow.compute
        if not (found := copies(commits)):
            return []
        ids, paths, runs = (commits[name].to_pylist() for name in ("source_id", "path", "run"))
        of = {source: (path, its) for source, path, its in zip(ids, paths, runs, strict=True)}
        return sorted((of[x][0], of[first][0]) for x, first in found.items() if run in (None, of[x][1]))

    def unreadable(self, commits: pa.Table | None = None, manifest: Manifest | None = None) -> list[str]:
        """Return texts in the store that should describe a matrix product or convolution, but that cannot be parsed.

        Earlier versions stored such texts. Rows with them are in no view.
        """
        commits = self.live_table() if commits is None else commits
        manifest = manifest or self.manifest()
        written = commits["readable"].to_pylist()
        commits = commits.filter(column([not readable for readable in written], pa.bool_()))
        old = frozenset(commits["attempt"].to_pylist())
        if old not in self._unreadable:
            found: list[str] = []
            if old:
                recorded = Recorded(commits, manifest)
                with shared_database().cursor() as con:
                    for table in ("gemms", "convs", "kernels"):
                        con.register(f"{table}_", self._dataset(table, SCHEMAS[table], self.parts(table, recorded)))
                    found = unreadable_texts(con)
            self._unreadable[old] = found
        return self._unreadable[old]

    def left_out(self) -> int:
        """Return how many rows of the store are shown in no view, because a text in them cannot be read.

        An earlier version stored such rows.
        """
        if not self.unreadable():
            return 0
        with self.reading() as con:
            counts = (
                con.execute(f"select count(*) from {x}_whole_ where {left_out_sql(x)}").fetchall() for x in COLUMNS
            )
            return sum(count for ((count,),) in counts)

    def sql(
        self, sql: str, run: str | None = None, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> pd.DataFrame:
        """Return the result of a SELECT over the store's views as a DataFrame (see ``docs/sql.md``).

        ``run`` limits every view to one execution of a job. SQL that is not trusted needs ``logparse.sql.query``.
        """
        # The query runs in this process, without limits.
        with self._pages_verified(), self.reading(sql, run) as con:
            return con.execute(sql, parameters or None).df()

    query = sql  # its name in this package

    @contextmanager
    def _pages_verified(self) -> Iterator[None]:
        """Context that turns an error about a damaged Parquet file into a StoreError that tells the user what to do.

        This is for a store at a URL, because local files are checked before they are read.
        """
        try:
            yield
        except Exception as error:  # from pyarrow, or from DuckDB that called pyarrow
            if "CRC checksum" not in str(error):
                raise
            # The original error (of a page's checksum) does not name the file.
            remedy = f"`{command_line(self.url, 'check')}` names the file and what is lost"
            raise StoreError(f"{self.url}: a file is damaged (the CRC checksum of a page differs); {remedy}") from error

    def __repr__(self) -> str:
        return f"Store({self.url!r}, runs: {', '.join(self.runs()) or 'none'})"

    def frames(self, run: str | None = None, names: Sequence[str] = FRAMES) -> dict[str, pd.DataFrame]:
        """Return the tables that the analyses need, as DataFrames by name.

        ``calls``, ``workload`` and ``messages`` have the rows of one run (by default the latest one). The other tables
        have the rows of all runs.
        """
        run = self.latest_run(run)
        out = {}
        with self._pages_verified(), self.reading(" ".join(names)) as con:
            for name in names:
                own = f"{_OWN[name]} where run = $run" if name in _OWN else None
                out[name] = con.execute(f"select * from {own or name}", {"run": run} if own else None).df()
        return out

    sources = _rows_of("sources")
    calls = _rows_of("calls")
    workload = _rows_of("workload")
    messages = _rows_of("messages")
    gemm_problems = _rows_of("gemm_problems")
    conv_problems = _rows_of("conv_problems")
    links = _rows_of("links")
    measurements = _rows_of("measurements")
    solutions = _rows_of("solutions")
    kernels = _rows_of("kernels")
    collectives = _rows_of("collectives")
    facts = _rows_of("facts")
    rejects = _rows_of("rejects")
    findings = _rows_of("findings")

    def rows(self, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read several Parquet files into one table with the columns of ``schema``.

        A column that a file lacks becomes null. The category of log lines is taken from the folder's name.
        """

        def read(path: str) -> pa.Table:
            file = pq.ParquetFile(path, filesystem=self.filesystem, page_checksum_verification=True)
            rows = file.read(use_threads=False)
            folder = path.split("/")[-2]
            if folder.startswith("category="):  # the table is partitioned
                rows = rows.append_column("category", column([folder.partition("=")[2]] * len(rows), pa.string()))
            return conform(rows, schema)

        # ``pyarrow.dataset`` would be as fast, but it imports pandas, which takes longer than reading most logs.
        found = [arrow_table([], schema)]
        with ThreadPoolExecutor(READ_TOGETHER) as reading:
            for start in range(0, len(paths), COMBINED):  # a table of one row takes far more memory than the row
                some = pa.concat_tables(reading.map(read, paths[start : start + COMBINED]))
                found.append(some.combine_chunks())
        return pa.concat_tables(found)

    def parts(self, table: str, recorded: Recorded) -> list[str]:
        """Check that the Parquet files of a table are complete, and return the paths of the files to read.

        The files may also contain rows of other input files. Raises StoreError if a file is missing or differs from
        ``recorded``.
        """
        listed = {self.below(info.path): info for info in self.infos(table) if info.path.endswith(".parquet")}
        # The sizes are compared with those noted in ``recorded``, and in a local store also the checksums.
        lines = recorded.cut(table, listed)
        infos = [info for path, info in listed.items() if recorded.holds(path)]
        if self.folder is not None and not lines:
            told = ((info, recorded.parts.get(self.below(info.path))) for info in infos)
            fresh = [(info, part) for info, part in told if part and _VERIFIED.get(info.path) != (info.mtime_ns, part)]
            with ThreadPoolExecutor(READ_TOGETHER) as reading:
                reasons = reading.map(lambda one: why_not(self, one[1].path, one[1]), fresh)
            for (info, part), why in zip(fresh, reasons, strict=True):
                if why:
                    lines.append(recorded.line(part.path, why))
                else:
                    _VERIFIED[info.path] = info.mtime_ns, part
        if lines:
            more = f" (and {len(lines) - 1} more: `{command_line(self.url, 'check')}`)" * (len(lines) > 1)
            raise StoreError(f"{self.url}/{lines[0]}{more}")
        return [info.path for info in infos]

    def _untorn(
        self, table: str, schema: pa.Schema, parts: Sequence[str], torn: Sequence[str], single: Set[str]
    ) -> pa.Table:
        """Read some Parquet files, without the rows that were already copied into a larger, merged file.

        * ``torn``: the files of which only some rows were merged.
        * ``single``: names of the input files' data that were not merged.
        """
        read = (self._dataset(table, schema, some) for some in ([*{*parts} - {*torn}], torn))
        whole, half = (x if isinstance(x, pa.Table) else x.to_table() for x in read)
        # The merged rows of a torn file would otherwise be read twice.
        mine = [attempt in single for attempt in half["attempt"].to_pylist()]
        return pa.concat_tables([whole, half.filter(column(mine, pa.bool_()))])

    def _dataset(self, table: str, schema: pa.Schema, paths: Sequence[str]) -> pa.Table | ds.Dataset:
        if not paths:
            return arrow_table([], schema)
        infos = self.filesystem.get_file_info(list(paths)) if len(paths) <= _FEW and self.folder is not None else []
        if infos and sum(info.size for info in infos) <= _SMALL_BYTES:
            try:
                return self.rows(paths, schema)  # pyarrow.dataset imports pandas
            except (OSError, pa.ArrowException) as error:
                why = str(error).partition("\n")[0]
                raise StoreError(f"{self.url}/{table}: {why}; `logparse check` names the file") from error
        import pyarrow.dataset as ds

        by_category = ds.partitioning(pa.schema([("category", pa.string())]), flavor="hive")
        return ds.dataset(
            paths,
            filesystem=self.filesystem,
            schema=schema,
            format=ds.ParquetFileFormat(
                default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            ),
            partitioning=by_category if table in PARTITIONED else None,
            partition_base_dir=f"{self.root}/{table}",
        )


def _places(row: Commit) -> tuple[str, str]:
    """Return the two possible paths of the small file which says that an input file was read.

    The first path is used today. The second one was used in older stores. Both begin at the store's folder.
    """
    return row_file(row), f"sources/{row_file(row).rsplit('/', 1)[-1]}"


def command_line(store: str | None, verb: str, *words: str) -> Shell:
    """Return the command ``logparse VERB …`` as a text that can be pasted into a shell.

    ``--store`` is added if the command would not find the store without it.
    """
    default = os.environ.get("LOGPARSE_STORE") or "logparse-store"
    return shell_line(["logparse", verb, *([] if store in (None, default) else ["--store", store]), *words])


def new_label(label: str, runs: Iterable[str]) -> str:
    """Return ``label``, or the first of ``label2``, ``label3``, … that is not the label of a stored run (``runs``)."""
    known = set(runs)
    numbered = (f"{label}{n}" for n in count(2))
    return next(x for x in chain([label], numbered) if x not in known)


def open_store(location: str | os.PathLike[str] | None = None, *, create: bool = False) -> Store:
    """Open the store at a folder or URL.

    The default location is ``$LOGPARSE_STORE``, or the folder ``logparse-store``. Raises StoreError if there is no
    store (unless ``create`` is True), if it cannot be reached, or if it has another schema version.
    """
    url = os.fspath(location or os.environ.get("LOGPARSE_STORE") or "logparse-store")
    filesystem, root = resolve(url)
    meta, store = f"{root}/{META}", Store(url, filesystem, root)
    with explain_os_errors(url, StoreError):
        if not filesystem.get_file_info(meta).is_file:
            if not create:
                raise StoreError(
                    f"no store at {url}; ingest a log first, or name another store with --store or LOGPARSE_STORE"
                )
            there = root
            while filesystem.get_file_info(there).type == pafs.FileType.NotFound and there.strip("/"):
                there = os.path.dirname(there)
            make_folder(filesystem, root)
            put_if_absent(url, filesystem)(meta, json.dumps({"schema": SCHEMA_VERSION}).encode())
            flush(filesystem, there, folders=[root])
        with filesystem.open_input_stream(meta) as stream:
            text = stream.read()
    try:
        version = json.loads(text)["schema"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{url}/{META} is damaged; if {url} is a store, restore this file: {error}") from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{url} has schema {version}, but this logparse writes {SCHEMA_VERSION}; ingest the logs into a new "
            "store, or use the logparse version that wrote this one"
        )
    return store
