"""What the page and the processes that read a store for it exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KEPT, READY, TRIES, VERDICT, FAILED, DONE = "kept", "ready", "tries", "verdict", "failed", "done"
"""Everything is there since an earlier page; or what is there, in this order; or why it never will be; or that there is
no more (with the folder in which all of it is to be kept).
"""
FIRST, JUDGED = "first.duckdb", "judged.duckdb"
"""The page's tables: from the files alone, and with the analyzers' results."""


@dataclass(frozen=True)
class Job:
    """What is read, for whom, into which folder; first the files, then (``judge``) the analyzers."""

    url: str | None
    run: str | None
    other: str | None
    target: Mapping[str, str]
    folder: str
    judge: bool = False
    kept: str = ""
    """Where the folder is kept for the next look, given by the first process; empty: nowhere."""
