"""An override file as its library sees it: which rows it reads, can match and would honour, and what is wrong.

The three verdicts of a row are True, False or None (it cannot be told without knowing the target).  A row that is not
read, or that no call can match, is *dead*: whatever the workload, it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from analyzers.evidence.target import Facts
from logparse.formats.format import Head
from logparse.model import Problem, Solution

Severity = Literal["error", "warning", "info"]
Step = Literal["read", "matched", "honoured"]
STEPS: tuple[Step, ...] = ("read", "matched", "honoured")
Verdict: TypeAlias = bool | None
T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True)
class Note:
    """Something about a file (``line`` None) or about one of its lines (counted from 1), and what to do."""

    line: int | None
    severity: Severity
    rule: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Verdicts:
    """What the library does with a row; ``why`` is the reason of the first verdict that is False."""

    read: Verdict = None
    matched: Verdict = None
    honoured: Verdict = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the file, or one item of a row that lists several solutions.

    ``key`` is the library's own key as the file has it, ``time_us`` and ``workspace_bytes`` what the row says of its
    solution.
    """

    line: int
    key: str
    problem: Problem | None
    solution: Solution | None
    verdicts: Verdicts
    time_us: float | None = None
    workspace_bytes: int | None = None

    @property
    def dead(self) -> bool:
        """Whether no call whatever can be served by this row."""
        return self.verdicts.read is False or self.verdicts.matched is False

    @property
    def live(self) -> bool:
        """Whether nothing is known that keeps the library from using it."""
        return not self.dead and self.verdicts.honoured is not False


@dataclass(frozen=True, kw_only=True)
class OverrideFile:
    """A file judged for a target: ``accepted`` says whether the library takes the file as a whole.

    ``shown`` is how reports call it where its name alone would not tell it from another file.
    """

    format: str
    name: str
    accepted: Verdict
    facts: Facts
    target: Facts
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]
    shown: str = ""

    @property
    def title(self) -> str:
        return self.shown or self.name

    @property
    def ok(self) -> bool:
        """Whether there is no note of severity ``error``."""
        return not any(note.severity == "error" for note in self.notes)


@dataclass(frozen=True)
class Rule(Generic[T, C]):
    """One rule about a row: ``check`` gives the message where it is broken, None else; ``stops`` says which verdict
    is False then (None: the row works all the same).
    """

    name: str
    severity: Severity
    stops: Step | None
    check: Callable[[T, C], str | None]
    remedy: str = ""


@dataclass(frozen=True)
class Rules:
    """What is known of one override format: a member of ``lint.RULES``.

    ``key`` is the library's key of a call on a target (its writer's own), ``matches`` whether the row of one key serves
    a call of another (equality, where a format has no wildcards), ``kinds`` the kinds of problems that it runs.
    ``fastest``: of several rows of one key the library takes the fastest instead of the first.  ``foreign`` says why a
    key is none that a build with these facts writes.  ``instead`` gives the keys that the library tries, in order,
    where there is no row of a call's own.  ``selects``: a row chooses a solution (a perf-db's only tells parameters).
    """

    format: str
    kinds: frozenset[str]
    recognise: Callable[[Head], bool]
    inspect: Callable[[str, bytes, Facts], OverrideFile]
    key: Callable[[Problem, Facts], str | None]
    matches: Callable[[str, str], bool] = field(default=str.__eq__)
    fastest: bool = False
    foreign: Callable[[str, Facts], str | None] = field(default=lambda key, facts: None)
    instead: Callable[[str], Sequence[str]] = field(default=lambda key: ())
    selects: bool = True


def judge(
    line: int, entry: T, context: C, rules: Sequence[Rule[T, C]], accepted: Verdict, refusal: str
) -> tuple[Verdicts, list[Note]]:
    """The verdicts and notes of one entry of a file that is ``accepted`` as a whole, or not for the reason given."""
    stopped: dict[Step, str] = {} if accepted is not False else {"read": refusal}
    notes = []
    for rule in rules:
        message = rule.check(entry, context)
        if message is not None:
            notes.append(Note(line, rule.severity, rule.name, message, rule.remedy))
            if rule.stops is not None:
                stopped.setdefault(rule.stops, message)
    read, matched, honoured = (False if step in stopped else accepted or None for step in STEPS)
    return Verdicts(read, matched, honoured, next((stopped[step] for step in STEPS if step in stopped), "")), notes


def text_of(data: bytes) -> tuple[str, bool]:
    """The file as text without a byte order mark, and whether it had one.  Bytes that are no UTF-8 are kept."""
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")
