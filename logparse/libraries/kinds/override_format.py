"""What an override format is: a file by which a library takes a solution from outside, and all that is known of it.

A member has the library's own ``reader``: which rows it keeps, which a call can match, which it honours, for a target.
The three verdicts of a row are True, False or None (unknown without the target).  A row that is not read, or that no
call can match, is *dead*: whatever the workload, it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any, TypeAlias

from logparse.libraries.kinds.format import Emission, FileFormat, Head, Source, Writer
from logparse.libraries.kinds.reading import Note, Offer, Reading, Row, Verdict, remarks_on
from logparse.model import Problem, Record, Solution
from logparse.target import Facts


@dataclass(frozen=True, kw_only=True)
class OverrideFile:
    """A file judged for a target: what its library's reader makes of it, and notes.

    ``noted`` are its notes, in no order and some of them for many lines.  ``shown`` is its name in reports, where the
    file's name alone would be that of another file too.
    """

    format: str
    name: str
    reading: Reading[Any]
    noted: tuple[Note, ...]
    shown: str = ""

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """A note per line, by line, those about the whole file first."""
        return tuple(sorted((one for note in self.noted for one in note.each), key=lambda note: note.line or 0))

    @property
    def accepted(self) -> Verdict:
        return self.reading.accepted

    @property
    def facts(self) -> Facts:
        return self.reading.facts

    @property
    def target(self) -> Facts:
        return self.reading.target

    @property
    def rows(self) -> Collection[Row]:
        return self.reading.rows

    @property
    def title(self) -> str:
        return self.shown or self.name

    @property
    def ok(self) -> bool:
        """Whether there is no note of severity ``error``."""
        return not any(note.severity == "error" for note in self.noted)


@dataclass(frozen=True)
class Report:
    """What a library's log states of a call that it looked up: the key, whether it found a row (None: the log does not
    state it), and the names of the kernels that it took, as a row's text has them (none: the log or the file does not
    name them).  ``why`` is the reason for another key than the problem's.
    """

    key: str
    found: bool | None
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Merging:
    """How the files of one format become one; ``merge`` is written over it.

    ``header`` gives what all files must agree on, as pairs of name and value (a file may have several values of one
    name, which then disagree), and raises InputError where the file does not contain it.  ``write`` makes the files
    from what was taken, sorted by key; its other arguments are the first file's name, what all agreed on and for how
    many GPUs.

    ``slot`` is what rows compete for, ``several`` that the rows of one key stand beside each other (solvers of one
    record).  ``work`` is what a row's time is of, as far as the library's key does not state it: times of different
    work are not compared.  ``in_order``: where no time decides, the first file's row is taken.  ``note`` is a warning
    with every merge of this format, ``per_device`` that the library reads one file per device.
    """

    header: Callable[[str, bytes], Sequence[tuple[str, str]]]
    write: Callable[[Iterable[Offer], str, Mapping[str, str], int], Sequence[Emission]]
    slot: Callable[[Offer], str] = field(default=lambda row: row.key)
    work: Callable[[Row], str] = field(default=lambda row: "")
    several: bool = False
    in_order: bool = False
    note: str = ""
    per_device: bool = False


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """How tuned GEMMs of this format become another library's, and back; ``convert`` is written over it.

    ``word`` names the format as a destination.  ``takes`` is a solution as this library counts it (None: it has no such
    number), given the version of rocBLAS that the solution is of.  ``matched`` is which calls a row of it serves.
    ``read`` gives the records of a file that ``recognise`` accepts, each with the line (from 1) that it ends in.
    """

    word: str
    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterable[tuple[int, Record]]]
    takes: Callable[[Solution, str], Solution | None]
    matched: str


Keep: TypeAlias = Callable[[int, bytes], bool]
"""Whether a row stays in a file, given its line and its text."""


def cut_lines(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
    """A table with some of its rows: each is its line, with a header line of its own two; all others stay."""
    last = {row.line - row.text.count("\n"): row.line for row in rows}
    out, lines = list[bytes](), enumerate(data.split(b"\n"), start=1)
    for number, line in lines:
        whole = [line, *(next(lines)[1] for _ in range(number, last.get(number, number)))]
        if number not in last or keep(last[number], whole[-1].strip()):
            out += whole
    return b"\n".join(out)


@dataclass(frozen=True, kw_only=True)
class OverrideFormat:
    """What is known of one override format: a member of ``OVERRIDE_FORMATS``.

    Reading (lint, and all below).  ``recognise`` accepts its files.  ``reader`` is what the library takes from a file's
    name and bytes; ``remarks`` are what else a person should know of a file that was read so.  ``compared`` are the
    facts (or their common prefix) by which the library refuses a file of another build.  ``order`` is what the order of
    rows of one key means; that of rows of different keys means nothing in any format.

    Looking up (coverage, verify, diff).  ``kinds`` are the kinds of problems that it runs, ``key`` is the library's key
    of a call on a target (its writer's own): a row of that key serves it.  ``probe_order`` puts the rows of one key in
    the order in which the library tries them (as they stand in the file, if it is not given).  ``fallback_keys`` are
    the keys that it tries, in order, where there is no row of a call's own.  ``reported`` is what the messages of a log
    (function and text) state of look-ups in this file, by problem; of a format without ``kinds`` these are all of its
    calls.  ``kernels`` is the kind of kernels that a call needs besides its key, where a solution's are of one kind
    (empty: the plain one; None: the problem does not state it).  ``other_product`` is why the solution of a row, by the
    row's problem, cannot run a call of its key (empty: nothing that both state speaks against it).
    ``not_in_this_build`` is why a build with these facts makes no such key.  ``selects``: a row chooses a solution (a
    perf-db's only sets parameters).  ``signs`` are texts by which the library's log reports that it did not honour a
    file, and what each means.

    ``family`` names, by a file's name, what the library reads as one table.  ``graph_unsafe`` are libraries of rows
    that allocate at a first call, so that it fails within the capture of a graph.

    Writing.  ``writer`` makes the file; ``lines`` renders rows as lines of one, by which a merged file is written and a
    user's own rows are kept.  ``cut`` is the file with those of its rows that are to be kept, each asked for in the
    file's order, and every other byte as it was.  ``keep_refusal`` is why no row of one file can stand in another of
    this format (None: they can); without it own rows are not kept.  ``merging`` and ``conversion`` are for ``merge``
    and ``convert``.
    """

    name: str
    kinds: frozenset[str]
    recognise: Callable[[Head], bool]
    reader: Callable[[str, bytes, Facts], Reading[Any]]
    key: Callable[[Problem, Facts], str | None]
    merging: Merging
    order: str
    remarks: Callable[[str, bytes, Reading[Any]], Iterable[Note]] = remarks_on
    lines: Callable[[Sequence[Row]], list[str]] = field(default=lambda rows: [row.text for row in rows])
    cut: Callable[[bytes, Iterable[Row], Keep], bytes] = cut_lines
    compared: tuple[str, ...] = ()
    probe_order: Callable[[Sequence[Row], Facts], Sequence[Row]] = field(default=lambda rows, facts: rows)
    not_in_this_build: Callable[[str, Facts], str | None] = field(default=lambda key, facts: None)
    fallback_keys: Callable[[str], Sequence[str]] = field(default=lambda key: ())
    reported: Callable[[str, Reading[Any], Iterable[tuple[str, str]]], Mapping[str, Report]] = field(
        default=lambda name, reading, messages: {}
    )
    kernels: Callable[[Problem], str | None] | None = None
    other_product: Callable[[Problem | None, Problem], str] = field(default=lambda row, call: "")
    selects: bool = True
    signs: tuple[tuple[str, str], ...] = ()
    family: Callable[[str], str | None] = field(default=lambda name: None)
    graph_unsafe: frozenset[str] = frozenset()
    writer: Writer | None = None
    keep_refusal: Callable[[OverrideFile, OverrideFile], str | None] | None = None
    conversion: Conversion | None = None

    @property
    def convolutions(self) -> bool:
        """Whether its rows are about convolutions, not GEMMs."""
        return "conv" in self.kinds

    def inspect(self, name: str, data: bytes, target: Facts) -> OverrideFile:
        """The file as this library's reader takes it, and a note for all that is wrong with it."""
        reading = self.reader(name, data, target)
        broken = (breach.note for row, _ in reading.alike for breach in row.breaches)
        noted = (*reading.refusals, *broken, *self.remarks(name, data, reading))
        return OverrideFile(format=self.name, name=name, reading=reading, noted=noted)


def bytes_of(lines: Iterable[str]) -> bytes:
    """Lines as a file, bytes that were no UTF-8 as they were."""
    out = BytesIO()
    out.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines)
    return out.getvalue()


def records_of(format: FileFormat) -> Callable[[Source], Iterator[tuple[int, Record]]]:
    """The records of a file of this format, each with the line that it ends in."""

    def read(file: Source) -> Iterator[tuple[int, Record]]:
        line = 0
        for outcome in format.read(file):
            line += outcome.lines
            yield from ((line, record) for record in outcome.records)

    return read
