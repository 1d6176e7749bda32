"""The interface of an override format.  An override file names, for single calls, the solution that a library runs.

Each format has the library's own ``reader``.  For a target it tells which rows the library keeps, which rows a call can
match, and which rows the library honours.  The three verdicts of a row are True, False or None (unknown without the
target).  A row is *dead* if it has no effect for any workload, because the library does not read it or because no call
can match it.
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
    """Override file, as the library of a target reads it: the reading, and the notes about it.

    ``noted`` are its notes, in no order.  A note may stand for many lines.  ``shown`` is its name in reports.  It is
    given if another file has the same name.
    """

    format: str
    name: str
    reading: Reading[Any]
    noted: tuple[Note, ...]
    shown: str = ""

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """One note per line, sorted by line.  Notes about the whole file come first."""
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
        """True if there is no note of severity ``error``."""
        return not any(note.severity == "error" for note in self.noted)


@dataclass(frozen=True)
class Report:
    """Look-up of one call in an override file, as a library's log states it.

    * ``key``: the key that the library looked up.
    * ``found``: True if it found a row, None if the log does not state this.
    * ``kernels``: names of the kernels that it took, spelled as in a row's text.  Empty if the log or the file names
      none.
    * ``why``: the reason why this key is not the problem's own key.
    """

    key: str
    found: bool | None
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Merging:
    """How files of one format become one file.  ``merge`` uses it.

    * ``header``: returns facts on which all files must agree, as pairs of name and value.  Several values of one name
      in a file disagree.  Raises InputError if the file does not contain them.
    * ``write``: makes the files from the accepted rows, sorted by key.  Its other arguments are the first file's name,
      the facts on which all files agreed, and the number of GPUs.
    * ``slot``: returns the place of a row.  Only one row per place is kept.  By default the place is the key.
    * ``work``: returns a description of the work that a row's time covers, if the key does not state it.  Times of
      different work are not compared.
    * ``several``: True if the library uses all rows of one key together (solvers of one record).
    * ``in_order``: True if the row of the first file is taken when no time decides.
    * ``note``: a warning that every merge of this format prints.
    * ``per_device``: True if the library reads one file per device.
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
    """How tuned GEMMs of this format become another library's, and back.  ``convert`` uses it.

    * ``word``: name of the format as a destination.
    * ``takes``: returns a solution as this library numbers it, given the version of rocBLAS of the solution.  None if
      the library has no such number.
    * ``matched``: a description of the calls that a row of this format serves.
    * ``read``: yields the records of a file that ``recognise`` accepts, each with the line (from 1) in which it ends.
    """

    word: str
    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterable[tuple[int, Record]]]
    takes: Callable[[Solution, str], Solution | None]
    matched: str


Keep: TypeAlias = Callable[[int, bytes], bool]
"""Function that gets the line and the text of a row.  It returns True if the row stays in the file."""


def cut_lines(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
    """Return a table with only some of its rows.  Lines that are not rows stay.

    A row is one line.  If each row has its own header line, the two lines are one row.
    """
    last = {row.line - row.text.count("\n"): row.line for row in rows}
    out, lines = list[bytes](), enumerate(data.split(b"\n"), start=1)
    for number, line in lines:
        whole = [line, *(next(lines)[1] for _ in range(number, last.get(number, number)))]
        if number not in last or keep(last[number], whole[-1].strip()):
            out += whole
    return b"\n".join(out)


@dataclass(frozen=True, kw_only=True)
class OverrideFormat:
    """Description of one override format.  It is a member of ``OVERRIDE_FORMATS``.

    Reading (used by lint and by all others):

    * ``recognise``: accepts its files.
    * ``reader``: returns the reading of a file, given its name, its bytes and the target's facts.
    * ``remarks``: returns further notes for the user about a file that was read.
    * ``compared``: names of facts (or a common prefix of the names) that the library compares, to refuse a file of
      another build.
    * ``order``: what the order of several rows with one key means.  The order of rows of different keys has no meaning
      in any format.

    Looking up (coverage, verify, diff):

    * ``kinds``: kinds of problems that it runs.
    * ``key``: returns the library's key of a call on a target, which is the writer's key.  A row of that key serves the
      call.
    * ``probe_order``: sorts the rows of one key in the order in which the library tries them.  Default: the file's
      order.
    * ``fallback_keys``: returns the keys that the library tries, in order, if no row has the call's own key.
    * ``reported``: returns the look-ups in this file that the messages of a log (function and text) state, by problem.
      For a format without ``kinds`` these are all of its calls.
    * ``kernels``: returns the kind of kernels that a call needs besides its key.  It is used if a solution's kernels
      are of one kind.  Empty means the usual kind.  None means that the problem does not state it.
    * ``other_product``: returns the reason why a row's solution cannot run a call of its key, by the row's problem.  It
      is empty if the row and the call contradict each other in nothing that both state.
    * ``not_in_this_build``: returns the reason why a build with the facts makes no such key.
    * ``selects``: True if a row chooses a solution.  A row of a perf-db only sets parameters.
    * ``signs``: texts by which the library's log reports that it did not honour a file, each with its meaning.
    * ``family``: returns a name for the files that the library reads as one table, by a file's name.
    * ``graph_unsafe``: libraries whose rows allocate at a first call.  This fails if the first call happens while a
      graph is captured.

    Writing:

    * ``writer``: makes the file.
    * ``lines``: renders rows as lines of a file.  ``merge`` writes its files with this function, and a user's own rows
      are kept with it.
    * ``cut``: returns the file with only some of its rows.  It asks for each row in the file's order.  All other bytes
      stay.
    * ``keep_refusal``: returns the reason why no row of one file can stand in another file of this format, or None.
      Without it, a user's own rows are not kept.
    * ``merging``, ``conversion``: used by ``merge`` and ``convert``.
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
        """True if its rows are about convolutions, not GEMMs."""
        return "conv" in self.kinds

    def inspect(self, name: str, data: bytes, target: Facts) -> OverrideFile:
        """Read the file as this library reads it.  Return it with a note for everything that is wrong with it."""
        reading = self.reader(name, data, target)
        broken = (breach.note for row, _ in reading.alike for breach in row.breaches)
        noted = (*reading.refusals, *broken, *self.remarks(name, data, reading))
        return OverrideFile(format=self.name, name=name, reading=reading, noted=noted)


def bytes_of(lines: Iterable[str]) -> bytes:
    """Return lines as the bytes of a file.  Bytes that are not UTF-8 get their original values back."""
    out = BytesIO()
    out.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines)
    return out.getvalue()


def records_of(format: FileFormat) -> Callable[[Source], Iterator[tuple[int, Record]]]:
    """Return a function that yields the records of a file of this format, each with the number of the line in which it
    ends.
    """

    def read(file: Source) -> Iterator[tuple[int, Record]]:
        line = 0
        for outcome in format.read(file):
            line += outcome.lines
            yield from ((line, record) for record in outcome.records)

    return read
