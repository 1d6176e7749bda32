"""What a library takes from a file: the nouns of a reader.

A member's ``reader`` transcribes the library's own parser for a version and an arch.  It returns a ``Reading``: whether
the library takes the file at all, the rows that it keeps, under which key, with which types and solution, and for every
other row the reasons why it has no effect.  ``lint`` adds remarks to it, ``look_up`` asks it for the row of a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from logparse.groups import in_groups
from logparse.model import Problem, Solution
from logparse.target import Facts

Severity = Literal["error", "warning", "info"]
Stage = Literal["read", "matched", "honoured"]
STAGES: tuple[Stage, ...] = ("read", "matched", "honoured")
Verdict: TypeAlias = bool | None
T = TypeVar("T")
C = TypeVar("C")
S_co = TypeVar("S_co", covariant=True)

_LEADING_INT = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+)", re.ASCII)


def whole(text: str, bits: int = 64) -> int | None:
    """The number of a text of ASCII digits, with a sign or not, in a signed type of so many bits; else None.

    Python's ``int`` raises at some thousand digits, and takes the digits of all scripts.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    significant = digits.lstrip("0") or "0"
    if not (digits.isascii() and digits.isdigit()) or len(significant) > 20:
        return None
    value = -int(significant) if text[0] == "-" else int(significant)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def leading(text: str, bits: int = 64) -> int | None:
    """C++'s ``std::stol`` (or ``stoi``): the number at the start of a text, None where it would throw."""
    match = _LEADING_INT.match(text)
    return whole(match[1], bits) if match else None


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a file (``line`` None) or about one of its lines (counted from 1), and what to do.

    ``others`` are later lines of which the same is to be noted, in order.
    """

    line: int | None
    severity: Severity
    rule: str
    message: str
    remedy: str = ""
    others: Sequence[int] = ()

    @property
    def each(self) -> Iterator[Note]:
        """A note per line."""
        yield Note(self.line, self.severity, self.rule, self.message, self.remedy)
        yield from (Note(line, self.severity, self.rule, self.message, self.remedy) for line in self.others)


@dataclass(frozen=True)
class Breach:
    """A rule that a row breaks: the step that fails by it (None: the library uses the row all the same), and its note.

    ``fault``: it lies with the row itself, so a merged file leaves the row out.  It does not where only the row's place
    in the file keeps the library from using it.
    """

    step: Stage | None
    note: Note
    fault: bool


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

    ``key`` is the library's own key as it reads it from the file, ``problem`` what calls it is for, with the types as
    the library reads them, ``text`` the row as a file holds it, without its line end (of an item: without its key).
    ``time_us`` and ``workspace_bytes`` are what the row states of its solution.
    """

    line: int
    key: str
    problem: Problem | None
    solution: Solution | None
    verdicts: Verdicts
    text: str
    time_us: float | None = None
    workspace_bytes: int | None = None
    breaches: tuple[Breach, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether the library holds it in memory once the file is read, as far as is known."""
        return self.verdicts.read is not False

    @property
    def dead(self) -> bool:
        """Whether no call whatever can be served by this row."""
        return self.verdicts.read is False or self.verdicts.matched is False

    @property
    def live(self) -> bool:
        """Whether nothing is known that keeps the library from using it."""
        return not self.dead and self.verdicts.honoured is not False


class Offer(NamedTuple):
    """What a row offers to calls of its key: ``solution`` is as the file spells it, ``id`` the library's.

    ``work`` is what its time is of, where the key leaves that open (``Merging.work``).
    """

    line: int
    key: str
    id: str
    solution: str
    time_us: float | None
    text: str
    work: str = ""


def offers(rows: Iterable[Row], work: Callable[[Row], str] = lambda row: "") -> Iterator[Offer]:
    """Those of the rows that a merged file can hold."""
    for row in rows:
        named = row.solution
        if named is not None and not row.verdicts.fault:
            yield Offer(row.line, row.key, named.id, named.raw or named.text, row.time_us, row.text, work(row))


@dataclass(frozen=True, kw_only=True)
class Reading(Generic[S_co]):
    """A file as the library with the facts ``target`` reads it.

    ``refusals`` are why the library takes nothing of the file (none: it takes it, or that is unknown).  ``certain`` is
    whether the target's facts suffice to know that it is taken.  ``facts`` are those that the file states about the
    machine that wrote it.  ``parsed`` is the file in the reader's own terms, for the remarks of ``lint``.
    """

    rows: Collection[Row]
    refusals: tuple[Note, ...]
    certain: bool
    facts: Facts
    target: Facts
    parsed: S_co

    @property
    def accepted(self) -> Verdict:
        """Whether the library takes the file as a whole."""
        return accepted(self.refusals, self.certain)

    @property
    def key_facts(self) -> Facts:
        """The facts that decide how the library spells keys: the target's, else the file's own."""
        return {**self.facts, **self.target}

    @property
    def alike(self) -> Iterable[tuple[Row, Sequence[int]]]:
        """Rows with the lines of all that have the same solution and verdicts as they, and nothing of note.

        Every row is counted in one line; a row that breaks a rule stands alone.
        """
        return ((row, (row.line,)) for row in self.rows)

    def offers(self, work: Callable[[Row], str]) -> Iterator[Offer]:
        """``offers`` of its rows."""
        return offers(self.rows, work)

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        """The kept rows of each key, in file order."""
        return in_groups((row for row in self.rows if not row.dead), lambda row: row.key)

    @cached_property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        """The live rows, by the shape of their problems."""
        return in_groups((x for x in self.rows if x.live), lambda x: x.problem.shape if x.problem else None)


def accepted(refusals: Sequence[Note], certain: bool) -> Verdict:
    """Whether a library takes a file, given why it would not and whether the target is known well enough."""
    return False if refusals else True if certain else None


@dataclass(frozen=True)
class Rule(Generic[T, C]):
    """One rule about a row: ``check`` returns the message where it is broken, None else; ``stops`` is the verdict that
    is False then (None: the row works all the same).

    ``fault``: the rule is about the row itself, so a merged file leaves such a row out.  By default every rule that
    stops a row is; one about its place in the file is not.  A rule that does neither is a remark of ``lint``; the
    others are part of a reader.
    """

    name: str
    severity: Severity
    stops: Stage | None
    check: Callable[[T, C], str | None]
    remedy: str = ""
    fault: bool | None = None

    @property
    def remark(self) -> bool:
        """Whether the rule only adds a note."""
        return self.stops is None and not self.fault


def judge(
    line: int, entry: T, context: C, rules: Sequence[Rule[T, C]], accepted: Verdict, refusal: str
) -> tuple[Verdicts, tuple[Breach, ...]]:
    """What becomes of one entry of a file that is ``accepted`` as a whole, or not for the reason given."""
    breaches = []
    for rule in rules:
        message = None if rule.remark else rule.check(entry, context)
        if message is not None:
            own = rule.stops is not None if rule.fault is None else rule.fault
            breaches.append(Breach(rule.stops, Note(line, rule.severity, rule.name, message, rule.remedy), own))
    stopped: dict[Stage, str] = {} if accepted is not False else {"read": refusal}
    for breach in breaches:
        if breach.step is not None:
            stopped.setdefault(breach.step, breach.note.message)
    read, matched, honoured = (False if step in stopped else accepted or None for step in STAGES)
    why = next((stopped[step] for step in STAGES if step in stopped), "")
    fault = next((breach.note.message for breach in breaches if breach.fault), "")
    return Verdicts(read, matched, honoured, why, fault), tuple(breaches)


def why_unused(entry: T, context: C, rules: Sequence[Rule[T, C]]) -> str:
    """The reason why an entry of an accepted file is not used, as ``judge`` states it; empty where it is used."""
    for stage in STAGES:
        for rule in rules:
            if rule.stops == stage and (message := rule.check(entry, context)) is not None:
                return message
    return ""


def remarks(line: int, entry: T, context: C, rules: Sequence[Rule[T, C]]) -> Iterator[Note]:
    """The notes of the rules that only add one."""
    for rule in rules:
        message = rule.check(entry, context) if rule.remark else None
        if message is not None:
            yield Note(line, rule.severity, rule.name, message, rule.remedy)


class Entry(Protocol):
    """One row of a table as a reader parsed it, before it is judged; the attributes are those of ``Row``."""

    @property
    def line(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def problem(self) -> Problem | None: ...
    @property
    def solution(self) -> Solution | None: ...
    @property
    def time_us(self) -> float | None: ...
    @property
    def text(self) -> str: ...


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Table(Generic[E, C]):
    """A table as its reader parsed it: ``rules`` judge its rows, given what they need of the whole file, the
    ``context``.  ``notes`` are remarks on the file itself.
    """

    entries: Sequence[E]
    context: C
    rules: Sequence[Rule[E, C]]
    notes: Sequence[Note] = ()

    def reading(
        self, refusal: str, *, refusals: Iterable[Note] = (), certain: bool, facts: Facts, target: Facts
    ) -> Reading[Table[E, C]]:
        """What the library with the facts ``target`` takes; ``refusal``: why it reads no row of a refused file."""
        why_not = tuple(refusals)
        taken, rows = accepted(why_not, certain), []
        for x in self.entries:
            verdicts, breaches = judge(x.line, x, self.context, self.rules, taken, refusal)
            row = Row(
                line=x.line,
                key=x.key,
                problem=x.problem,
                solution=x.solution,
                verdicts=verdicts,
                text=x.text,
                time_us=x.time_us,
                breaches=breaches,
            )
            rows.append(row)
        return Reading(rows=rows, refusals=why_not, certain=certain, facts=facts, target=target, parsed=self)


def with_key(entries: Iterable[E]) -> dict[str, list[E]]:
    """The entries by key, but those without one."""
    return in_groups((entry for entry in entries if entry.key), lambda entry: entry.key)


def remarks_on(name: str, data: bytes, reading: Reading[Table[Any, Any]]) -> Iterator[Note]:
    """What else to know of a table and its rows."""
    table = reading.parsed
    yield from table.notes
    for entry in table.entries:
        yield from remarks(entry.line, entry, table.context, table.rules)


def text_of(data: bytes) -> tuple[str, bool]:
    """The file as text without a byte order mark, and whether it had one.  Bytes that are no UTF-8 are kept."""
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")
