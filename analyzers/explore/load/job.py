"""What the page and the processes that read a store for it exchange."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

READY, TRIES, VERDICT, FAILED, DONE = "ready", "tries", "verdict", "failed", "done"
"""What is there, in this order; or why it never will be; or that there is no more."""
FILES = "overrides.zip"
"""The recommendation's files, for download."""
FIRST, JUDGED = "first.duckdb", "judged.duckdb"
"""The page's tables: all rows, from the files alone, and with the analyzers' results."""


@dataclass(frozen=True)
class Job:
    """What is read, for whom, into which folder; first the files, then (``judge``) the analyzers.

    ``other``: the run beside it, as ``beside.beside`` takes it.
    """

    url: str | None
    run: str | None
    other: str | None
    target: Mapping[str, str]
    folder: str
    judge: bool = False


@dataclass(frozen=True)
class Card:
    """One thing to do, of ``recommend``'s list (``analyzers/recommend/verdict.py``), as texts.

    ``gain``: now → then, or "unknown"; ``evidence``: how that is known; ``changes``: what one does.  ``files``: the
    recommendation's files (override files and ``apply.sh``, or a search script) are what to use.
    """

    title: str
    detail: str
    gain: str
    evidence: str
    changes: str
    files: bool


@dataclass(frozen=True)
class TimeSplit:
    """Where the time goes, µs by name: with a trace the kinds of work of a step as ``recommend`` splits it, else of the
    problems' calls × time what was compared with an alternative.  ``untimed_calls`` are of problems without any time.
    """

    title: str
    parts: tuple[tuple[str, float], ...]
    untimed_calls: int = 0


@dataclass(frozen=True)
class PageVerdict:
    """What the analysis of a run comes to, made by ``actions.verdict_of``: the one thing that page and report show of
    it beside the table of problems.
    """

    headline: str = ""
    lines: tuple[str, ...] = ()
    actions: tuple[Card, ...] = ()
    """What to do, the most worthwhile first."""
    time: TimeSplit | None = None
    beside: tuple[tuple[str, float | None, float | None], ...] = ()
    """Times per step of this run and of the one beside it, µs, by name; None where a run's traces do not state one."""
    objects: tuple[str, ...] = ()
    """Problems that the run called through hipBLASLt's C++ object."""

    @staticmethod
    def read(path: Path) -> PageVerdict:
        known = json.loads(path.read_text())
        title, parts, untimed = known["time"].values()
        return PageVerdict(
            headline=known["headline"],
            lines=tuple(known["lines"]),
            actions=tuple(Card(**x) for x in known["actions"]),
            time=TimeSplit(title, tuple((name, us) for name, us in parts), untimed),
            beside=tuple((name, here, there) for name, here, there in known["beside"]),
            objects=tuple(known["objects"]),
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))
