"""Compaction: many small parts become few large ones, and many row files one manifest.

Committed rows are read and written again, in large parts under fresh names.  The manifest is written last, by
put-if-absent under the next number: that is the commit of a compaction.  A compaction that is killed before leaves
files that a later sweep removes; of two at once, the second finds the number taken and changes nothing.  Merged files
stay for an hour, so that current readers can finish; the next ingest or compaction after that removes them.  Where the
caller knows that there are none, they go at once (``unread``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logparse.errors import StoreError
from logparse.location import make_folder
from logparse.store.columns import conformed
from logparse.store.manifest import MERGED, Manifest
from logparse.store.parts import attempt_of, encoding, row_files
from logparse.store.schema import SCHEMAS
from logparse.store.store import Store

LARGE_BYTES = 64 << 20
"""Merged parts from this size on are not merged again."""
_READ_TOGETHER = 16  # parts read at a time: each may be a request to another machine, or large
_GROUP_BYTES = 64 << 20  # bytes in memory from which on rows are written as one row group

Progress = Callable[[int, int], None]
"""Called with the number of parts merged so far and the number of all parts to merge."""


@dataclass(frozen=True)
class Compacted:
    """The number of files that a reader opens, before and after a compaction."""

    before: int
    after: int


def compact(store: Store, progress: Progress | None = None, *, unread: bool = False) -> Compacted:
    """Merge the small parts of every table.  Raises StoreError when another compaction was faster.

    ``unread``: no other process reads the store, so the merged files are removed at once.
    """
    done = _compact(store, progress)
    if unread:
        store.sweep(unread=True)
    return done


def _compact(store: Store, progress: Progress | None) -> Compacted:
    store.sweep()
    manifest, commits = store.manifest(), store.live_table()
    attempts = frozenset(commits["attempt"].to_pylist())
    held = {table: store.parts(table, attempts, manifest) for table in SCHEMAS}
    small = {
        folder: (table, chosen)
        for table, paths in held.items()
        for folder, group in _by_folder(paths).items()
        if (chosen := _small(store, group, manifest))
    }
    fresh = len({*row_files(commits)} - manifest.row_files)
    before = sum(map(len, held.values())) + fresh + bool(manifest.number)
    if not small and not fresh and not manifest.stale:
        return Compacted(before, before)
    todo, done = sum(len(paths) for _, paths in small.values()), 0
    merged: list[str] = []
    for folder, (table, paths) in small.items():
        writer = _Writer(store, table, folder)
        for rows in _read(store, table, paths, attempts, manifest):
            writer.add(rows)
            done += 1
            if progress:
                progress(done, todo)
        merged += writer.close()
    gone = {path for _, paths in small.values() for path in paths}
    kept = [f"{store.root}/{path}" for path in manifest.parts if f"{store.root}/{path}" not in gone]
    names = frozenset(path.removeprefix(f"{store.root}/") for path in (*kept, *merged))
    new = Manifest(manifest.number + 1, commits, names)
    if not new.put(store.filesystem, store.root, store.put):
        raise StoreError(f"{store.url}: another compaction was faster, and this one changed nothing")
    return Compacted(before, len(names) + 1)


def _by_folder(paths: Sequence[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for path in sorted(paths):
        out.setdefault(path.rsplit("/", 1)[0], []).append(path)
    return out


def _small(store: Store, paths: Sequence[str], manifest: Manifest) -> list[str]:
    """The parts of a folder to merge: all but large merged ones, as the manifest then stands for the others' attempts.

    Where something was forgotten, all parts: its rows must leave the disk.
    """
    fresh = [path for path in paths if path.removeprefix(f"{store.root}/") not in manifest.parts]
    merged = [path for path in paths if path.removeprefix(f"{store.root}/") in manifest.parts]
    infos = store.filesystem.get_file_info(merged)  # a request per part, so not for thousands of fresh ones
    old = [info.path for info in infos if manifest.stale or (info.size or 0) < LARGE_BYTES]
    return [*old, *fresh] if fresh or len(old) > 1 or manifest.stale else []


def _read(store: Store, table: str, paths: Sequence[str], attempts: Set[str], manifest: Manifest) -> Iterator[pa.Table]:
    """The result of ``_rows`` for each part, a few parts at a time."""
    old, fresh = attempts & manifest.attempts, attempts - manifest.attempts
    with ThreadPoolExecutor(_READ_TOGETHER) as reading:
        for start in range(0, len(paths), _READ_TOGETHER):
            some = paths[start : start + _READ_TOGETHER]
            of = [old if attempt_of(path).startswith(MERGED) else fresh for path in some]
            yield from reading.map(partial(_rows, store, table), some, of)


def _rows(store: Store, table: str, path: str, attempts: Set[str]) -> pa.Table:
    """Rows of a part that belong to ``attempts``, in the current schema."""
    schema = _schema(table, path)
    rows = conformed(pq.ParquetFile(path, filesystem=store.filesystem).read(use_threads=False), schema)
    if attempt_of(path) in attempts:
        return rows  # all rows are of one attempt
    return rows.filter(pc.is_in(rows["attempt"], value_set=pa.array(attempts, pa.string())))


def _schema(table: str, path: str) -> pa.Schema:
    """The schema of a part, without the column whose value is in the folder's name."""
    return pa.schema([f for f in SCHEMAS[table] if f.name != "category" or "/category=" not in path])


class _Writer:
    """Writes merged parts of one folder, a row group at a time."""

    def __init__(self, store: Store, table: str, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._schema = _schema(table, f"{folder}/")
        self._name = f"{MERGED}{os.urandom(8).hex()}"
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._paths: list[str] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > _GROUP_BYTES:
            self._write()

    def close(self) -> list[str]:
        """Write what is held; returns the paths of the parts."""
        self._write()
        return self._paths

    def _write(self) -> None:
        rows = pa.concat_tables(self._held) if self._held else self._schema.empty_table()
        self._held, self._bytes = [], 0
        if not len(rows):
            return
        make_folder(self._store.filesystem, self._folder)
        path = f"{self._folder}/{self._name}-{len(self._paths) + 1}.parquet"
        with self._store.filesystem.open_output_stream(path) as sink:
            pq.write_table(rows, sink, compression="zstd", **encoding(self._schema))
        self._paths.append(path)
