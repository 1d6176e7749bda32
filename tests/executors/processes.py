"""Looking at the processes of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes(words: bytes) -> list[int]:
    """Processes with these words in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if words in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found
