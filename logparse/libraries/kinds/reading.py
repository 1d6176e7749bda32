"""The effect of each row of an override file (a user's list of kernels to use) on the library that reads it.

The ``reader`` of an override format repeats the library's own parser for a version and a GPU architecture.  It returns
a ``Reading``, which states:

* whether the library accepts the file at all;
* each row that the library keeps, with its key, types and kernel;
* for every other row the reasons why it has no effect.

``lint`` adds remarks to a reading.  ``look_up`` searches it for the row of a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from logparse.devices import too_fast
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


def parse_whole_number(text: str, bits: int = 64) -> int | None:
    """Return the whole number that a text of ASCII digits states, with or without a sign.  None for any other text.

    The number must fit a signed type of ``bits`` bits.
    """
    # Python's ``int`` alone would raise an error for texts of some thousand digits, and accept the digits of all
    # scripts.
    digits = text[1:] if text[:1] in ("+", "-") else text
    significant = digits.lstrip("0") or "0"
    if not (digits.isascii() and digits.isdigit()) or len(significant) > 20:
        return None
    value = -int(significant) if text[0] == "-" else int(significant)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def parse_leading_number(text: str, bits: int = 64) -> int | None:
    """Return the whole number at the start of a text, as C++'s ``std::stol`` (or ``stoi``) reads it.

    Returns None if the C++ function would throw an exception.
    """
    match = _LEADING_INT.match(text)
    return parse_whole_number(match[1], bits) if match else None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about an override file or one of its lines (counted from 1), and what to do about it.

    Without ``line`` it is about the whole file.  ``others`` are the later lines with the same remark, in order.
    """

    line: int | None
    severity: Severity
    rule: str
    message: str
    remedy: str = ""
    others: Sequence[int] = ()

    @property
    def each(self) -> Iterator[Note]:
        """Copies of this remark, one for each line that it is about."""
        yield Note(self.line, self.severity, self.rule, self.message, self.remedy)
        yield from (Note(line, self.severity, self.rule, self.message, self.remedy) for line in self.others)


@dataclass(frozen=True)
class Breach:
    """A fault in an override file (a user's list of kernels to use): a row that breaks a rule, with the effect.

    * ``step``: the step in which the library drops the row because of the rule: when it reads the file, when it matches
      a call, or when it would obey the row.  None means that the library uses the row all the same.
    * ``note``: the note for the user.
    * ``fault``: True if the row itself is wrong, so that a merged file leaves the row out.  It is False if only the
      row's place in the file keeps the library from using it.
    """

    step: Stage | None
    note: Note
    fault: bool


@dataclass(frozen=True)
class Verdicts:
    """The answers to three questions about a row of an override file: does the library read, find and obey it?

    * Each answer is True, False or None (unknown).
    * ``why``: the reason of the first answer that is False.
    * ``fault``: the fault of the row itself. It is empty if the row is unused only because an earlier row of its key
      wins, or because of the file as a whole. In these two cases the row may be copied into a merged file.
    """

    read: Verdict = None
    matched: Verdict = None
    honoured: Verdict = None
    why: str = ""
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of an override file (a user's list of kernels to use).

    If a row lists several kernels, there is one such object for each kernel.

    * ``key``: the library's own key, as the library reads it from the file.
    * ``problem``: the matrix product or convolution that the row is for, with the types as the library reads them.
    * ``text``: the row as it is in the file, without its line end.  If the row lists several kernels, it is the text of
      this kernel without the key.
    * ``time_us``, ``workspace_bytes``: the time and the workspace that the row states for its kernel.
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
        """False if it is known that the library drops this row when it reads the override file."""
        return self.verdicts.read is not False

    @property
    def dead(self) -> bool:
        """True if it is known that the row can have no effect on any call."""
        return self.verdicts.read is False or self.verdicts.matched is False

    @property
    def live(self) -> bool:
        """False if it is known that the library does not use the kernel of this row of an override file."""
        return not self.dead and self.verdicts.honoured is not False


class Offer(NamedTuple):
    """A kernel that one row of an override file proposes for some calls of a library.

    An override file is a user's list of kernels to use instead of the library's choice.

    * ``key`` describes the calls for which the row is.
    * ``solution`` is the kernel, spelled as in the file, and ``id`` is the library's own name or number of it.
    * ``work`` describes what else the call computes, if the key does not state it.  Times of different work are not
      compared.
    """

    line: int
    key: str
    id: str
    solution: str
    time_us: float | None
    text: str
    work: str = ""


def offers(rows: Iterable[Row], work: Callable[[Row], str] = lambda row: "") -> Iterator[Offer]:
    """Yield the kernels of one override file (a list of kernels to use) that may be copied when files are merged.

    Rows that name no kernel, or that contain an error, are left out.
    """
    for row in rows:
        named = row.solution
        if named is not None and not row.verdicts.fault:
            yield Offer(row.line, row.key, named.id, named.raw or named.text, row.time_us, row.text, work(row))


@dataclass(frozen=True, kw_only=True)
class Reading(Generic[S_co]):
    """How a library on the target machine understands an override file (a list of kernels to use).

    The target machine is the machine on which the file will be used.

    * ``refusals``: the reasons why the library refuses the whole file.  Without a reason, the library accepts the file,
      or it is unknown whether it does.
    * ``certain``: True if enough is known about the target machine to be sure that the file is accepted.
    * ``target``: the facts of the target machine.
    * ``facts``: the facts that the file states about the machine that wrote it.
    * ``parsed``: the file as its reader parsed it, for the remarks of ``lint``.
    """

    rows: Collection[Row]
    refusals: tuple[Note, ...]
    certain: bool
    facts: Facts
    target: Facts
    parsed: S_co

    @property
    def accepted(self) -> Verdict:
        """True if the library accepts the override file, False if it refuses the file, None if this is unknown."""
        return accepted(self.refusals, self.certain)

    @property
    def key_facts(self) -> Facts:
        """Properties of the machine that change how a library searches its file of chosen kernels.

        An example is the library's version.
        """
        # The values of the file's machine come first, so a known value of the target machine replaces them.
        return {**self.facts, **self.target}

    @property
    def alike(self) -> Iterable[tuple[Row, Sequence[int]]]:
        """The rows of the override file in groups that can be reported together.

        An override file is a user's list of kernels to use. Each result is one row and the line numbers of all rows in
        its group.  Rows may be grouped if they have the same kernel and the same effect and break no rule.  A row that
        breaks a rule is alone in its group.  Each line is in exactly one group.
        """
        return ((row, (row.line,)) for row in self.rows)

    def offers(self, work: Callable[[Row], str]) -> Iterator[Offer]:
        """Yield those kernels of this override file that a merged override file may contain.

        An override file is a user's list of kernels to use.
        """
        return offers(self.rows, work)

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        """The rows of an override file (a list of kernels to use) in groups: rows in one group apply to the same calls.

        The dictionary's key is the text that the library compares with a call.  Rows without effect are left out.
        """
        # A group has the order of the file.
        return in_groups((row for row in self.rows if not row.dead), lambda row: row.key)

    @cached_property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        """The usable rows of an override file, grouped by the shape of the matrix product or convolution.

        An override file tells a library which kernels to use.
        """
        return in_groups((x for x in self.rows if x.live), lambda x: x.problem.shape if x.problem else None)


def accepted(refusals: Sequence[Note], certain: bool) -> Verdict:
    """Tell whether a library accepts an override file (a user's list of kernels to use).

    | result | condition |
    |---|---|
    | False | ``refusals`` has reasons why the library refuses the file |
    | True | ``refusals`` is empty, and enough is known about the target machine (``certain``) |
    | None | ``refusals`` is empty, but too little is known about the target machine |
    """
    return False if refusals else True if certain else None


@dataclass(frozen=True)
class Rule(Generic[T, C]):
    """A rule about a row of an override file (list of kernels to use), with the effect if a row breaks it.

    ``check`` returns a message if the row breaks the rule, otherwise None.

    * ``stops``: the step in which the library drops a row that breaks the rule: when it reads the file, when it matches
      a call, or when it would obey the row.  None means that the row works all the same.
    * ``fault``: True if the rule is about the row itself.  Then a merged file leaves out a row that breaks it.  By
      default it is True for every rule with ``stops``.  A rule about the row's place in the file sets it to False.

    A rule without ``stops`` and ``fault`` only makes ``lint`` add a note.  All other rules repeat the library's own
    behaviour.
    """

    name: str
    severity: Severity
    stops: Stage | None
    check: Callable[[T, C], str | None]
    remedy: str = ""
    fault: bool | None = None

    @property
    def remark(self) -> bool:
        """True if breaking this rule does no harm: the library still uses the row, and the user only gets a remark.

        The rule is a check for rows of a file that tells a library which kernels to use.
        """
        return self.stops is None and not self.fault


def judge(
    line: int, entry: T, context: C, rules: Sequence[Rule[T, C]], accepted: Verdict, refusal: str
) -> tuple[Verdicts, tuple[Breach, ...]]:
    """Decide if a library will use a row of an override file (a list of kernels to use), and find the broken rules.

    ``accepted`` tells whether the library accepts the whole file.  If not, ``refusal`` is the reason.
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
    """Return the reason why a library ignores one row of an override file, although it accepts the file.

    An override file is a user's list of kernels to use. Returns an empty text if the library uses the row.
    """
    for stage in STAGES:
        for rule in rules:
            if rule.stops == stage and (message := rule.check(entry, context)) is not None:
                return message
    return ""


def remarks(line: int, entry: T, context: C, rules: Sequence[Rule[T, C]]) -> Iterator[Note]:
    """Yield remarks about a row of an override file that do not change what the library does with the row.

    An override file is a user's list of kernels to use.  ``logparse lint`` shows the remarks.
    """
    for rule in rules:
        message = rule.check(entry, context) if rule.remark else None
        if message is not None:
            yield Note(line, rule.severity, rule.name, message, rule.remedy)


class Entry(Protocol):
    """One row of an override file (a user's list of kernels to use), before the rules are applied to it.

    Its attributes mean the same as in ``Row``.
    """

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
    """The content of an override file (a list of kernels to use) before it is checked, with the rules for the check.

    * ``context``: facts about the whole file that the rules need.
    * ``notes``: remarks about the file itself.
    """

    entries: Sequence[E]
    context: C
    rules: Sequence[Rule[E, C]]
    notes: Sequence[Note] = ()

    def reading(
        self, refusal: str, *, refusals: Iterable[Note] = (), certain: bool, facts: Facts, target: Facts
    ) -> Reading[Table[E, C]]:
        """Check every row of an override file, and return how a library would treat this list of kernels to use.

        * ``refusals``: the reasons why the library ignores the whole file, if there are some.
        * ``refusal``: the short text that each row gets in this case.
        * ``certain``: True if it is certain that the library accepts a file without ``refusals``.
        * ``facts``: what the file states about the machine that wrote it.
        * ``target``: what is known about the machine that will use the file.

        A time that the GPU of ``facts`` cannot reach is left out.
        """
        why_not = tuple(refusals)
        taken, rows = accepted(why_not, certain), []
        for x in self.entries:
            verdicts, breaches = judge(x.line, x, self.context, self.rules, taken, refusal)
            wrong = too_fast(x.problem.least_flops, x.time_us, facts) if x.problem else ""
            note = Note(x.line, "warning", "time", f"the time counts as unknown: {wrong}", "Time the row again.")
            row = Row(
                line=x.line,
                key=x.key,
                problem=x.problem,
                solution=x.solution,
                verdicts=verdicts,
                text=x.text,
                time_us=None if wrong else x.time_us,
                breaches=(*breaches, Breach(None, note, fault=False)) if wrong else breaches,
            )
            rows.append(row)
        return Reading(rows=rows, refusals=why_not, certain=certain, facts=facts, target=target, parsed=self)


def with_key(entries: Iterable[E]) -> dict[str, list[E]]:
    """Group the rows of an override file by their key, which is the text that the library looks for.

    Rows without a key are left out.
    """
    return in_groups((entry for entry in entries if entry.key), lambda entry: entry.key)


def remarks_on(name: str, data: bytes, reading: Reading[Table[Any, Any]]) -> Iterator[Note]:
    """Yield remarks about an override file and its rows that do not change what the library does with them.

    An override file is a user's list of kernels to use.
    """
    table = reading.parsed
    yield from table.notes
    for entry in table.entries:
        yield from remarks(entry.line, entry, table.context, table.rules)


def text_of(data: bytes) -> tuple[str, bool]:
    """Decode a file as text, and tell whether it began with a byte order mark, which is removed.

    Bytes that are not UTF-8 are kept in a form that can be turned back into the original bytes.
    """
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")
