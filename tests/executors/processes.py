"""Find processes of this machine by their command lines."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def processes(words: bytes, *, ours: bool = True) -> list[int]:
    """Return the ids of processes that have these words in their command line.

    If ``ours`` is true, only descendants of this process are returned, because other tests run at the same time.
    """
    found, parents = [], {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if words in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return [pid for pid in found if not ours or os.getpid() in _above(pid, parents)]


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    out: set[int] = set()
    while pid in parents:
        pid = parents[pid]
        out.add(pid)
    return out
