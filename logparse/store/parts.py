"""Parts: the Parquet files that one attempt to read a source writes, and the row file that commits them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from logparse.errors import StoreError
from logparse.location import PutIfAbsent, flush, make_folder, write_file
from logparse.store.columns import column
from logparse.store.columns import table as arrow_table
from logparse.store.digests import Part, part_of, sealed
from logparse.store.schema import COMMIT_SCHEMA, SCHEMAS, Commit, commit_row

if TYPE_CHECKING:
    from logparse.store.joint import JointAttempts

JOINT = "."
"""In the name of a joint attempt, between its writer's name and its number."""


class Attempt:
    """Part files of one attempt to read a source; ``commit`` makes them visible."""

    def __init__(
        self, filesystem: pafs.FileSystem, root: str, name: str, put: PutIfAbsent, joint: JointAttempts | None = None
    ) -> None:
        self.name = name
        self.joint = joint
        self._fs = filesystem
        self._root = root
        self._put = put
        self.parts: list[Part] = []
        """The attempt's parts."""
        self.parts_of: dict[str, list[Part]] = {}
        """Of a joint writer: the parts that hold rows of each attempt."""

    def add(self, table: str, rows: pa.Table, category: str | None = None) -> None:
        """Write rows (any subset of the schema's columns; the rest are null) as one part."""
        if not rows.num_rows:
            return
        schema = SCHEMAS[table]
        wanted = [f for f in schema if f.name != "category"] if category is not None else list(schema)
        columns = [_column(rows, f, self.name) for f in wanted]
        # A column that is declared free of nulls is written a sixth faster.
        fields = [pa.field(f.name, c.type, c.null_count > 0) for f, c in zip(wanted, columns, strict=True)]
        part = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        folder = f"{self._root}/{table}" + (f"/category={category}" if category is not None else "")
        make_folder(self._fs, folder)
        path = f"{folder}/{self.name}-{len(self.parts) + 1}.parquet"
        # Parts in lz4 are half as large again as in zstd, and ingest is a quarter faster; compaction writes zstd.
        self.parts.append(write_part(self._fs, self._root, path, part, "lz4"))
        if "attempt" in rows.column_names:
            for name in _distinct(columns[schema.get_field_index("attempt")]):
                self.parts_of.setdefault(name, []).append(self.parts[-1])

    def commit(self, row: Commit) -> bool:
        """Write the row file.  Returns False when another ingest has committed the same stretch of the source before.

        What it returns True for lasts over a power cut.  A joint attempt is committed later, with all others.
        """
        if self.joint is not None:
            self.joint.take(self, row)
            return True
        self.flush(self.parts)
        self.demand(row.path, self.parts)
        row = replace(row, parts=tuple(part.text for part in self.parts))
        new = self.put(row, sealed(arrow_table([commit_row(row)], COMMIT_SCHEMA)))
        self.flush_rows([row])
        return new

    def flush(self, parts: Iterable[Part]) -> None:
        """Return once a power cut leaves these parts."""
        flush(self._fs, self._root, [f"{self._root}/{part.path}" for part in parts])

    def flush_rows(self, rows: Iterable[Commit]) -> None:
        """Return once a power cut leaves the names of row files that were put."""
        flush(self._fs, self._root, folders={f"{self._root}/{row_file(row)}".rsplit("/", 1)[0] for row in rows})

    def demand(self, path: str, parts: Sequence[Part]) -> None:
        """Raises StoreError, which names the source ``path``, where one of the parts is gone or was cut."""
        infos = self._fs.get_file_info([f"{self._root}/{part.path}" for part in parts])
        gone = [part for part, info in zip(parts, infos, strict=True) if not info.is_file or info.size != part.size]
        if gone:
            raise StoreError(
                f"{len(gone)} part(s) of {path} were removed before its commit (did it stand still for over an "
                "hour?); ingest it again"
            )

    def put(self, row: Commit, data: bytes) -> bool:
        """Write the row file of ``row``, unless one is there."""
        path = f"{self._root}/{row_file(row)}"
        make_folder(self._fs, path.rsplit("/", 1)[0])
        return self._put(path, data)


def write_part(filesystem: pafs.FileSystem, root: str, path: str, rows: pa.Table, compression: str) -> Part:
    """Write rows as a part; the pages have checksums of their own."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression=compression, write_page_checksum=True, **encoding(rows.schema))
    data = sink.getvalue()
    write_file(filesystem, path, data)
    return part_of(path.removeprefix(f"{root}/"), data)


def _distinct(names: pa.Array | pa.ChunkedArray) -> list[str]:
    """The distinct texts of a column without nulls.  (pyarrow.compute takes 0.03 s to import.)"""
    found: dict[str, None] = {}
    for chunk in names.chunks if isinstance(names, pa.ChunkedArray) else [names]:
        indices = np.frombuffer(chunk.indices.buffers()[1], np.int32)[chunk.offset :][: len(chunk)]
        used = np.flatnonzero(np.bincount(indices))  # np.unique takes 0.01 s to import
        found |= dict.fromkeys(chunk.dictionary[number].as_py() for number in used.tolist())
    return [*found]


def attempt_of(path: str) -> str:
    """The attempt, or the joint writer, whose part it is."""
    return path.rsplit("/", 1)[-1].split("-", 1)[0]


def writers_of(attempts: Iterable[str]) -> set[str]:
    """The attempts, and the joint writers that may have written rows of them."""
    return {name for attempt in attempts for name in (attempt, attempt.partition(JOINT)[0])}


_LONG_TEXTS = frozenset({"problem", "shape", "key_text", "text"})


def encoding(schema: pa.Schema) -> dict[str, list[str]]:
    """Options for writing a part: dictionaries, but for long texts and measured values; statistics of numbers only."""
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
    """The path of a commit's row file in its store; it names the source and the stretch."""
    return _row_file(row.path, row.source_id, row.start, row.content_hash, row.tail)


def row_files(commits: pa.Table) -> list[str]:
    """The paths of the row files for rows of ``COMMIT_SCHEMA``."""
    columns = (commits[name].to_pylist() for name in ("path", "source_id", "start", "content_hash", "tail"))
    return [_row_file(*row) for row in zip(*columns, strict=True)]


def _row_file(path: str, source_id: str, start: int, content_hash: str, tail: bool) -> str:
    identity = xxhash.xxh3_128_hexdigest(f"{source_id}\0{start}\0{content_hash}\0{tail}".encode())
    return f"sources/{path_folder(path)}/{identity}.parquet"


def path_folder(path: str) -> str:
    return xxhash.xxh3_64_hexdigest(path.encode())
