"""The data that the page exchanges with the processes that read a store for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

READY, TRIES, VERDICT, FAILED, DONE = "ready", "tries", "verdict", "failed", "done"
"""Steps of a reading, in this order.

READY, TRIES and VERDICT state which data are there.  FAILED states that data will never be there.  DONE states that no
more data will come.
"""
FILES = "overrides.zip"
"""The recommendation's files, for download."""
FIRST, JUDGED = "first.duckdb", "judged.duckdb"
"""The page's tables with all rows: FIRST from the files alone, JUDGED with the analyzers' results."""


@dataclass(frozen=True)
class Job:
    """Store to read, and the folder to write the page's data to.

    The files are read first, then the analyzers run (``judge``).  ``other``: the run to compare with, as
    ``beside.beside`` takes it.
    """

    url: str | None
    run: str | None
    other: str | None
    target: Mapping[str, str]
    folder: str
    judge: bool = False


@dataclass(frozen=True)
class Card:
    """One thing to do from ``recommend``'s list (``analyzers/recommend/verdict.py``), as texts.

    * ``gain``: time now → time then, or "unknown".
    * ``evidence``: how the gain is known.
    * ``changes``: what the user changes.
    * ``files``: True if the user applies the change with the recommendation's files (override files and ``apply.sh``,
      or a search script).
    """

    title: str
    detail: str
    gain: str
    evidence: str
    changes: str
    files: bool


@dataclass(frozen=True)
class TimeSplit:
    """Where the time goes, µs by name.

    With a trace, ``parts`` are the kinds of work of a step, as ``recommend`` splits the step.  Without a trace,
    ``parts`` are sums of calls × time: one for the problems that have an alternative to compare with, one for the other
    problems. ``untimed_calls`` is the number of calls of problems without any time.
    """

    title: str
    parts: tuple[tuple[str, float], ...]
    untimed_calls: int = 0


@dataclass(frozen=True)
class PageVerdict:
    """Result of a run's analysis, made by ``actions.verdict_of``.

    Besides the table of problems, page and report show nothing else of the analysis.
    """

    headline: str = ""
    lines: tuple[str, ...] = ()
    actions: tuple[Card, ...] = ()
    """Things to do, the most worthwhile first."""
    time: TimeSplit | None = None
    beside: tuple[tuple[str, float | None, float | None], ...] = ()
    """Times per step (µs) as (name, time of this run, time of the other run).

    A time that the run's traces do not state is None.
    """
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
