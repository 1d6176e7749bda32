"""Write the rows of an input file to the store: first Parquet files, then a small file that makes them valid.

=========  ======================================================
word       meaning
=========  ======================================================
attempt    one reading of an input file
part       a Parquet file with rows of the attempt
row file   the small file that is written last, also called commit
=========  ======================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from logparse.errors import StoreError
from logparse.location import PutIfAbsent, flush, make_folder, write_file
from logparse.store.columns import column
from logparse.store.columns import table as arrow_table
from logparse.store.digests import Part, part_of, seal_table
from logparse.store.pending import Pending, all_rows
from logparse.store.schema import COMMIT_SCHEMA, SCHEMAS, Commit, commit_row

JOINT = "."
"""Separator in the name of a reading whose rows are in the same files as other rows: ``<writer>.<number>``."""


@dataclass(frozen=True)
class Place:
    """A store's folder on a disk or at a URL, into which files are written. Paths are relative to it."""

    filesystem: pafs.FileSystem
    root: str
    put_if_absent: PutIfAbsent

    def write_part(self, path: str, rows: pa.Table, compression: str) -> Part:
        """Write rows as a Parquet file, whose pages have checksums. Return the path, size and checksum of the file."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression=compression, write_page_checksum=True, **encoding(rows.schema))
        data, file = sink.getvalue(), f"{self.root}/{path}"
        make_folder(self.filesystem, file.rsplit("/", 1)[0])
        write_file(self.filesystem, file, data)
        return part_of(path, data)

    def flush_parts(self, parts: Iterable[Part]) -> None:
        """Make sure that these files survive a power cut, by writing them from the system's memory to the disk."""
        flush(self.filesystem, self.root, [f"{self.root}/{part.path}" for part in parts])

    def demand_parts(self, parts: Sequence[Part], source: str) -> None:
        """Raise StoreError if one of the Parquet files ``parts`` is missing or does not have the size that was written.

        The text of the error names the input file ``source``.
        """
        infos = self.filesystem.get_file_info([f"{self.root}/{part.path}" for part in parts])
        gone = [part for part, info in zip(parts, infos, strict=True) if not info.is_file or info.size != part.size]
        if gone:
            raise StoreError(
                f"{len(gone)} part(s) of {source} were removed before they were committed. Another logparse command "
                "removes parts that are over an hour old and not committed. Ingest the file again"
            )

    def put_row(self, row: Commit, data: bytes) -> bool:
        """Write the small file which says that an input file was read. Return False if the file already exists.

        Readers of the store ignore the rows of the input file until then.
        """
        path = f"{self.root}/{row_file(row)}"
        make_folder(self.filesystem, path.rsplit("/", 1)[0])
        return self.put_if_absent(path, data)

    def flush_rows(self, rows: Iterable[Commit]) -> None:
        """Make sure that a power cut does not undo the reading of some input files.

        When logparse has read an input file, it writes a small file which says so. The folders of the small files are
        written to the disk.
        """
        folders = {f"{self.root}/{row_file(row)}".rsplit("/", 1)[0] for row in rows}
        flush(self.filesystem, self.root, folders=folders)


class Attempt:
    """One reading of an input file, whose rows are written to new files. They become visible with ``commit``.

    ``name`` is unique. ``parts`` are the files that were written so far.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.parts: list[Part] = []

    def add(self, table: str, columns: pa.Table, category: str | None = None) -> Part | None:
        """Write table rows to a new Parquet file. Return the file's path, size and checksum.

        Columns of the table that ``columns`` lacks become null. Returns None if there are no rows.
        """
        if not columns.num_rows:
            return None
        wanted = [f for f in SCHEMAS[table] if category is None or f.name != "category"]
        arrays = [_column(columns, f, self.name) for f in wanted]
        # A column that is declared free of nulls is written a sixth faster.
        fields = [pa.field(f.name, c.type, c.null_count > 0) for f, c in zip(wanted, arrays, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        folder = table if category is None else f"{table}/category={category}"
        # Parts in lz4 are 1.5 times as large as in zstd, but ingest is a quarter faster.  Compaction writes zstd.
        part = self.place.write_part(f"{folder}/{self.name}-{len(self.parts) + 1}.parquet", rows, "lz4")
        self.parts.append(part)
        return part

    def write(self, pending: Pending) -> None:
        """Write records that are in memory to Parquet files."""
        for rows in all_rows([pending]):
            self.add(rows.table, rows.columns, rows.category)

    def commit(self, row: Commit) -> bool:
        """Make the rows of an input file visible, after all of them were written.

        Returns False if another process has already stored the same bytes, and True once the rows survive a power cut.
        Raises StoreError if a Parquet file was removed meanwhile.
        """
        self.place.flush_parts(self.parts)
        self.place.demand_parts(self.parts, row.path)
        row = replace(row, parts=tuple(part.text for part in self.parts))
        # For this, one more small file is written (row file).
        new = self.place.put_row(row, seal_table(arrow_table([commit_row(row)], COMMIT_SCHEMA)))
        self.place.flush_rows([row])
        return new


def attempt_of(path: str) -> str:
    """Return the beginning of a Parquet file's name, which says from which reading of an input file its rows are.

    For ``calls/category=bench/ab12-3.parquet`` it is ``ab12``. If the file has rows of several readings, it is the name
    of their group.
    """
    return path.rsplit("/", 1)[-1].split("-", 1)[0]


def writers_of(attempts: Iterable[str]) -> set[str]:
    """Return how the names of the Parquet files begin that contain some readings of input files (``attempts``).

    For example, the files of ``ab12.3`` begin with ``ab12.3`` or ``ab12``.
    """
    # ``ab12.3`` is the third of several readings that were stored together.
    return {name for attempt in attempts for name in (attempt, attempt.partition(JOINT)[0])}


_LONG_TEXTS = frozenset({"problem", "shape", "key_text", "text"})


def encoding(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the options with which a table with these columns is written to a Parquet file.

    Only numbers get statistics. All columns get dictionaries (each distinct value stored once), except long texts and
    measured values.
    """
    plain = [f.name for f in schema if f.name in _LONG_TEXTS and not pa.types.is_dictionary(f.type)]
    numbers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    unlike = {*plain, "time_us", "flops", "ordinal", "workspace_bytes"}
    return {"use_dictionary": [f.name for f in schema if f.name not in unlike], "write_statistics": numbers}


def _column(rows: pa.Table, wanted: pa.Field, attempt: str) -> pa.Array | pa.ChunkedArray:
    if wanted.name == "attempt" and "attempt" not in rows.column_names:
        zeros = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(bytes(4 * rows.num_rows))])
        return pa.DictionaryArray.from_arrays(zeros, column([attempt], pa.string()))
    if wanted.name in rows.column_names:
        given = rows[wanted.name]
        if pa.types.is_dictionary(given.type) and given.type.value_type == wanted.type:
            return given  # the same Parquet type, written without expanding the dictionary
        return given if given.type == wanted.type else given.cast(wanted.type)
    return pa.nulls(rows.num_rows, wanted.type)


def row_file(row: Commit) -> str:
    """Return the path, from the store's folder, of the small file which says that an input file was read.

    Its name depends on the input file and the range of bytes that was read.
    """
    # Without this file, readers of the store ignore the rows of the input file.
    return _row_file(row.path, row.source_id, row.start, row.content_hash, row.tail)


def row_files(commits: pa.Table) -> list[str]:
    """Return the paths, relative to the store, of the small files which note that an input file was read.

    ``commits`` is a table with one row for each reading of an input file (``COMMIT_SCHEMA``).
    """
    columns = (commits[name].to_pylist() for name in ("path", "source_id", "start", "content_hash", "tail"))
    return [_row_file(*row) for row in zip(*columns, strict=True)]


def _row_file(path: str, source_id: str, start: int, content_hash: str, tail: bool) -> str:
    identity = xxhash.xxh3_128_hexdigest(f"{source_id}\0{start}\0{content_hash}\0{tail}".encode())
    return f"sources/{path_folder(path)}/{identity}.parquet"


def path_folder(path: str) -> str:
    return xxhash.xxh3_64_hexdigest(path.encode())
