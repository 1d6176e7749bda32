"""What a compaction merged: the commits that it stands for, and the parts that hold their rows.

    STORE/compactions/<number>.parquet   the highest number counts

The commits' row files and parts stay until nobody can be reading them any more (``Store.sweep``); whoever reads the
manifest passes them over.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from logparse.columns import table as arrow_table
from logparse.location import PutIfAbsent, make_folder
from logparse.schema import COMMIT_SCHEMA

FOLDER = "compactions"
MERGED = "merged"
"""What the names of merged parts begin with, where others have an attempt."""
_TOLD = b"logparse_manifest"


@dataclass(frozen=True)
class Manifest:
    """``commits``: rows of ``COMMIT_SCHEMA``; ``parts``: paths below the store; ``stale``: whether these hold rows of
    forgotten commits; ``age_s``: since it was written.
    """

    number: int = 0
    commits: pa.Table = field(default_factory=lambda: arrow_table([], COMMIT_SCHEMA))
    parts: frozenset[str] = frozenset()
    stale: bool = False
    age_s: float = 0.0

    @property
    def attempts(self) -> frozenset[str]:
        """The attempts whose rows the merged parts hold."""
        return frozenset(self.commits["attempt"].to_pylist())

    def to_bytes(self) -> bytes:
        """The file that ``latest`` reads."""
        told = json.dumps({"parts": sorted(self.parts), "stale": self.stale}).encode()
        table = self.commits.replace_schema_metadata({**(COMMIT_SCHEMA.metadata or {}), _TOLD: told})
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        return sink.getvalue()

    def path(self, root: str) -> str:
        return f"{root}/{FOLDER}/{self.number:08d}.parquet"

    def put(self, filesystem: pafs.FileSystem, root: str, put: PutIfAbsent) -> bool:
        """Write it under its number.  False where another compaction has taken that."""
        make_folder(filesystem, f"{root}/{FOLDER}")
        return put(self.path(root), self.to_bytes())


def manifests(filesystem: pafs.FileSystem, root: str) -> list[str]:
    """The paths of all of them, the one that counts last."""
    selector = pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True)
    return sorted(info.path for info in filesystem.get_file_info(selector) if info.path.endswith(".parquet"))


def latest(filesystem: pafs.FileSystem, root: str) -> Manifest:
    """The manifest that counts, an empty one where nothing was ever merged."""
    paths = manifests(filesystem, root)
    if not paths:
        return Manifest()
    info = filesystem.get_file_info(paths[-1])
    file = pq.ParquetFile(paths[-1], filesystem=filesystem)
    table = file.read()
    told = json.loads(table.schema.metadata[_TOLD])
    number = int(paths[-1].rsplit("/", 1)[-1].removesuffix(".parquet"))
    age = time.time() - (info.mtime_ns or 0) / 1e9
    return Manifest(number, table.cast(COMMIT_SCHEMA), frozenset(told["parts"]), told["stale"], age)
