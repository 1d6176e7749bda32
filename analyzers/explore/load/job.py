"""Data that the web page exchanges with the child processes that load its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from logparse.text import duration

READY, VERDICT, FINAL, TRIES = "ready", "verdict", "final", "tries"
FAILED, DONE = "failed", "done"
"""Messages that the child process sends while it loads the data for the web page.

* ``READY``: the table of GEMMs and convolutions can be read. It lacks the results of the analyzers.
* ``VERDICT``: the headline and the things to do can be read.
* ``FINAL``: the tables with the results of the analyzers can be read.
* ``TRIES``: all measurements can be read. For a large store, this message comes before ``VERDICT``.
* ``FAILED``: reading failed, and no more data will come.
* ``DONE``: all is read.
"""
FILES = "overrides.zip"
"""Name of the zip file with the recommendation's files, which the user can download."""
VERDICT_FILE = "verdict.json"
"""Name of the file with the ``PageVerdict``."""
FIRST, JUDGED = "first.duckdb", "judged.duckdb"
"""Names of the web page's database files. ``JUDGED`` has the results of the analyzers, ``FIRST`` has not."""


@dataclass(frozen=True)
class Job:
    """The data that a child process should load for the web page, and the folder into which it writes them.

    * ``url``, ``run``: the Parquet folder with the data, and the name of the job to show.
    * ``other``: the name of a job to compare with (``beside.find_run_to_compare`` accepts several spellings). None for
      no comparison.
    * ``target``: facts about the user's machine.
    * ``judge``: True to analyse data that another process has already loaded.
    """

    url: str | None
    run: str | None
    other: str | None
    target: Mapping[str, str]
    folder: str
    judge: bool = False


Command: TypeAlias = tuple[str, str]
"""A line to type, after its label."""


@dataclass(frozen=True)
class Card:
    """One proposal of ``recommend``, as texts for a card on the web page.

    * ``name``: its id.
    * ``saves``: the saving, such as ``110 ms``, or "unknown".
    * ``gain``: time now → time then, or "unknown".
    * ``basis``: what the saving rests on: how much of the kernels' saving arrives in a step and why not more, the range
      of the saving, and what an estimate takes for granted. May be empty.
    * ``evidence``: how the gain is known.
    * ``changes``: what the user changes.
    * ``files``: True if the user makes the change with the recommendation's files (override files and ``apply.sh``, or
      a search script).
    * ``commands``: lines to type into a shell or a program. Each has a label, the word that the terminal writes before
      it, such as ``check``.
    * ``note``: a sentence that explains the commands. May be empty.
    * ``mark``: the kind of work that the timeline marks for it, such as ``idle``. May be empty.

    ``analyzers/recommend/verdict.py`` makes the list of proposals.
    """

    name: str
    title: str
    detail: str
    saves: str
    gain: str
    evidence: str
    changes: str
    files: bool
    commands: tuple[Command, ...] = ()
    note: str = ""
    mark: str = ""
    basis: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line for _, line in self.commands)


@dataclass(frozen=True)
class TimeSplit:
    """How the time of a step is divided among kinds of work: pairs of name and time (µs), with a title.

    ``steps``: the number of steps of which the times are the mean. 0 if the trace marks at most one step.
    """

    title: str
    parts: tuple[tuple[str, float], ...]
    steps: float = 0.0

    @property
    def mean(self) -> str:
        """The time of an average step as text, such as ``mean of 3 steps: 18.8 ms``. Empty without several steps."""
        total = duration(sum(us for _, us in self.parts if us > 0))
        return f"mean of {self.steps:,.0f} steps: {total}" if self.steps else ""


Calls: TypeAlias = tuple[str, int | None, int | None, int, int]
"""A kind of call, its number in the other run and in this run, and the numbers of the processes that made the calls.

A number of calls that no log states is None, and an unknown number of processes is 0.
"""


@dataclass(frozen=True)
class PageVerdict:
    """Everything that the web page and the report show about a run, except the table of GEMMs and convolutions.

    The function ``actions.verdict_of`` makes it.
    """

    headline: str = ""
    lines: tuple[str, ...] = ()
    shows: Mapping[str, str] = field(default_factory=dict)
    """For some of the lines, the query string of the page's view that shows what the line is about."""
    about: Mapping[str, str] = field(default_factory=dict)
    """For some of the lines, the analyzer whose findings the line sums up."""
    actions: tuple[Card, ...] = ()
    """Things to do, the most worthwhile first."""
    order: str = ""
    """A heading for the things to do, which names their order (``todo_order.name_order``)."""
    together: str = ""
    """A sentence about how much the things to do save together (``verdict.gains_text``). May be empty."""
    time: TimeSplit | None = None
    beside: tuple[tuple[str, float | None, float | None], ...] = ()
    """Times of a step in this run and in the other run: (name, time here, time there), µs. None means unknown."""
    objects: tuple[str, ...] = ()
    """Texts of the GEMMs that the run called through hipBLASLt's C++ object instead of its C functions."""
    changed: tuple[tuple[str, int], ...] = ()
    """How many GEMMs and convolutions are faster, slower and so on than in the other run (``beside.changed``)."""
    calls: tuple[Calls, ...] = ()
    proposed: str = ""
    """Text about changed picks that ``recommend`` proposed for the other run (``beside.proposed``). May be empty."""
    nothing_left: bool = False
    """True if the headline says that nothing is worth doing, and why."""
    alike: tuple[str, ...] = ()
    """Runs that call the same GEMMs or convolutions (``beside.runs_alike``)."""

    @staticmethod
    def read(path: Path) -> PageVerdict:
        known = json.loads(path.read_text())
        time = known["time"]
        return PageVerdict(
            headline=known["headline"],
            lines=tuple(known["lines"]),
            shows=known["shows"],
            about=known["about"],
            actions=tuple(
                Card(**{**x, "commands": tuple((label, line) for label, line in x["commands"])})
                for x in known["actions"]
            ),
            order=known["order"],
            time=time and TimeSplit(time["title"], tuple((name, us) for name, us in time["parts"]), time["steps"]),
            beside=tuple((name, here, there) for name, here, there in known["beside"]),
            objects=tuple(known["objects"]),
            changed=tuple((state, count) for state, count in known["changed"]),
            calls=tuple((kind, *numbers) for kind, *numbers in known["calls"]),
            proposed=known["proposed"],
            alike=tuple(known["alike"]),
            together=known["together"],
            nothing_left=known["nothing_left"],
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))
