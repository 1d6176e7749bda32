"""The manifest: a list of the rows that a compaction has merged, and of the large files that now hold them.

    STORE/compactions/<number>.parquet       the highest number counts …
    STORE/compactions/forgotten-<id>.json    … but for the attempts in these

An attempt is one reading of an input file. The small files that were merged stay until no reader can still use them
(``Store.sweep``). Readers of the manifest skip them. Data that the user had removed (``logparse forget``) are recorded
in files beside the manifest. So a compaction that read these rows before they were forgotten cannot bring them back, no
matter when it writes its manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from logparse.errors import StoreError
from logparse.location import PutIfAbsent, flush, make_folder, replace_file
from logparse.store.columns import conform
from logparse.store.columns import table as arrow_table
from logparse.store.digests import (
    UNSEALED,
    Part,
    part_from_text,
    read_bytes,
    seal_list,
    seal_table,
    unseal_list,
    unseal_table,
)
from logparse.store.parts import row_files
from logparse.store.schema import COMMIT_SCHEMA, RECORDED

FOLDER = "compactions"
MERGED = "merged"
"""Beginning of the names of merged files. The names of other files begin with the reading that wrote them."""
MERGED_LOST = "lost: all data that `logparse compact` merged; remedy: ingest all log files into a new store"
RESTORED = "the next `logparse ingest` or `logparse compact` writes this file again"
_TOLD = b"logparse_manifest"
_REMEMBERED_S = 86400.0
"""Shortest time in seconds for which the record of forgotten data is kept.

A compaction that began before the data were forgotten may still be running.
"""
_MISSED_S = _REMEMBERED_S / 2
"""Time in seconds during which a missing record of forgotten data is reported as damage in any case.

After that time it is reported only if the store still holds the data. The time is shorter than ``_REMEMBERED_S``,
because the clocks of hosts differ: if one host removes an old record, no other host must report damage.
"""


class Forgotten(NamedTuple):
    """A small file that lists data which the user had removed from the store (``logparse forget``).

    ``names`` are readings of input files, or merged files. ``at`` is when it was written, in seconds since 1970.
    """

    file: str
    names: tuple[str, ...]
    at: float

    def spent(self, known: Set[str]) -> bool:
        """Return True if this list of removed data may now be deleted from the store.

        It must be old, and the store may hold none of the data. ``known`` holds the names of all data in the store.
        """
        return time.time() - self.at > _REMEMBERED_S and known.isdisjoint(self.names)

    def missed(self, known: Set[str]) -> bool:
        """Return True if this list of removed data must not disappear from the store.

        It is needed while it is recent or the store still holds some of the data. ``known`` holds the names of all data
        in the store.
        """
        # Without the list, the removed data could appear again.
        return time.time() - self.at <= _MISSED_S or not known.isdisjoint(self.names)


@dataclass(frozen=True)
class Manifest:
    """Says which data of the store were merged into large files (by a compaction).

    The object is read from the store, or made by a compaction.

    * ``number`` is the number of the manifest. 0 means that nothing was ever merged.
    * ``commits`` are the entries for the merged input files, as rows of ``COMMIT_SCHEMA``.
    * ``parts`` are the paths of the large files with their rows, in the store.
    * ``records`` holds the sizes and checksums of the large files. Manifests of earlier versions have none.
    * ``stale`` is True if the large files also hold rows that the user has had removed since then.
    * ``written_at`` is the time when the manifest was written, in seconds since 1970.
    * ``told`` are the files that list data which the user had removed.
    * ``spent`` are the files in ``told`` that are no longer needed.
    """

    number: int = 0
    commits: pa.Table = field(default_factory=lambda: arrow_table([], COMMIT_SCHEMA))
    parts: frozenset[str] = frozenset()
    records: Mapping[str, Part] = field(default_factory=dict)
    stale: bool = False
    written_at: float = 0.0
    told: tuple[Forgotten, ...] = ()
    spent: tuple[Forgotten, ...] = ()

    @cached_property
    def attempts(self) -> frozenset[str]:
        """Names that tell which input files' data were merged into larger Parquet files.

        Each time that logparse reads an input file, this reading gets a new name. The set contains such names.
        """
        return frozenset(self.commits["attempt"].to_pylist())

    @cached_property
    def forgotten(self) -> frozenset[str]:
        """The names of everything that the user has removed from the store (``logparse forget``).

        A name stands for the data from one reading of an input file, or for a large file into which such data were
        merged.
        """
        return frozenset(name for one in self.told for name in one.names)

    @cached_property
    def row_files(self) -> frozenset[str]:
        """The paths, relative to the store, of small files that are no longer needed because their data were merged."""
        # Each small file says that an input file was read, and this manifest now says so.
        return frozenset(row_files(self.commits))

    def put(self, filesystem: pafs.FileSystem, root: str, put: PutIfAbsent) -> bool:
        """Write this manifest (list of merged data) to the store.

        Returns False if another compaction has already written a manifest with the same number.
        """
        records = [self.records[path].text for path in sorted(self.records)]
        told = json.dumps({"parts": sorted(self.parts), "records": records}).encode()
        table = self.commits.drop_columns([RECORDED])  # it names parts that are merged now
        table = table.replace_schema_metadata({**(COMMIT_SCHEMA.metadata or {}), _TOLD: told})
        make_folder(filesystem, f"{root}/{FOLDER}")
        new = put(f"{root}/{manifest_file(self.number)}", seal_table(table, "zstd"))
        flush(filesystem, root, folders=[f"{root}/{FOLDER}"])
        return new


def manifest_file(number: int) -> str:
    """Return the path of the manifest (list of merged files) with this number, relative to the store."""
    return f"{FOLDER}/{number:08d}.parquet"


def record_forgotten(filesystem: pafs.FileSystem, root: str, what: Iterable[str]) -> None:
    """Write down that some data must not be read any more, for example because the user has removed them.

    ``what`` holds the names of readings of input files, or of merged files.
    """
    make_folder(filesystem, f"{root}/{FOLDER}")
    path = f"{root}/{FOLDER}/forgotten-{os.urandom(8).hex()}.json"
    # Even if a compaction is just merging the rows of these data, readers will skip the rows.
    replace_file(filesystem, path, seal_list(sorted(what)))
    flush(filesystem, root, folders=[f"{root}/{FOLDER}"])


def manifest_paths(filesystem: pafs.FileSystem, root: str) -> list[str]:
    """Return the paths of all manifests (lists of merged files). The last one is valid."""
    return sorted(path for path in manifest_files(filesystem, root) if path.endswith(".parquet"))


def read_latest(filesystem: pafs.FileSystem, infos: Mapping[str, int | None]) -> Manifest:
    """Read which data were merged into larger Parquet files, and which data the user has removed.

    ``infos`` is the result of ``manifest_files``. If nothing was merged, the manifest is empty. Raises StoreError if a
    file is damaged.
    """
    paths = sorted(path for path in infos if path.endswith(".parquet"))
    read = {path: _read_forgotten(filesystem, path) for path in sorted(infos) if path.endswith(".json")}
    told = tuple(Forgotten(_file(x), names, _seconds(infos[x])) for x, names in read.items() if names is not None)
    if not paths:
        return Manifest(told=told, spent=tuple(one for one in told if one.spent(frozenset())))
    data = read_bytes(filesystem, paths[-1])
    try:
        table, whole = unseal_table(data)
        listed = json.loads(table.schema.metadata[_TOLD])
        if "records" in listed and not whole:
            raise pa.ArrowInvalid(UNSEALED)
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise StoreError(f"{paths[-1]}: {str(error).partition(chr(10))[0]}; {MERGED_LOST}") from error
    number = int(paths[-1].rsplit("/", 1)[-1].removesuffix(".parquet"))
    records = [part_from_text(text) for text in listed.get("records", ())]
    named = frozenset({*table["attempt"].to_pylist(), *listed["parts"]})
    # Merged data that were removed later are left out.
    gone = named & {name for one in told for name in one.names}
    if gone:
        table = table.filter(pa.array([attempt not in gone for attempt in table["attempt"].to_pylist()], pa.bool_()))
    return Manifest(
        number,
        conform(table, COMMIT_SCHEMA),
        frozenset(listed["parts"]) - gone,
        {part.path: part for part in records if part.path not in gone},
        stale=bool(gone),
        written_at=_seconds(infos[paths[-1]]),
        told=told,
        spent=tuple(one for one in told if one.spent(named)),
    )


def manifest_files(filesystem: pafs.FileSystem, root: str) -> dict[str, int | None]:
    """Return the paths of all files that say what was merged or removed, each with the time of its last change (ns)."""
    # These files are the lists of merged files (manifests), and the lists of data that the user had removed.
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True))
    return {info.path: info.mtime_ns for info in infos}


def restore_lists(filesystem: pafs.FileSystem, root: str, lost: Iterable[Forgotten]) -> None:
    """Write lists of removed data again, because these files have disappeared from the store.

    A list names the data that the user has removed (``logparse forget``). No name is ever used for other data, so only
    the removed data are hidden.
    """
    for one in lost:
        make_folder(filesystem, f"{root}/{FOLDER}")
        replace_file(filesystem, f"{root}/{one.file}", seal_list(sorted(one.names)))
        flush(filesystem, root, folders=[f"{root}/{FOLDER}"])


def _read_forgotten(filesystem: pafs.FileSystem, path: str) -> tuple[str, ...] | None:
    """Read a file that lists removed data, and return the names in it. Returns None if another process has deleted it.

    Raises StoreError if the file is damaged.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return tuple(unseal_list(read_bytes(filesystem, path)))
    except ValueError as error:
        remedy = (
            f"delete this file; if an inventory lists it, {RESTORED}; if not, `logparse forget` the same data again"
        )
        raise StoreError(
            f"{path}: {error}; lost: which data `logparse forget` removed, so they are back; remedy: {remedy}"
        ) from error
    return None


def _file(path: str) -> str:
    """Shorten the path of a file in the store's folder ``compactions`` to ``compactions/NAME``."""
    return f"{FOLDER}/{path.rsplit('/', 1)[-1]}"


def _seconds(nanoseconds: int | None) -> float:
    return (nanoseconds or 0) / 1e9
