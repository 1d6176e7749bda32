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

    * ``name``: the id of the thing to do.
    * ``saves``: the saving, such as ``110 ms``; "unknown" if it is unknown.
    * ``gain``: time now → time then, or "unknown".
    * ``evidence``: how the gain is known.
    * ``changes``: what the user changes.
    * ``files``: True if the user applies the change with the recommendation's files (override files and ``apply.sh``,
      or a search script).
    * ``lines``: lines to type into a shell or a program.
    * ``problems``: number of problems that it is about; 0 if it is about the whole job.
    """

    name: str
    title: str
    detail: str
    saves: str
    gain: str
    evidence: str
    changes: str
    files: bool
    lines: tuple[str, ...] = ()
    problems: int = 0


@dataclass(frozen=True)
class TimeSplit:
    """Where the time goes, µs by kind of work, as ``recommend`` splits a step of the run's traces."""

    title: str
    parts: tuple[tuple[str, float], ...]


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
    changed: tuple[tuple[str, int], ...] = ()
    """Number of problems by state of the comparison with the other run (``analyzers/compare/diff.py``)."""

    @staticmethod
    def read(path: Path) -> PageVerdict:
        known = json.loads(path.read_text())
        time = known["time"]
        return PageVerdict(
            headline=known["headline"],
            lines=tuple(known["lines"]),
            actions=tuple(Card(**{**x, "lines": tuple(x["lines"])}) for x in known["actions"]),
            time=time and TimeSplit(time["title"], tuple((name, us) for name, us in time["parts"])),
            beside=tuple((name, here, there) for name, here, there in known["beside"]),
            objects=tuple(known["objects"]),
            changed=tuple((state, count) for state, count in known["changed"]),
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))
