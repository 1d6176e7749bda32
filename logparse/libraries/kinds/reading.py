"""Types that describe what effect an override file has on its library.  Readers of override files return them.

The ``reader`` of an override format transcribes the library's own parser for a version and an arch.  It returns a
``Reading``, which states:

* whether the library accepts the file at all;
* each row that the library keeps, with its key, types and solution;
* for every other row the reasons why it has no effect.

``lint`` adds remarks to a reading.  ``look_up`` searches it for the row of a call.
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
    """Return the number that a text of ASCII digits, with or without a sign, states.  Return None for any other text.

    The number must fit a signed type of ``bits`` bits.  Python's ``int`` is not used alone, because it raises an error
    for texts of some thousand digits, and accepts the digits of all scripts.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    significant = digits.lstrip("0") or "0"
    if not (digits.isascii() and digits.isdigit()) or len(significant) > 20:
        return None
    value = -int(significant) if text[0] == "-" else int(significant)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def leading(text: str, bits: int = 64) -> int | None:
    """Return the number at the start of a text, as C++'s ``std::stol`` (or ``stoi``) reads it.

    Return None if the C++ function would throw an exception.
    """
    match = _LEADING_INT.match(text)
    return whole(match[1], bits) if match else None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a file (without ``line``) or about a line (counted from 1), and what to do about it.

    ``others`` are the later lines with the same remark, in order.
    """

    line: int | None
    severity: Severity
    rule: str
    message: str
    remedy: str = ""
    others: Sequence[int] = ()

    @property
    def each(self) -> Iterator[Note]:
        """One note per line."""
        yield Note(self.line, self.severity, self.rule, self.message, self.remedy)
        yield from (Note(line, self.severity, self.rule, self.message, self.remedy) for line in self.others)


@dataclass(frozen=True)
class Breach:
    """A rule that a row breaks.

    * ``step``: the verdict that becomes False because of the rule.  None means that the library uses the row all the
      same.
    * ``note``: the rule's note.
    * ``fault``: True if the fault lies in the row itself, so that a merged file leaves the row out.  It is False if
      only the row's place in the file keeps the library from using it.
    """

    step: Stage | None
    note: Note
    fault: bool


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on a row: what the library does with it.  ``why`` is the reason of the first verdict that is False.

    ``fault`` is the fault of the row itself.  It is empty if only the row's place (an earlier row of its key wins) or
    the file as a whole keeps the library from using it.  In these two cases a merged file can hold the row.
    """

    read: Verdict = None
    matched: Verdict = None
    honoured: Verdict = None
    why: str = ""
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the file, or one item of a row that lists several solutions.

    * ``key``: the library's own key, as the library reads it from the file.
    * ``problem``: the call that the row is for, with the types as the library reads them.
    * ``text``: the row as a file holds it, without its line end.  The text of an item has no key.
    * ``time_us``, ``workspace_bytes``: time and workspace that the row states for its solution.
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
        """True if the library keeps the row in memory after it read the file.

        If this is unknown, the result is True.
        """
        return self.verdicts.read is not False

    @property
    def dead(self) -> bool:
        """True if no call at all can be served by this row.  If this is unknown, the result is False."""
        return self.verdicts.read is False or self.verdicts.matched is False

    @property
    def live(self) -> bool:
        """True if no known reason keeps the library from using the row."""
        return not self.dead and self.verdicts.honoured is not False


class Offer(NamedTuple):
    """Solution of a row for the calls of the row's key.  ``solution`` is spelled as in the file, ``id`` is the
    library's id.

    ``work`` tells which work the time covers, if the key does not state this (``Merging.work``).
    """

    line: int
    key: str
    id: str
    solution: str
    time_us: float | None
    text: str
    work: str = ""


def offers(rows: Iterable[Row], work: Callable[[Row], str] = lambda row: "") -> Iterator[Offer]:
    """Yield an offer for each row that a merged file can hold."""
    for row in rows:
        named = row.solution
        if named is not None and not row.verdicts.fault:
            yield Offer(row.line, row.key, named.id, named.raw or named.text, row.time_us, row.text, work(row))


@dataclass(frozen=True, kw_only=True)
class Reading(Generic[S_co]):
    """Override file, as a library with the facts ``target`` reads it.

    * ``refusals``: reasons why the library accepts nothing of the file.  If there are no reasons, the library accepts
      the file, or it is unknown whether it does.
    * ``certain``: True if the target's facts suffice to know that the file is accepted.
    * ``facts``: facts that the file states about the machine that wrote it.
    * ``parsed``: the file in the reader's own terms, for the remarks of ``lint``.
    """

    rows: Collection[Row]
    refusals: tuple[Note, ...]
    certain: bool
    facts: Facts
    target: Facts
    parsed: S_co

    @property
    def accepted(self) -> Verdict:
        """True if the library accepts the file as a whole, None if this is unknown."""
        return accepted(self.refusals, self.certain)

    @property
    def key_facts(self) -> Facts:
        """The facts that decide how the library spells keys.  The target's facts win over the file's own."""
        return {**self.facts, **self.target}

    @property
    def alike(self) -> Iterable[tuple[Row, Sequence[int]]]:
        """Rows of the file, each with the lines of all rows for which it stands.

        A row may stand for rows that have the same solution and verdicts and break no rule.  A row that breaks a rule
        stands only for itself.  Each line is in exactly one item.
        """
        return ((row, (row.line,)) for row in self.rows)

    def offers(self, work: Callable[[Row], str]) -> Iterator[Offer]:
        """Yield the offers of the file's rows."""
        return offers(self.rows, work)

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        """The rows that a call may match, by key and in file order.  Rows that are known to be dead are left out."""
        return in_groups((row for row in self.rows if not row.dead), lambda row: row.key)

    @cached_property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        """The rows that can be used, by the shape of their problems."""
        return in_groups((x for x in self.rows if x.live), lambda x: x.problem.shape if x.problem else None)


def accepted(refusals: Sequence[Note], certain: bool) -> Verdict:
    """Tell whether a library accepts a file.

    | result | condition |
    |---|---|
    | False | there are refusals |
    | True | there are no refusals, and the target is known well enough |
    | None | the target is not known well enough |
    """
    return False if refusals else True if certain else None


@dataclass(frozen=True)
class Rule(Generic[T, C]):
    """A rule about a row.  ``check`` returns the message if the row breaks it, otherwise None.

    * ``stops``: the verdict that becomes False if a row breaks the rule.  None means that the row works all the same.
    * ``fault``: True if the rule is about the row itself, so a merged file leaves out a row that breaks it.  By default
      it is True for every rule with ``stops``.  A rule about the row's place in the file sets it to False.

    A rule without ``stops`` and ``fault`` is a remark of ``lint``.  All other rules are part of a reader.
    """

    name: str
    severity: Severity
    stops: Stage | None
    check: Callable[[T, C], str | None]
    remedy: str = ""
    fault: bool | None = None

    @property
    def remark(self) -> bool:
        """True if the rule only adds a note, so that the library still uses the row."""
        return self.stops is None and not self.fault


def judge(
    line: int, entry: T, context: C, rules: Sequence[Rule[T, C]], accepted: Verdict, refusal: str
) -> tuple[Verdicts, tuple[Breach, ...]]:
    """Return the verdicts on one entry and the rules that it breaks.

    ``accepted`` tells whether the library accepts the file as a whole.  If it does not, ``refusal`` is the reason.
    """
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
    """Return the reason why the library does not use an entry of an accepted file, as ``judge`` states it.

    Return an empty text if the library uses the entry.
    """
    for stage in STAGES:
        for rule in rules:
            if rule.stops == stage and (message := rule.check(entry, context)) is not None:
                return message
    return ""


def remarks(line: int, entry: T, context: C, rules: Sequence[Rule[T, C]]) -> Iterator[Note]:
    """Yield the notes of the rules that only add a note."""
    for rule in rules:
        message = rule.check(entry, context) if rule.remark else None
        if message is not None:
            yield Note(line, rule.severity, rule.name, message, rule.remedy)


class Entry(Protocol):
    """One row of a table as a reader parsed it, before it is judged.  Its attributes have the meaning of ``Row``'s."""

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
    """A table as its reader parsed it.

    * ``context``: the facts about the whole file that the rules need.
    * ``rules``: rules that judge the table's rows.
    * ``notes``: remarks on the file itself.
    """

    entries: Sequence[E]
    context: C
    rules: Sequence[Rule[E, C]]
    notes: Sequence[Note] = ()

    def reading(
        self, refusal: str, *, refusals: Iterable[Note] = (), certain: bool, facts: Facts, target: Facts
    ) -> Reading[Table[E, C]]:
        """Return the reading of the table for a library with the facts ``target``.

        ``refusal`` is the reason why the library reads no row of a refused file.
        """
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
    """Return the entries by key, without entries that have no key."""
    return in_groups((entry for entry in entries if entry.key), lambda entry: entry.key)


def remarks_on(name: str, data: bytes, reading: Reading[Table[Any, Any]]) -> Iterator[Note]:
    """Yield the remarks on a table and on its rows."""
    table = reading.parsed
    yield from table.notes
    for entry in table.entries:
        yield from remarks(entry.line, entry, table.context, table.rules)


def text_of(data: bytes) -> tuple[str, bool]:
    """Return the file as text without a byte order mark, and True if there was such a mark.

    Bytes that are not UTF-8 are kept.
    """
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")
