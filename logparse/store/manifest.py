"""Manifest of a compaction: the merged commits, and the parts that hold their rows.

    STORE/compactions/<number>.parquet       the highest number counts …
    STORE/compactions/forgotten-<id>.json    … but for the attempts in these

The row files and parts of the merged commits stay until no reader can still use them (``Store.sweep``).  Readers of the
manifest skip them.  Forgotten attempts are recorded in files beside the manifest.  So a compaction that read these
attempts before they were forgotten cannot bring them back, no matter when it writes its manifest.
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
"""Prefix of the names of merged parts.  Names of other parts begin with their attempt."""
MERGED_LOST = "lost: rows of files that a compaction merged; remedy: ingest all files into a new store"
RESTORED = "the next `logparse ingest` or `logparse compact` writes it again"
_TOLD = b"logparse_manifest"
_REMEMBERED_S = 86400.0
"""Minimum time for which forgotten attempts stay recorded, s.

The reason is that a compaction that began before they were forgotten may still run.
"""
_MISSED_S = _REMEMBERED_S / 2
"""Time for which the absence of such a record counts as damage, even if the store holds none of its names, s.

The time is shorter than ``_REMEMBERED_S``, because the clocks of hosts differ: if one host removes a record, no other
host must report damage.
"""


class Forgotten(NamedTuple):
    """File that records forgotten names.

    ``file`` is its path below the store.  ``names`` are the attempts and merged parts that it names.  ``at`` is the
    time when it was written, in seconds since 1970.
    """

    file: str
    names: tuple[str, ...]
    at: float

    def spent(self, known: Set[str]) -> bool:
        """Tell whether the file may be removed.

        That is so if it is old, and the store knows no attempt or part with one of its names.
        """
        return time.time() - self.at > _REMEMBERED_S and known.isdisjoint(self.names)

    def missed(self, known: Set[str]) -> bool:
        """Tell whether the file's absence is damage.

        That is so if the file is recent, or if the store knows an attempt or part with one of its names.
        """
        return time.time() - self.at <= _MISSED_S or not known.isdisjoint(self.names)


@dataclass(frozen=True)
class Manifest:
    """Manifest, as read from the store or made by a compaction.

    * ``commits``: rows of ``COMMIT_SCHEMA``.
    * ``parts``: paths below the store.
    * ``records``: the records of the parts.  Manifests of earlier versions have none.
    * ``stale``: True if the parts hold rows of forgotten commits.
    * ``written_at``: seconds since 1970.
    * ``told``: the files that record forgotten names.
    * ``spent``: the files in ``told`` whose names were forgotten long ago and are in no manifest.
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
        """The attempts whose rows the merged parts hold."""
        return frozenset(self.commits["attempt"].to_pylist())

    @cached_property
    def forgotten(self) -> frozenset[str]:
        """Names of the attempts and merged files that ``forget`` has removed, as the entries in ``told`` list them."""
        return frozenset(name for one in self.told for name in one.names)

    @cached_property
    def row_files(self) -> frozenset[str]:
        """The paths of the commits' own row files below the store."""
        return frozenset(row_files(self.commits))

    def put(self, filesystem: pafs.FileSystem, root: str, put: PutIfAbsent) -> bool:
        """Write the manifest under its number, so that ``read_latest`` finds it.

        Return False if another compaction has already taken the number.
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
    """Return the path of a manifest below the store."""
    return f"{FOLDER}/{number:08d}.parquet"


def record_forgotten(filesystem: pafs.FileSystem, root: str, what: Iterable[str]) -> None:
    """Record attempts or merged parts as forgotten.

    They disappear from the present manifest, and from any manifest that a compaction is making now.
    """
    make_folder(filesystem, f"{root}/{FOLDER}")
    path = f"{root}/{FOLDER}/forgotten-{os.urandom(8).hex()}.json"
    replace_file(filesystem, path, seal_list(sorted(what)))
    flush(filesystem, root, folders=[f"{root}/{FOLDER}"])


def manifest_paths(filesystem: pafs.FileSystem, root: str) -> list[str]:
    """Return the paths of all manifests.  The valid manifest is the last one."""
    return sorted(path for path in manifest_files(filesystem, root) if path.endswith(".parquet"))


def read_latest(filesystem: pafs.FileSystem, infos: Mapping[str, int | None]) -> Manifest:
    """Read the valid manifest among the files of ``manifest_files``.

    Return an empty manifest if nothing was ever merged.  Raises StoreError if the manifest, or a list of forgotten
    names, is damaged.
    """
    paths = sorted(path for path in infos if path.endswith(".parquet"))
    read = {path: _forgotten(filesystem, path) for path in sorted(infos) if path.endswith(".json")}
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
    """Return the paths of all manifests and lists of forgotten names, each with the time of its last change in
    nanoseconds.
    """
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True))
    return {info.path: info.mtime_ns for info in infos}


def restore_lists(filesystem: pafs.FileSystem, root: str, lost: Iterable[Forgotten]) -> None:
    """Write deleted lists of forgotten names again.

    A name is never used twice, so this hides only what was forgotten.
    """
    for one in lost:
        make_folder(filesystem, f"{root}/{FOLDER}")
        replace_file(filesystem, f"{root}/{one.file}", seal_list(sorted(one.names)))
        flush(filesystem, root, folders=[f"{root}/{FOLDER}"])


def _forgotten(filesystem: pafs.FileSystem, path: str) -> tuple[str, ...] | None:
    """Return the names in a file of forgotten names.  Return None if another process has removed the file."""
    try:
        with contextlib.suppress(FileNotFoundError):
            return tuple(unseal_list(read_bytes(filesystem, path)))
    except ValueError as error:
        remedy = (
            f"delete this file; if an inventory lists it, {RESTORED}; else `logparse forget` again what was forgotten"
        )
        raise StoreError(f"{path}: {error}; lost: what was forgotten; {remedy} last") from error
    return None


def _file(path: str) -> str:
    """Convert the path of a file in the folder ``compactions`` into a path relative to the store."""
    return f"{FOLDER}/{path.rsplit('/', 1)[-1]}"


def _seconds(nanoseconds: int | None) -> float:
    return (nanoseconds or 0) / 1e9
