"""The store: a folder or URL of Parquet files that anything can read, and the SQL views over them.

    STORE/logparse-store.json                    schema version
    STORE/<table>/[category=C/]<attempt>-N.parquet   parts
    STORE/sources/<path>/<identity>.parquet      one row: the commit of an attempt, written last, by put-if-absent

Parts carry the *attempt* that wrote them; only attempts with a row in ``sources`` exist for the views, so a killed
ingest leaves nothing but files that the next one removes.  ``<path>`` is a hash of the source's path, so that a worker
finds what there is of one file without reading about all others (a row file may also stand in ``sources`` itself).
A source may have several commits (a log that grew, standard
input every few seconds); a commit may replace earlier ones of its source.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from logparse.columns import column
from logparse.columns import table as arrow_table
from logparse.errors import StoreError
from logparse.formats.format import UNITS, Unit
from logparse.links import links_sql
from logparse.location import META, PutIfAbsent, explained, make_folder, put_if_absent, replace_file, resolve
from logparse.model import CONV_FIELDS, GEMM_FIELDS

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow.dataset as ds

SCHEMA_VERSION = 1
_TEXT_FIELDS = re.compile(
    r"(trans_|_type$|_mode$|^mode$|_layout$|_cast$|^scale_[abcd]$|^(activation|beta|bias_source|direction)$)"
)
_BOOL_FIELDS = frozenset({"gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a", "swizzle_b"})


def _problem_fields(names: Sequence[str], bools: frozenset[str]) -> list[tuple[str, pa.DataType]]:
    def kind(name: str) -> pa.DataType:
        return pa.bool_() if name in bools else pa.string() if _TEXT_FIELDS.search(name) else pa.int64()

    return [(name, kind(name)) for name in names]


_ATTEMPT = [("attempt", pa.string())]
SCHEMAS: Mapping[str, pa.Schema] = {
    "calls": pa.schema(
        [
            *_ATTEMPT,
            *((name, pa.string()) for name in ("kind", "problem", "solution")),
            ("pid", pa.int64()),
            ("device", pa.int32()),
            ("first_seen", pa.timestamp("s")),
            ("last_seen", pa.timestamp("s")),
            ("count", pa.int64()),
            ("workspace_bytes", pa.int64()),
            ("by_tool", pa.bool_()),
            ("category", pa.string()),
        ]
    ),
    "messages": pa.schema(
        [
            *_ATTEMPT,
            ("pid", pa.int64()),
            ("function", pa.string()),
            ("text", pa.string()),
            ("count", pa.int64()),
            ("offset", pa.int64()),
            ("category", pa.string()),
        ]
    ),
    "measurements": pa.schema(
        [
            *_ATTEMPT,
            *(
                (x, pa.string())
                for x in ("origin", "kind", "problem", "library", "solution", "raw", "algorithm", "status")
            ),
            *((x, pa.float64()) for x in ("time_us", "min_us", "max_us", "std_us")),
            ("samples_us", pa.list_(pa.float64())),
            ("workspace_bytes", pa.int64()),
            ("error", pa.string()),
            ("key_text", pa.string()),
            ("ordinal", pa.int32()),
        ]
    ),
    "solutions": pa.schema([*_ATTEMPT, *((x, pa.string()) for x in ("library", "solution", "name", "kernel_name"))]),
    "kernels": pa.schema(
        [
            *_ATTEMPT,
            ("device", pa.int32()),
            *((x, pa.string()) for x in ("op", "problem", "kernel")),
            ("calls", pa.int64()),
            *((x, pa.float64()) for x in ("total_us", "min_us", "max_us", "dram_gb_per_s")),
        ]
    ),
    "facts": pa.schema([*_ATTEMPT, ("name", pa.string()), ("value", pa.string())]),
    "rejects": pa.schema(
        [
            *_ATTEMPT,
            ("offset", pa.int64()),
            ("length", pa.int64()),
            ("count", pa.int64()),
            ("reason", pa.string()),
            ("text", pa.string()),
            ("line", pa.int64()),  # a hash that equal lines share, whatever part of the file they were read with
        ]
    ),
    "gemms": pa.schema(
        [
            *_ATTEMPT,
            *((x, pa.string()) for x in ("problem", "kind", "shape")),
            *_problem_fields(GEMM_FIELDS, _BOOL_FIELDS),
            ("members", pa.string()),
            ("epilogue", pa.string()),
            ("flops", pa.int64()),
        ]
    ),
    "convs": pa.schema(
        [
            *_ATTEMPT,
            *((x, pa.string()) for x in ("problem", "shape")),
            *_problem_fields(CONV_FIELDS, frozenset()),
            ("flops", pa.int64()),
        ]
    ),
}
"""The part files' columns.  ``calls`` and ``messages`` are partitioned by ``category`` (a folder each)."""

PARTITIONED = frozenset({"calls", "messages"})
_LARGE = frozenset({"gemms", "convs", "measurements"})
_WRITERS = 2
_BESIDE = 4096  # rows from which on a part is worth a thread


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One row of ``sources/``: what one attempt read of a source (bytes ``start`` to ``end`` of the raw file)."""

    attempt: str
    source_id: str
    run: str
    path: str
    format: str
    content_hash: str  # of raw bytes 0 to ``end``
    start: int
    end: int
    bytes: int  # decompressed bytes read by this attempt
    lines: int
    splits: int = 0
    units: Mapping[Unit, int] = field(default_factory=dict)
    pid: int | None = None
    pid_from: str | None = None
    tail: bool = False  # holds only a last line that has no line end yet
    whole: bool = False  # a whole-file format: growth means reading all of it again
    replaces: tuple[str, ...] = ()
    ended: str | None = None  # how the input ended, where that is odd
    bench_output: bool = False  # holds output of hipblaslt-bench: its bench lines are a tool's
    committed_at: float = 0.0
    seconds: float = 0.0


_COMMIT_SCHEMA = pa.schema(
    [
        *((x, pa.string()) for x in ("attempt", "source_id", "run", "path", "format", "content_hash")),
        *((x, pa.int64()) for x in ("start", "end", "bytes", "lines", "splits")),
        *((f"{unit}_lines", pa.int64()) for unit in UNITS),
        ("pid", pa.int64()),
        ("pid_from", pa.string()),
        ("tail", pa.bool_()),
        ("whole", pa.bool_()),
        ("replaces", pa.list_(pa.string())),
        ("ended", pa.string()),
        ("bench_output", pa.bool_()),
        ("committed_at", pa.float64()),
        ("seconds", pa.float64()),
    ],
    metadata={"logparse_schema": str(SCHEMA_VERSION)},
)

VIEWS: Mapping[str, str] = {
    "sources": "one row per ingested file",
    "calls": "source × category × problem × solution (× second where there is a clock)",
    "workload": "run × process × problem, from the one category with the most calls",
    "messages": "source × category × distinct text",
    "gemm_problems": "distinct GEMM",
    "conv_problems": "distinct convolution",
    "links": "pair of problems that may be the same call",
    "measurements": "source × problem × solution × ordinal",
    "solutions": "solution of a library build",
    "kernels": "source × operator × kernel (traces)",
    "facts": "source × name",
    "rejects": "distinct bad line",
    "findings": "finding of the last recommend",
}


class Store:
    """A store that exists.  Open it with ``open_store``; all tables come back as pandas DataFrames."""

    def __init__(self, url: str, filesystem: pafs.FileSystem, root: str) -> None:
        self.url = url
        self._fs = filesystem
        self._root = root

    # ------------------------------------------------------------------ writing

    @cached_property
    def _put(self) -> PutIfAbsent:
        return put_if_absent(self.url, self._fs)

    def attempt(self) -> Attempt:
        """A fresh attempt to read one source; nothing of it is visible before its ``commit``."""
        return Attempt(self._fs, self._root, secrets.token_hex(8), self._put)

    def commits(self) -> list[Commit]:
        """The live commits, replaced ones left out, in order of commitment."""
        return _live(_commit_from_row(row) for row in self._commit_table().to_pylist())

    def commits_of(self, path: str, known: Sequence[Commit] = ()) -> list[Commit]:
        """The live commits of one path as of this moment, with those that are ``known`` of an earlier one."""
        files = [p for p in self._files(f"sources/{_path_folder(path)}") if p.endswith(".parquet")]
        rows = [row for p in files for row in pq.ParquetFile(p, filesystem=self._fs).read().to_pylist()]
        found = [_commit_from_row(row) for row in rows if row["path"] == path]
        return _live({row.attempt: row for row in (*known, *found)}.values())

    def known(self) -> Callable[[str], Sequence[Commit]]:
        """The commits of a path, as of now.  Of all paths at once, in little memory."""
        table = self._commit_table()
        rows: dict[str, list[int]] = {}
        for number, path in enumerate(table["path"].to_pylist()):
            rows.setdefault(path, []).append(number)
        return lambda path: _live(_commit_from_row(table.slice(n, 1).to_pylist()[0]) for n in rows.get(path, ()))

    def _commit_table(self) -> pa.Table:
        paths = [p for p in self._files("sources") if p.endswith(".parquet")]
        if not paths:
            return arrow_table([], _COMMIT_SCHEMA)
        import pyarrow.dataset as ds  # brings pandas; a first ingest needs neither

        return ds.dataset(paths, filesystem=self._fs, schema=_COMMIT_SCHEMA, format="parquet").to_table()

    def forget(self, name: str) -> list[str]:
        """Remove a run, or the sources whose path ends in ``name``.  Returns the paths that are gone.

        Raises StoreError when nothing matches.
        """
        rows = [row for row in self.commits() if name in (row.run, row.path) or row.path.endswith("/" + name)]
        if not rows:
            raise StoreError(f"nothing in {self.url} is called {name!r}; `logparse status` lists runs and files")
        doomed = {row.source_id for row in rows}
        for path in self._files("sources"):
            if pq.read_table(path, filesystem=self._fs, columns=["source_id"])["source_id"][0].as_py() in doomed:
                self._fs.delete_file(path)
        self.sweep(older_than_s=0)
        return sorted({row.path for row in rows})

    def sweep(self, older_than_s: float = 3600) -> int:
        """Remove parts of attempts that never committed and have not been touched for a while.  Returns how many."""
        live = set(self._commit_table()["attempt"].to_pylist())
        removed = 0
        for table in SCHEMAS:
            selector = pafs.FileSelector(f"{self._root}/{table}", recursive=True, allow_not_found=True)
            for info in self._fs.get_file_info(selector):
                age = time.time() - (info.mtime_ns or 0) / 1e9
                if info.is_file and _attempt_of(info.path) not in live and age > older_than_s:
                    with contextlib.suppress(FileNotFoundError):  # another ingest swept it first
                        self._fs.delete_file(info.path)
                        removed += 1
        return removed

    def write_findings(self, rows: pd.DataFrame) -> None:
        """Replace the view ``findings`` by these rows (columns of ``_FINDINGS_SCHEMA``)."""
        rows = rows.reindex(columns=_FINDINGS_SCHEMA.names)
        table = pa.Table.from_pandas(rows, _FINDINGS_SCHEMA, preserve_index=False)
        make_folder(self._fs, f"{self._root}/findings")
        replace_file(self._fs, f"{self._root}/findings/findings.parquet", _parquet_bytes(table))

    # ------------------------------------------------------------------ reading

    def runs(self) -> list[str]:
        """Run labels, oldest first."""
        first: dict[str, float] = {}
        for row in self.commits():
            first.setdefault(row.run, row.committed_at)
        return sorted(first, key=lambda run: first[run])

    def latest_run(self, run: str | None = None) -> str:
        """``run`` if it exists, else (None) the latest one.  Raises StoreError naming what there is."""
        runs = self.runs()
        if not runs:
            raise StoreError(f"{self.url} is empty: ingest some logs first (`logparse ingest PATH…`)")
        if run is not None and run not in runs:
            raise StoreError(f"no run {run!r} in {self.url}; there is {', '.join(runs[-10:])}")
        return run or runs[-1]

    @property
    def folder(self) -> Path | None:
        """Where the store lies on this machine's disk; None for one behind a URL."""
        return Path(self._root) if isinstance(self._fs, pafs.LocalFileSystem) else None

    def connect(self, run: str | None = None, *, direct: bool = False) -> duckdb.DuckDBPyConnection:
        """An in-memory DuckDB connection with the views; ``run`` limits every view to one run.

        ``direct`` lets DuckDB read the large tables of a local store by itself: a third less time and memory, but the
        connection must keep its access to files, which SQL of strangers may not have.
        """
        import duckdb

        config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        config["temp_directory"] = tempfile.gettempdir()  # by default it is .tmp, wherever the user happens to be
        con = duckdb.connect(config=config)
        rows = [row for row in self.commits() if run is None or row.run == run]
        con.register("commits_", pa.Table.from_pylist([_commit_row(row) for row in rows], schema=_COMMIT_SCHEMA))
        live = {row.attempt for row in rows}
        for table, schema in SCHEMAS.items():
            paths = self._parts(table, live) if direct and table in _LARGE and self.folder is not None else []
            if paths:
                names = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
                wanted = ", ".join(f'"{name}"' for name in schema.names)  # parts of earlier versions have more
                parts = f"read_parquet([{names}], hive_partitioning=false)"
                con.execute(f"create view {table}_ as select {wanted} from {parts}")
            else:
                con.register(f"{table}_", self._dataset(table, schema, live))
        findings = f"{self._root}/findings/findings.parquet"
        has_findings = self._fs.get_file_info(findings).is_file
        con.register(
            "findings_",
            pq.read_table(findings, filesystem=self._fs) if has_findings else _FINDINGS_SCHEMA.empty_table(),
        )
        for view, sql in _view_sql(run).items():
            con.execute(f"create view {view} as {sql}")
        return con

    def query(self, sql: str, run: str | None = None, parameters: Sequence[object] = ()) -> pd.DataFrame:
        """The result of trusted SQL over the views (for SQL of strangers see ``logparse.sql``)."""
        with self.connect(run) as con:
            return con.execute(sql, list(parameters)).df()

    def frames(self, run: str | None = None) -> dict[str, pd.DataFrame]:
        """The tables that analyzers take: of one run (default the latest) where they are the run's own, else of all."""
        run = self.latest_run(run)
        own = ("calls", "workload", "process_messages")
        with self.connect() as con:
            out = {name: con.execute(f"select * from {name} where run = ?", [run]).df() for name in own}
            for name in (
                "sources",
                "gemm_problems",
                "conv_problems",
                "links",
                "measurements",
                "solutions",
                "kernels",
                "facts",
            ):
                out[name] = con.execute(f"select * from {name}").df()
        out["messages"] = out.pop("process_messages")
        return out

    def _view(self, name: str, run: str | None) -> pd.DataFrame:
        return self.query(f"select * from {name}", run)

    def sources(self, run: str | None = None) -> pd.DataFrame:
        """One row per ingested file: run, path, format, bytes, lines, splits and a count per unit."""
        return self._view("sources", run)

    def calls(self, run: str | None = None) -> pd.DataFrame:
        """Calls by source, category, problem, solution and second."""
        return self._view("calls", run)

    def workload(self, run: str | None = None) -> pd.DataFrame:
        """Calls by run, process and problem, counted once."""
        return self._view("workload", run)

    def messages(self, run: str | None = None) -> pd.DataFrame:
        """Library lines that are no calls, by source, category and distinct text."""
        return self._view("messages", run)

    def gemm_problems(self, run: str | None = None) -> pd.DataFrame:
        """Distinct GEMMs in normal form, with shape, epilogue and flops."""
        return self._view("gemm_problems", run)

    def conv_problems(self, run: str | None = None) -> pd.DataFrame:
        """Distinct convolutions with shape, layer, layout, dtype and flops."""
        return self._view("conv_problems", run)

    def links(self, run: str | None = None) -> pd.DataFrame:
        """Pairs of problems that may be the same call: problem, other, level, fan."""
        return self._view("links", run)

    def measurements(self, run: str | None = None) -> pd.DataFrame:
        """Times (µs) of solutions for problems, or the reason why there is none."""
        return self._view("measurements", run)

    def solutions(self, run: str | None = None) -> pd.DataFrame:
        """Solutions of library builds with their names."""
        return self._view("solutions", run)

    def kernels(self, run: str | None = None) -> pd.DataFrame:
        """GPU kernels by operator (traces), times in µs."""
        return self._view("kernels", run)

    def facts(self, run: str | None = None) -> pd.DataFrame:
        """Where files were made: source_id, run, name, value."""
        return self._view("facts", run)

    def rejects(self, run: str | None = None) -> pd.DataFrame:
        """Distinct lines that look like ours and could not be read."""
        return self._view("rejects", run)

    def findings(self) -> pd.DataFrame:
        """Findings of the last ``recommend``."""
        return self._view("findings", None)

    def _files(self, folder: str) -> list[str]:
        selector = pafs.FileSelector(f"{self._root}/{folder}", recursive=True, allow_not_found=True)
        return [info.path for info in self._fs.get_file_info(selector) if info.is_file]

    def _parts(self, table: str, live: set[str]) -> list[str]:
        return [p for p in self._files(table) if p.endswith(".parquet") and _attempt_of(p) in live]

    def _dataset(self, table: str, schema: pa.Schema, live: set[str]) -> pa.Table | ds.Dataset:
        paths = self._parts(table, live)
        if not paths:
            return schema.empty_table()
        import pyarrow.dataset as ds

        partitioning = (
            ds.partitioning(pa.schema([("category", pa.string())]), flavor="hive") if table in PARTITIONED else None
        )
        return ds.dataset(
            paths,
            filesystem=self._fs,
            schema=schema,
            format="parquet",
            partitioning=partitioning,
            partition_base_dir=f"{self._root}/{table}",
        )


class Attempt:
    """Part files of one attempt to read a source; ``commit`` makes them exist."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, name: str, put: PutIfAbsent) -> None:
        self.name = name
        self._fs = filesystem
        self._root = root
        self._put = put
        self._parts = 0
        self._writing: deque[Future[None]] = deque()
        self._writers: ThreadPoolExecutor | None = None

    def add(self, table: str, rows: pa.Table, category: str | None = None) -> None:
        """Write rows (any subset of the schema's columns; the rest are null) as one part.

        A large part is written while the caller goes on; what went wrong is raised by a later ``add`` or by ``commit``.
        """
        if not rows.num_rows:
            return
        schema = SCHEMAS[table]
        wanted = [f for f in schema if f.name != "category"] if category is not None else list(schema)
        columns = [_column(rows, f, self.name) for f in wanted]
        part = pa.Table.from_arrays(columns, names=[f.name for f in wanted])
        folder = f"{self._root}/{table}" + (f"/category={category}" if category is not None else "")
        make_folder(self._fs, folder)
        self._parts += 1
        path = f"{folder}/{self.name}-{self._parts}.parquet"
        if rows.num_rows < _BESIDE:
            self._write(part, path)
            return
        if self._writers is None:
            self._writers = ThreadPoolExecutor(_WRITERS, "logparse-parts")
        while len(self._writing) >= _WRITERS:
            self._writing.popleft().result()
        self._writing.append(self._writers.submit(self._write, part, path))

    def _write(self, part: pa.Table, path: str) -> None:
        with self._fs.open_output_stream(path) as sink:
            pq.write_table(part, sink, compression="zstd", compression_level=1, **_encoding(part.schema))

    def commit(self, row: Commit) -> bool:
        """Write the row file.  False when another ingest has committed the same stretch of the same source before."""
        import xxhash

        while self._writing:
            self._writing.popleft().result()
        identity = xxhash.xxh3_128_hexdigest(f"{row.source_id}\0{row.start}\0{row.content_hash}\0{row.tail}".encode())
        table = arrow_table([_commit_row(row)], _COMMIT_SCHEMA)
        folder = f"{self._root}/sources/{_path_folder(row.path)}"
        make_folder(self._fs, folder)
        return self._put(f"{folder}/{identity}.parquet", _parquet_bytes(table))


_FINDINGS_SCHEMA = pa.schema(
    [
        *((x, pa.string()) for x in ("run", "analyzer", "kind", "problem", "message")),
        *((x, pa.float64()) for x in ("saving_us", "saving_low_us", "saving_high_us", "saving_share", "per_call_us")),
        ("calls", pa.int64()),
        ("advice", pa.string()),
    ]
)


def open_store(location: str | os.PathLike[str] | None = None, *, create: bool = False) -> Store:
    """The store at a folder or URL (default ``$LOGPARSE_STORE``, else ``logparse-store``).

    Raises StoreError when it is missing (unless ``create``), out of reach or written by another schema version.
    """
    url = os.fspath(location or os.environ.get("LOGPARSE_STORE") or "logparse-store")
    filesystem, root = resolve(url)
    meta = f"{root}/{META}"
    with explained(url, StoreError):
        if not filesystem.get_file_info(meta).is_file:
            if not create:
                raise StoreError(
                    f"no store at {url}: ingest something first, or name another with --store or LOGPARSE_STORE"
                )
            make_folder(filesystem, root)
            put_if_absent(url, filesystem)(meta, json.dumps({"schema": SCHEMA_VERSION}).encode())
        with filesystem.open_input_stream(meta) as stream:
            text = stream.read()
    try:
        version = json.loads(text)["schema"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{url}/{META} is damaged; if this is a store, restore that file: {error}") from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{url} has schema {version}, this logparse writes {SCHEMA_VERSION}: ingest the logs into a new store, "
            "or use the logparse version that wrote it"
        )
    return Store(url, filesystem, root)


def _attempt_of(path: str) -> str:
    return path.rsplit("/", 1)[-1].split("-", 1)[0]


_LONG_TEXTS = frozenset({"problem", "shape", "key_text", "text"})


def _encoding(schema: pa.Schema) -> dict[str, list[str]]:
    """What of a part is worth a dictionary and statistics: not long texts that hardly repeat, nor measured times."""
    plain = [f.name for f in schema if f.name in _LONG_TEXTS and not pa.types.is_dictionary(f.type)]
    numbers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    unlike = {*plain, "time_us", "flops"}
    return {"use_dictionary": [f.name for f in schema if f.name not in unlike], "write_statistics": numbers}


def _column(rows: pa.Table, wanted: pa.Field, attempt: str) -> pa.Array | pa.ChunkedArray:
    if wanted.name == "attempt":
        zeros = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(bytes(4 * rows.num_rows))])
        return pa.DictionaryArray.from_arrays(zeros, column([attempt], pa.string()))
    if wanted.name in rows.column_names:
        given = rows[wanted.name]
        if pa.types.is_dictionary(given.type) and given.type.value_type == wanted.type:
            return given  # the same Parquet type, written without making every value first
        return given if given.type == wanted.type else given.cast(wanted.type)
    return pa.nulls(rows.num_rows, wanted.type)


def _path_folder(path: str) -> str:
    import xxhash

    return xxhash.xxh3_64_hexdigest(path.encode())


def _live(rows: Iterable[Commit]) -> list[Commit]:
    held = list(rows)
    gone = {attempt for row in held for attempt in row.replaces}
    return sorted((row for row in held if row.attempt not in gone), key=lambda row: (row.committed_at, row.attempt))


def _commit_row(row: Commit) -> dict[str, Any]:
    out = asdict(row)
    units = out.pop("units")
    return out | {f"{unit}_lines": units.get(unit, 0) for unit in UNITS} | {"replaces": list(row.replaces)}


def _commit_from_row(row: dict[str, Any]) -> Commit:
    names = {f.name for f in fields(Commit)}
    units: dict[Unit, int] = {unit: row[f"{unit}_lines"] for unit in UNITS}
    values = {k: v for k, v in row.items() if k in names}
    return Commit(**values | {"units": units, "replaces": tuple(row["replaces"] or ())})


def _parquet_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _view_sql(run: str | None) -> dict[str, str]:
    """The views, in order of dependence; ``commits_`` and ``<table>_`` are already limited to ``run``."""
    units = ", ".join(f"cast(sum({unit}_lines) as bigint) as {unit}_lines" for unit in UNITS)
    joined = "select s.source_id, s.run, t.* exclude (attempt) from {t}_ t join commits_ s using (attempt)"
    gemm_columns = ", ".join(f"any_value({name}) as {name}" for name in SCHEMAS["gemms"].names[2:])
    conv_columns = ", ".join(f"any_value({name}) as {name}" for name in SCHEMAS["convs"].names[2:])
    return {
        "sources": f"""
            select source_id, any_value(run) as run, any_value(path) as path, arg_max(format, "end") as format,
                   cast(sum(bytes) as bigint) as bytes, cast(sum(lines) as bigint) as lines,
                   cast(sum(splits) as bigint) as splits, {units}, arg_max(pid, "end") as pid,
                   arg_max(pid_from, "end") as pid_from, arg_max(ended, committed_at) as ended,
                   min(committed_at) as ingested_at, sum(seconds) as seconds
            from commits_ group by source_id""",
        "calls": """
            select s.source_id, s.run, t.category, t.kind, t.problem, coalesce(t.pid, s.pid) as pid, t.device,
                   t.first_seen, t.last_seen, t.solution, cast(sum(t.count) as bigint) as count,
                   t.by_tool or (t.category = 'bench' and s.bench_output) as by_tool, t.workspace_bytes
            from calls_ t join commits_ s using (attempt) group by all""",
        "workload": """
            with per as (
                select run, pid, kind, kind = 'conv' as conv, category, problem, cast(sum(count) as bigint) as calls
                from calls where not by_tool group by all),
            best as (
                select run, pid, conv, category from per group by run, pid, conv, category
                qualify row_number() over (
                    partition by run, pid, conv order by sum(calls) desc nulls last, category) = 1)
            select per.run, per.pid, per.kind, per.problem, per.calls, per.category as calls_from
            from per join best on per.run = best.run and per.pid is not distinct from best.pid
                              and per.conv = best.conv and per.category = best.category""",
        "process_messages": """
            select s.source_id, s.run, t.category, coalesce(t.pid, s.pid) as pid, t.function, t.text,
                   cast(sum(t.count) as bigint) as count, min(t."offset") as "offset"
            from messages_ t join commits_ s using (attempt) group by all""",
        "messages": """
            select source_id, run, category, function, text, cast(sum(count) as bigint) as count,
                   min("offset") as "offset" from process_messages group by all""",
        "gemm_problems": f"select problem, {gemm_columns} from gemms_ join commits_ using (attempt) group by problem",
        "conv_problems": f"""
            select problem, shape, substr(problem, 7 + length(direction)) as layer, * exclude (problem, shape),
                   case when in_layout = weights_layout and in_layout = out_layout then in_layout
                           else concat_ws('-', in_layout, weights_layout, out_layout) end as layout,
                   case when in_type = weights_type and in_type = out_type then in_type
                        else concat_ws('-', in_type, weights_type, out_type) end as dtype
            from (select problem, {conv_columns} from convs_ join commits_ using (attempt) group by problem)""",
        "links": links_sql("gemm_problems", "conv_problems"),
        "measurements": joined.format(t="measurements"),
        "solutions": """
            select distinct t.library, b.build, t.solution, t.name, t.kernel_name,
                   (select any_value(m.algorithm) from measurements_ m where m.solution = t.solution) as algorithm
            from solutions_ t left join (
                select attempt, string_agg(value, ' ' order by name) as build from facts_
                where name in ('hipblaslt_version', 'hipblaslt_revision') group by attempt) b using (attempt)""",
        "kernels": joined.format(t="kernels"),
        "facts": "select distinct s.source_id, s.run, t.name, t.value from facts_ t join commits_ s using (attempt)",
        "rejects": """
            select s.source_id, s.path, s.run, min(t."offset") as "offset", arg_min(t.length, t."offset") as length,
                   cast(sum(t.count) as bigint) as count, t.reason, arg_min(t.text, t."offset") as text
            from rejects_ t join commits_ s using (attempt)
            group by s.source_id, s.path, s.run, t.reason, coalesce(t.line, t."offset")""",
        "findings": "select * from findings_" + (f" where run = '{run.replace(chr(39), chr(39) * 2)}'" if run else ""),
    }
