"""What an override format is: a file by which a library takes a solution from outside, and all that is known of it.

A member judges files for a target: which rows the library reads, which a call can match, which it honours, and what is
wrong.  The three verdicts of a row are True, False or None (unknown without the target).  A row that is not read, or
that no call can match, is *dead*: whatever the workload, it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from analyzers.evidence.target import Facts
from logparse.formats.format import Emission, FileFormat, Head, Source, Writer
from logparse.model import Problem, Record, Solution

Severity = Literal["error", "warning", "info"]
Step = Literal["read", "matched", "honoured"]
STEPS: tuple[Step, ...] = ("read", "matched", "honoured")
Verdict: TypeAlias = bool | None
Inspect: TypeAlias = Callable[[str, bytes, Facts], "OverrideFile"]
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
    """What the library does with a row; ``why`` is the reason of the first verdict that is False.

    ``fault`` is what is wrong with the row itself: empty where only its place (an earlier row of its key wins) or the
    file as a whole keeps the library from using it, so that a merged file can hold it.
    """

    read: Verdict = None
    matched: Verdict = None
    honoured: Verdict = None
    why: str = ""
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the file, or one item of a row that lists several solutions.

    ``key`` is the library's own key as the file has it, ``text`` the row as a file holds it, without its line end
    (of an item: without its key).  ``time_us`` and ``workspace_bytes`` are what the row states of its solution.
    """

    line: int
    key: str
    problem: Problem | None
    solution: Solution | None
    verdicts: Verdicts
    text: str
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
    """A file judged for a target: ``accepted`` is whether the library takes the file as a whole.

    ``shown`` is its name in reports, where the file's name alone would be that of another file too.
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
    """One rule about a row: ``check`` returns the message where it is broken, None else; ``stops`` is the verdict that
    is False then (None: the row works all the same).

    ``fault``: the rule is about the row itself, so a merged file leaves such a row out.  By default every rule that
    stops a row is; one about its place in the file is not.
    """

    name: str
    severity: Severity
    stops: Step | None
    check: Callable[[T, C], str | None]
    remedy: str = ""
    fault: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Merging:
    """How the files of one format become one; ``merge`` is written over it.

    ``header`` gives what all files must agree on, as pairs of name and value (a file may have several values of one
    name, which then disagree), and raises InputError where the file does not contain it.  ``write`` makes the files
    from the rows that were taken, sorted by key; its other arguments are the first file's name, what all agreed on and
    for how many GPUs.

    ``slot`` is what rows compete for, ``several`` that the rows of one key stand beside each other (solvers of one
    record).  ``in_order``: where no time decides, the first file's row is taken.  ``note`` is a warning with every
    merge of this format, ``per_device`` that the library reads one file per device.
    """

    header: Callable[[str, bytes], Sequence[tuple[str, str]]]
    write: Callable[[Sequence[Row], str, Mapping[str, str], int], Sequence[Emission]]
    slot: Callable[[Row], str] = field(default=lambda row: row.key)
    several: bool = False
    in_order: bool = False
    note: str = ""
    per_device: bool = False


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """How tuned GEMMs of this format become another library's, and back; ``convert`` is written over it.

    ``word`` names the format as a destination.  ``takes`` is a solution as this library counts it (None: it has no such
    number), given the version of rocBLAS that the solution is of.  ``matched`` is which calls a row of it serves.
    ``read`` gives the records of a file that ``recognise`` accepts.
    """

    word: str
    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterable[Record]]
    takes: Callable[[Solution, str], Solution | None]
    matched: str


@dataclass(frozen=True, kw_only=True)
class OverrideFormat:
    """What is known of one override format: a member of ``OVERRIDE_FORMATS``.

    Judging (lint).  ``inspect`` judges a file's name and bytes for a target, ``recognise`` accepts its files.
    ``compared`` are the facts (or their common prefix) by which the library refuses a file of another build.

    Looking up (coverage, verify, diff).  ``kinds`` are the kinds of problems that it runs, ``key`` is the library's key
    of a call on a target (its writer's own), ``matches`` whether the row of one key serves a call of another
    (equality, where a format has no wildcards).  ``fastest``: of several rows of one key the library takes the fastest
    instead of the first.  ``instead`` are the keys that it tries, in order, where there is no row of a call's own.
    ``foreign`` is why a build with these facts makes no such key.  ``selects``: a row chooses a solution (a perf-db's
    only sets parameters).  ``signs`` are texts by which the library's log reports that it did not honour a file, and
    what each means.

    Writing.  ``writer`` makes the file; ``lines`` renders rows as lines of one, by which a merged file is written and a
    user's own rows are kept.  ``keep_refusal`` is why no row of one file can stand in another of this format (None:
    they can); without it own rows are not kept.  ``merging`` and ``conversion`` are for ``merge`` and ``convert``.
    """

    name: str
    kinds: frozenset[str]
    recognise: Callable[[Head], bool]
    inspect: Inspect
    key: Callable[[Problem, Facts], str | None]
    merging: Merging
    lines: Callable[[Sequence[Row]], list[str]] = field(default=lambda rows: [row.text for row in rows])
    compared: tuple[str, ...] = ()
    matches: Callable[[str, str], bool] = field(default=str.__eq__)
    fastest: bool = False
    foreign: Callable[[str, Facts], str | None] = field(default=lambda key, facts: None)
    instead: Callable[[str], Sequence[str]] = field(default=lambda key: ())
    selects: bool = True
    signs: tuple[tuple[str, str], ...] = ()
    writer: Writer | None = None
    keep_refusal: Callable[[OverrideFile, OverrideFile], str | None] | None = None
    conversion: Conversion | None = None

    @property
    def convolutions(self) -> bool:
        """Whether its rows are about convolutions, not GEMMs."""
        return "conv" in self.kinds


def judge(
    line: int, entry: T, context: C, rules: Sequence[Rule[T, C]], accepted: Verdict, refusal: str
) -> tuple[Verdicts, list[Note]]:
    """The verdicts and notes of one entry of a file that is ``accepted`` as a whole, or not for the reason given."""
    stopped: dict[Step, str] = {} if accepted is not False else {"read": refusal}
    notes = []
    fault = ""
    for rule in rules:
        message = rule.check(entry, context)
        if message is not None:
            notes.append(Note(line, rule.severity, rule.name, message, rule.remedy))
            if rule.stops is not None:
                stopped.setdefault(rule.stops, message)
            if rule.stops is not None if rule.fault is None else rule.fault:
                fault = fault or message
    read, matched, honoured = (False if step in stopped else accepted or None for step in STEPS)
    why = next((stopped[step] for step in STEPS if step in stopped), "")
    return Verdicts(read, matched, honoured, why, fault), notes


def text_of(data: bytes) -> tuple[str, bool]:
    """The file as text without a byte order mark, and whether it had one.  Bytes that are no UTF-8 are kept."""
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")


def bytes_of(lines: Iterable[str]) -> bytes:
    """Lines as a file, bytes that were no UTF-8 as they were."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def records_of(format: FileFormat) -> Callable[[Source], Iterator[Record]]:
    """The records of a file of this format."""
    return lambda file: (record for outcome in format.read(file) for record in outcome.records)


def in_order(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes by line, those about the whole file first."""
    return tuple(sorted(notes, key=lambda note: note.line or 0))
