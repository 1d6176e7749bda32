"""What runs now: an ingest or replay announces itself in the store, and its commits show its progress.

::

    STORE/running/<id>.json    {"kind": "ingest", "run": "job-7", "started": 1790000000.0, "host": "node1", "pid": 4242,
                                "files": 8000, "bytes": 88000000000}

The file is written at the start and removed at the end, also after an error or Ctrl-C; a killed driver leaves it.  It
holds no progress: readers count the commits since its start, so a killed run shows as one without new commits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow.fs as pafs

from logparse.location import make_folder, replace_file
from logparse.store.schema import COMMIT_SCHEMA, Commit, commit_from_row
from logparse.store.store import Store

FOLDER = "running"
REPLAY = "replay"
"""The format of a replay's commits, and its ``kind`` here; all other commits are an ingest's."""
_STALE_S = 14 * 86400.0
_REWRITE_S = 5.0
_CLOCKS_S = 3600.0  # maximum difference between the clocks of a store and a driver


@dataclass(frozen=True, kw_only=True)
class Running:
    """One ingest or replay as its driver announced it; unknown totals are None.

    ``started``: seconds since 1970 by the driver's clock.  ``bytes``: raw bytes to read, ``problems`` to measure.
    """

    kind: str
    run: str
    started: float
    host: str
    pid: int
    files: int | None = None
    bytes: int | None = None
    problems: int | None = None


class Announcement:
    """The announcement file of this process.  If it cannot be written, the work goes on, but cannot be watched."""

    def __init__(self, store: Store, entry: Running) -> None:
        self._store, self._entry = store, entry
        self._path = _path(store, os.urandom(8).hex())
        self._written = -math.inf
        self.write()

    def write(self) -> None:
        """Write or overwrite the file."""
        with contextlib.suppress(OSError):
            make_folder(self._store.filesystem, f"{self._store.root}/{FOLDER}")
            replace_file(self._store.filesystem, self._path, json.dumps(asdict(self._entry)).encode())

    def leave_out(self) -> None:
        """Subtract a problem that was measured before and commits nothing; the file is rewritten later."""
        self._entry = replace(self._entry, problems=(self._entry.problems or 1) - 1)
        if time.monotonic() - self._written > _REWRITE_S:
            self.write()
            self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the file.  An error here does not matter: all results are committed."""
        with contextlib.suppress(OSError):
            self._store.filesystem.delete_file(self._path)


@contextlib.contextmanager
def announced(store: Store, kind: str, run: str, **amounts: int | None) -> Iterator[Announcement]:
    """Announce this process in the store for the duration of the context, with ``Running``'s unknown totals."""
    entry = Running(kind=kind, run=run, started=time.time(), host=socket.gethostname(), pid=os.getpid(), **amounts)
    announcement = Announcement(store, entry)
    try:
        yield announcement
    finally:
        announcement.remove()


def running(store: Store) -> dict[str, Running]:
    """The announced runs by id, oldest first.  Raises OSError."""
    out = {}
    for info in store.filesystem.get_file_info(pafs.FileSelector(f"{store.root}/{FOLDER}", allow_not_found=True)):
        name = info.path.rsplit("/", 1)[-1]
        if name.endswith(".json") and (entry := _entry(store, info.path)):
            out[name.removesuffix(".json")] = entry
    return dict(sorted(out.items(), key=lambda item: item[1].started))


def remove_abandoned(store: Store, now: float) -> int:
    """Remove the files of killed drivers, which began weeks ago.  Returns how many.  Raises OSError."""
    old = [name for name, entry in running(store).items() if now - entry.started > _STALE_S]
    for name in old:
        with contextlib.suppress(FileNotFoundError):
            store.filesystem.delete_file(_path(store, name))
    return len(old)


def _path(store: Store, name: str) -> str:
    return f"{store.root}/{FOLDER}/{name}.json"


def _entry(store: Store, path: str) -> Running | None:
    """The announcement in a file; None where it ended meanwhile or another version wrote it."""
    try:
        with store.filesystem.open_input_stream(path) as stream:
            return Running(**json.loads(stream.read()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


class Rows:
    """The row files of a store that are new since the last look; those from before ``since`` are never read."""

    def __init__(self, store: Store, since: float) -> None:
        self._store = store
        self._since = since - _CLOCKS_S
        self._seen: set[str] = set()

    def new(self) -> list[Commit]:
        """Commits since the last call.  Raises OSError; the next call then returns what this one missed."""
        selector = pafs.FileSelector(f"{self._store.root}/sources", recursive=True, allow_not_found=True)
        fresh = [
            info.path
            for info in self._store.filesystem.get_file_info(selector)
            if info.is_file and info.path.endswith(".parquet") and info.path not in self._seen
            if info.mtime_ns is None or info.mtime_ns / 1e9 >= self._since
        ]
        rows = [commit_from_row(row) for row in self._store.rows(fresh, COMMIT_SCHEMA).to_pylist()]
        self._seen.update(fresh)
        return rows


@dataclass
class Count:
    """What an announced ingest or replay has committed."""

    entry: Running
    files: int = 0
    bytes: int = 0
    lines: int = 0
    problems: int = 0
    last: float = field(init=False)
    """Time of the last commit, in seconds since 1970 (before the first: of the start)."""
    _sources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.last = self.entry.started

    def take(self, rows: Sequence[Commit]) -> None:
        """Count this run's commits among ``rows``."""
        mine = [row for row in rows if self._is_mine(row)]
        self.last = max([self.last, *(row.committed_at for row in mine)])
        if self.entry.kind == REPLAY:  # of a problem, its race and its winner's confirmation are committed
            self._sources |= {row.path.rpartition("/")[2] for row in mine}
            self.problems = len(self._sources)
            return
        self.bytes += sum(row.end - row.start for row in mine)
        self.lines += sum(row.lines for row in mine)
        self._sources |= {row.source_id for row in mine}
        self.files = len(self._sources)

    def _is_mine(self, row: Commit) -> bool:
        if row.committed_at < self.entry.started or (row.format == REPLAY) != (self.entry.kind == REPLAY):
            return False
        grown = row.path != "-" and bool(row.start or row.replaces)  # a file that grew stays with its run
        return row.run == self.entry.run or grown

    @property
    def share(self) -> float | None:
        """The share of the work that is done, 0 to 1; None where its amount is unknown."""
        for done, total in ((self.problems, self.entry.problems), (self.bytes, self.entry.bytes)):
            if total:
                return min(1.0, done / total)
        return None

    def left_s(self, now: float) -> float | None:
        """Seconds left at the mean rate so far; None before the first commit."""
        share, spent = self.share, now - self.entry.started
        return None if not share or spent <= 0 else spent / share * (1 - share)
