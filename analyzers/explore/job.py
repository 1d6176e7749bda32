"""What the page and the processes that read a store for it tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READY, TRIES, VERDICT, FAILED, DONE = "ready", "tries", "verdict", "failed", "done"
"""What is there, in this order; or why it never will be; or that there is no more."""
FIRST, JUDGED = "first.duckdb", "judged.duckdb"
"""The page's tables: as the files say, and with what the analyzers say."""


@dataclass(frozen=True)
class Job:
    """What is read, for whom, into which folder; ``kept``: where that folder is kept for the next look."""

    url: str
    run: str | None
    other: str | None
    target: Mapping[str, str]
    folder: str
    kept: str | None
