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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pyarrow.fs as pafs

from logparse.location import make_folder, replace_file
from logparse.store.parts import attempt_of
from logparse.store.schema import COMMIT_SCHEMA, SCHEMAS, Commit, commit_from_row
from logparse.store.store import Store

FOLDER = "running"
REPLAY = "replay"
"""The format of a replay's commits, and its ``kind`` here; all other commits are an ingest's."""
_STALE_S = 86400.0
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
def announced(
    store: Store,
    kind: str,
    run: str,
    *,
    files: int | None = None,
    bytes: int | None = None,
    problems: int | None = None,
) -> Iterator[Announcement]:
    """Announce this process in the store for the duration of the context."""
    entry = Running(
        kind=kind,
        run=run,
        started=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
        files=files,
        bytes=bytes,
        problems=problems,
    )
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
    """Remove the files of killed drivers (no commit for a day).  Returns how many.  Raises OSError."""
    removed = 0
    for name, entry in running(store).items():
        if now - entry.started < _STALE_S:
            continue
        count = Count(entry)
        count.take(Rows(store, entry.started).new(), store)
        if now - count.last > _STALE_S:
            with contextlib.suppress(FileNotFoundError):
                store.filesystem.delete_file(_path(store, name))
                removed += 1
    return removed


def _path(store: Store, name: str) -> str:
    return f"{store.root}/{FOLDER}/{name}.json"


def _entry(store: Store, path: str) -> Running | None:
    """The announcement in a file; None where it ended meanwhile or another version wrote it."""
    try:
        with store.filesystem.open_input_stream(path) as stream:
            told = json.loads(stream.read())
        known = {f.name for f in fields(Running)}
        entry = Running(**{name: value for name, value in told.items() if name in known})
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
    return entry


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


@dataclass(frozen=True)
class Best:
    """The confirmed finding with the largest speedup so far."""

    problem: str
    pick: str
    winner: str
    speedup: float


@dataclass
class Count:
    """What an announced ingest or replay has committed."""

    entry: Running
    files: int = 0
    bytes: int = 0
    lines: int = 0
    problems: int = 0
    confirmed: int = 0
    best: Best | None = None
    last: float = field(init=False)
    """Time of the last commit, in seconds since 1970 (before the first: of the start)."""
    _sources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.last = self.entry.started

    def take(self, rows: Sequence[Commit], store: Store) -> None:
        """Count this run's commits among ``rows``.  Raises OSError."""
        mine = [row for row in rows if self._is_mine(row)]
        self.last = max([self.last, *(row.committed_at for row in mine)])
        if self.entry.kind == REPLAY:
            self._measured(mine, store)
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

    def _measured(self, mine: Sequence[Commit], store: Store) -> None:
        """Count problems: each is one commit after its race, and another after its winner's confirmation."""
        verdicts = _confirmations(store, {row.attempt for row in mine})
        self.problems += len(mine) - len(verdicts)
        for told in verdicts:
            if told.get("confirmed"):
                self.confirmed += 1
                best = Best(told["problem"], told["pick"], told["winner"], told["speedup"])
                self.best = max(self.best or best, best, key=lambda x: x.speedup)

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


def _confirmations(store: Store, attempts: set[str]) -> list[Mapping[str, Any]]:
    """The results of confirmations that these attempts committed (a replay writes each as a fact)."""
    paths = [path for path in store.files("facts") if attempt_of(path) in attempts] if attempts else []
    facts = store.rows(paths, SCHEMAS["facts"]).to_pylist()
    return [json.loads(fact["value"]) for fact in facts if fact["name"] == "confirmation"]
