"""Merge the many small files of a store into a few large ones (``logparse compact``).

The rows are read and written again, in large Parquet files under new names. Last, a manifest is written: the list of
the merged files. Only this makes the change valid. If a compaction is killed before that, a later cleaning (sweep)
removes its files. The manifest gets the next number, and an existing number is never overwritten. So if two compactions
run at once, the second one sees that the number is taken, and changes nothing.

The old files stay for an hour, so that current readers can finish. The next ingest or compaction after that hour
removes them. If the caller knows that there are no readers (``unread``), they are removed at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logparse.errors import StoreError
from logparse.store.columns import conform
from logparse.store.digests import DIFFERS, Part, part_of, read_bytes
from logparse.store.manifest import MERGED, Manifest, record_forgotten
from logparse.store.parts import attempt_of, row_files
from logparse.store.recorded import Recorded
from logparse.store.schema import SCHEMAS
from logparse.store.store import Store

LARGE_BYTES = 64 << 20
"""Size in bytes from which on a merged file is not merged again."""
_READ_TOGETHER = 16  # parts that are read at a time, because each may be large, or a request to another machine
_PART_BYTES = 64 << 20  # size of the rows in memory, in bytes, from which on they are written as a part


def compact(store: Store, *, unread: bool = False) -> tuple[int, int]:
    """Merge the small files of a store into large ones. Return how many files a reader must open, before and after.

    ``unread`` says that no other process reads the store. Raises StoreError if another compaction finished first, or a
    file is missing or damaged.
    """
    # If no other process reads the store, the old files are removed at once.
    store.sweep(unread=unread)
    commits, manifest, found = store.whole(None, SCHEMAS)
    recorded = Recorded(commits, manifest)
    attempts = frozenset(commits["attempt"].to_pylist())
    fresh = len({*row_files(commits)} - manifest.row_files)
    before = fresh + bool(manifest.number)
    small: dict[str, tuple[str, list[str]]] = {}
    for table, parts in found.items():
        before += len(parts)
        for folder, group in groupby(sorted(parts), os.path.dirname):
            if chosen := _small(store, [*group], manifest):
                small[folder] = (table, chosen)
    if not small and not fresh and not manifest.stale:
        return before, before
    merged = list[Part]()
    for folder, (table, paths) in small.items():
        read = _read(store, table, paths, attempts, manifest, recorded)
        merged += _write(store, folder, _schema(table, f"{folder}/"), read)
    store.place.flush_parts(merged)
    gone = {path for _, paths in small.values() for path in paths}
    kept = [path for path in manifest.parts if f"{store.root}/{path}" not in gone]
    records = {path: manifest.records[path] for path in kept if path in manifest.records}
    records |= {part.path: part for part in merged}
    names = frozenset((*kept, *records))
    if replaced := manifest.attempts - attempts:  # no manifest will hold them, and their row files may be gone
        record_forgotten(store.filesystem, store.root, replaced)
    new = Manifest(manifest.number + 1, commits, names, records)
    if not new.put(store.filesystem, store.root, store.put):
        raise StoreError(f"{store.url}: another compaction finished first, so this one changed nothing")
    store.take_inventory()
    if unread:
        store.sweep(unread=True)
    return before, len(names) + 1


def _small(store: Store, paths: Sequence[str], manifest: Manifest) -> list[str]:
    """Return which Parquet files of a folder ``logparse compact`` must merge into larger ones.

    * Files that were never merged are always returned, because the new list of merged data must contain all their rows.
    * Small files that were merged before are returned.
    * Large files that were merged before are returned only if the user had data removed (``logparse forget``), so that
      these data leave the disk.

    If there is nothing to gain, the result is empty.
    """
    fresh = [path for path in paths if path.removeprefix(f"{store.root}/") not in manifest.parts]
    merged = [path for path in paths if path.removeprefix(f"{store.root}/") in manifest.parts]
    infos = store.filesystem.get_file_info(merged)  # one request per part; there may be thousands of fresh parts
    old = [info.path for info in infos if manifest.stale or (info.size or 0) < LARGE_BYTES]
    return [*old, *fresh] if fresh or len(old) > 1 or manifest.stale else []


def _read(
    store: Store, table: str, paths: Sequence[str], attempts: Set[str], manifest: Manifest, recorded: Recorded
) -> Iterator[pa.Table]:
    """Read the wanted rows of some Parquet files, several files at a time. Yield them in the order of ``paths``.

    ``attempts`` names the readings of input files whose rows are wanted.
    """
    # Some rows are not wanted, for example if the user has removed their input file.
    old, fresh = attempts & manifest.attempts, attempts - manifest.attempts
    with ThreadPoolExecutor(_READ_TOGETHER) as reading:
        for start in range(0, len(paths), _READ_TOGETHER):
            some = paths[start : start + _READ_TOGETHER]
            of = [old if attempt_of(path).startswith(MERGED) else fresh for path in some]
            yield from reading.map(partial(_rows, store, table, recorded), some, of)


def _rows(store: Store, table: str, recorded: Recorded, path: str, attempts: Set[str]) -> pa.Table:
    """Return the rows of a Parquet file that are still valid, with the present columns.

    ``attempts`` names the readings of input files whose rows are valid. Raises StoreError if the file is damaged or was
    removed.
    """
    schema, name = _schema(table, path), path.removeprefix(f"{store.root}/")
    try:
        data = read_bytes(store.filesystem, path)
    except FileNotFoundError as error:
        raise StoreError(
            f"{store.url}: another `logparse compact` or `forget` works on the store, so this one changed "
            "nothing; try again later"
        ) from error
    if recorded.parts.get(name, part := part_of(name, data)) != part:
        raise StoreError(f"{store.url}/{recorded.line(name, DIFFERS)}")
    rows = conform(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False), schema)
    if attempt_of(path) in attempts:
        return rows  # all rows are of one attempt
    return rows.filter(pc.is_in(rows["attempt"], value_set=pa.array(attempts, pa.string())))


def _schema(table: str, path: str) -> pa.Schema:
    """Return the columns and types of a Parquet file in the store.

    If the file is in a folder ``category=…``, it has no column ``category``, because the folder's name states the
    category.
    """
    return pa.schema([f for f in SCHEMAS[table] if f.name != "category" or "/category=" not in path])


def _write(store: Store, folder: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> list[Part]:
    """Write the rows of one folder to a few large Parquet files. Return the path, size and checksum of each file."""
    name, parts = f"{MERGED}{os.urandom(8).hex()}", list[Part]()
    waiting, size = list[pa.Table](), 0

    def write() -> None:
        rows = pa.concat_tables([schema.empty_table(), *waiting])
        waiting.clear()
        if not len(rows):
            return
        path = f"{folder.removeprefix(f'{store.root}/')}/{name}-{len(parts) + 1}.parquet"
        parts.append(store.place.write_part(path, rows, "zstd"))

    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size > _PART_BYTES:
            write()
            size = 0
    write()
    return parts
