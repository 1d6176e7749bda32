"""The manifest of a compaction: the merged commits, and the parts that hold their rows.

    STORE/compactions/<number>.parquet       the highest number counts …
    STORE/compactions/forgotten-<id>.json    … but for the attempts in these

The commits' own row files and parts stay until no reader can still use them (``Store.sweep``); readers of the manifest
skip them.  Forgotten attempts are recorded in files beside the manifest, so that a compaction that read them before
cannot bring them back, no matter when its manifest is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from logparse.location import PutIfAbsent, make_folder, replace_file
from logparse.store.columns import table as arrow_table
from logparse.store.parts import parquet_bytes, row_files
from logparse.store.schema import COMMIT_SCHEMA

FOLDER = "compactions"
MERGED = "merged"
"""Prefix of the names of merged parts, where other parts' names begin with their attempt."""
_TOLD = b"logparse_manifest"
_REMEMBERED_S = 86400.0
"""Minimum seconds for which forgotten attempts stay recorded: a compaction that began before may still run."""


@dataclass(frozen=True)
class Manifest:
    """One manifest.

    ``commits``: rows of ``COMMIT_SCHEMA``; ``parts``: paths below the store; ``stale``: whether these hold rows of
    forgotten commits; ``written_at``: seconds since 1970; ``spent``: paths of files that record attempts which were
    forgotten long ago and are in no manifest.
    """

    number: int = 0
    commits: pa.Table = field(default_factory=lambda: arrow_table([], COMMIT_SCHEMA))
    parts: frozenset[str] = frozenset()
    stale: bool = False
    written_at: float = 0.0
    spent: tuple[str, ...] = ()

    @cached_property
    def attempts(self) -> frozenset[str]:
        """The attempts whose rows the merged parts hold."""
        return frozenset(self.commits["attempt"].to_pylist())

    @cached_property
    def row_files(self) -> frozenset[str]:
        """The paths of the commits' own row files below the store."""
        return frozenset(row_files(self.commits))

    def put(self, filesystem: pafs.FileSystem, root: str, put: PutIfAbsent) -> bool:
        """Write it under its number, as ``latest`` reads it.  Returns False where another compaction has taken it."""
        told = json.dumps({"parts": sorted(self.parts)}).encode()
        table = self.commits.replace_schema_metadata({**(COMMIT_SCHEMA.metadata or {}), _TOLD: told})
        make_folder(filesystem, f"{root}/{FOLDER}")
        return put(f"{root}/{FOLDER}/{self.number:08d}.parquet", parquet_bytes(table, "zstd"))


def forget(filesystem: pafs.FileSystem, root: str, attempts: Iterable[str]) -> None:
    """Remove attempts from the manifest, and from any that is being made."""
    make_folder(filesystem, f"{root}/{FOLDER}")
    path = f"{root}/{FOLDER}/forgotten-{os.urandom(8).hex()}.json"
    replace_file(filesystem, path, json.dumps(sorted(attempts)).encode())


def manifests(filesystem: pafs.FileSystem, root: str) -> list[str]:
    """The paths of all manifests, the valid one last."""
    return sorted(path for path in manifest_files(filesystem, root) if path.endswith(".parquet"))


def latest(filesystem: pafs.FileSystem, infos: Mapping[str, int | None]) -> Manifest:
    """The valid manifest of the files that ``manifest_files`` returns; an empty one where nothing was ever merged."""
    paths = sorted(path for path in infos if path.endswith(".parquet"))
    forgotten = {path: _forgotten(filesystem, path) for path in infos if path.endswith(".json")}
    old = [path for path in forgotten if time.time() - _seconds(infos[path]) > _REMEMBERED_S]
    if not paths:
        return Manifest(spent=tuple(old))
    file = pq.ParquetFile(paths[-1], filesystem=filesystem)
    table = file.read()
    told = json.loads(table.schema.metadata[_TOLD])
    number = int(paths[-1].rsplit("/", 1)[-1].removesuffix(".parquet"))
    held = frozenset(table["attempt"].to_pylist())
    gone = held & frozenset().union(*forgotten.values())
    if gone:
        table = table.filter(pa.array([attempt not in gone for attempt in table["attempt"].to_pylist()], pa.bool_()))
    return Manifest(
        number,
        table.cast(COMMIT_SCHEMA),
        frozenset(told["parts"]),
        stale=bool(gone),
        written_at=_seconds(infos[paths[-1]]),
        spent=tuple(path for path in old if not held & forgotten[path]),
    )


def manifest_files(filesystem: pafs.FileSystem, root: str) -> dict[str, int | None]:
    """The files of all manifests and of what was forgotten, with the nanosecond of their last change."""
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True))
    return {info.path: info.mtime_ns for info in infos}


def _forgotten(filesystem: pafs.FileSystem, path: str) -> frozenset[str]:
    with contextlib.suppress(FileNotFoundError), filesystem.open_input_stream(path) as stream:
        return frozenset(json.loads(stream.read()))
    return frozenset()


def _seconds(nanoseconds: int | None) -> float:
    return (nanoseconds or 0) / 1e9
