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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import pyarrow.fs as pafs

from logparse.location import make_folder, replace_file
from logparse.store.store import Store

FOLDER = "running"
_STALE_S = 14 * 86400.0
_REWRITE_S = 5.0


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
