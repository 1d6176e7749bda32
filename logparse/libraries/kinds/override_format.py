"""The interface of an override format.  In an override file a user tells a library which kernel to run for a call.

Each format has a ``reader`` that reads such a file as the library itself does.  The target is the machine that will use
the file.  The reader tells for each row and the target:

* whether the library keeps the row when it reads the file;
* whether a call can match the row;
* whether the library then obeys the row.

Each answer is True, False or None (unknown, because too little is known about the target).  A row is *dead* if it has
no effect in any job, because the library does not read it or because no call can match it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any, TypeAlias

from logparse.libraries.kinds.format import Emission, FileFormat, Head, Source, Writer
from logparse.libraries.kinds.json_members import Member, items_of, members_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Row, Verdict, remarks_on
from logparse.model import Problem, Record, Solution
from logparse.target import Facts


@dataclass(frozen=True, kw_only=True)
class OverrideFile:
    """A file that tells a library which kernels to use, after it was read and checked.

    * ``reading``: what a library on the target machine does with the file.
    * ``noted``: notes about its faults, in no order. One note may be about many lines.
    * ``shown``: the file's name in reports, if another file has the same name.
    """

    format: str
    name: str
    reading: Reading[Any]
    noted: tuple[Note, ...]
    shown: str = ""

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """The notes about the file, one for each line, sorted by line.  Notes about the whole file come first."""
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
        """True if the file has no error: none of its notes has the severity ``error``."""
        return not any(note.severity == "error" for note in self.noted)


@dataclass(frozen=True)
class Report:
    """A library's log line about the look-up of one call in an override file (a list of kernels to use).

    * ``key``: the key for which the library searched.
    * ``found``: True if it found a row, None if the log does not say.
    * ``kernels``: the names of the kernels that it took, spelled as in a row's text.  Empty if the log or the file
      names no kernel.
    * ``why``: the reason if this key is not the key that the call should have.
    """

    key: str
    found: bool | None
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Describes how several override files (lists of kernels to use) of one format are merged into one file.

    The command ``merge`` uses it.

    * ``header``: returns the facts on which all files must agree, as pairs of name and value.  If a file has several
      values of one name, it contradicts itself.  Raises InputError if the file lacks these facts.
    * ``write``: makes the files from the accepted rows, sorted by key.  Its other arguments are the first file's name,
      the facts on which all files agreed, and the number of GPUs.
    * ``slot``: returns the place of a row in the merged file, by default its key.  Only one row is kept for each place.
    * ``work``: returns a description of the work that a row's time covers, if the key does not state it.  Times of
      different work are not compared.
    * ``several``: True if the library uses all rows of one key together (solvers of one record).
    * ``in_order``: True if the row of the first file is taken when no time decides.
    * ``note``: a warning that every merge of this format prints.
    * ``per_device``: True if the library reads one file for each device.
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
    """Describes how an override file (list of kernels to use) of one library becomes one for another library.

    The command ``convert`` uses it. Only matrix products (GEMMs) are converted.

    * ``word``: the name of this format as a destination.
    * ``recognise``: tells whether a file has this format.
    * ``read``: yields the records of such a file, each with the number of the line in which it ends (from 1).
    * ``takes``: returns a kernel with the number that this library gives it.  The second argument is the version of
      rocBLAS that the kernel comes from.  None means that the library has no such number.
    * ``matched``: a description of the calls for which a row of this format is used.
    * ``asked_last``: True if ``recognise`` accepts files of other formats, too.  It is then asked after them.
    """

    word: str
    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterable[tuple[int, Record]]]
    takes: Callable[[Solution, str], Solution | None]
    matched: str
    asked_last: bool = False


Keep: TypeAlias = Callable[[int, bytes], bool]
"""A function that decides whether a row stays in a file.  It gets the row's line number and text."""


def cut_lines(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
    """Remove rows from an override file (a user's list of kernels to use).

    ``keep`` decides for each row whether it stays.  Lines that are not rows always stay.
    """
    # Usually a row is one line. In files where each row has its own header line, the header is removed with its row.
    last = {row.line - row.text.count("\n"): row.line for row in rows}
    out, lines = list[bytes](), enumerate(data.split(b"\n"), start=1)
    for number, line in lines:
        whole = [line, *(next(lines)[1] for _ in range(number, last.get(number, number)))]
        if number not in last or keep(last[number], whole[-1].strip()):
            out += whole
    return b"\n".join(out)


def cut_members(is_row: Callable[[Member], bool]) -> Callable[[bytes, Iterable[Row], Keep], bytes]:
    """Make the field ``cut`` of an override format in JSON: a function that removes rows from a file.

    ``is_row`` tells whether a member of the file is a row.  All other members stay.
    """

    def cut(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
        members = members_of(data)
        if not members:
            return data
        return _cut_pieces(data, data.index(b"{") + 1, members, lambda x: not is_row(x) or _stays(data, x, keep))

    return cut


def cut_items(name: str) -> Callable[[bytes, Iterable[Row], Keep], bytes]:
    """Make the field ``cut`` of an override format in JSON whose rows are the items of a list.

    ``name`` is the name of the member whose value is the list.
    """

    def cut(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
        items = [item for x in members_of(data) if x.name == name and x.unused is None for item in items_of(x)]
        if not items:
            return data
        first = data.rindex(b"[", 0, items[0].offset) + 1
        return _cut_pieces(data, first, items, lambda x: _stays(data, x, keep))

    return cut


def _stays(data: bytes, row: Member, keep: Keep) -> bool:
    return keep(row.line, b" ".join(data[row.offset : row.end].split()))


def _cut_pieces(data: bytes, first: int, members: Sequence[Member], stays: Callable[[Member], bool]) -> bytes:
    """Remove members of a JSON object, or items of a list.  ``first`` is the place behind the opening bracket."""
    # A piece of the file is a member with the blanks around it, without the commas.
    begins = [first, *(data.index(b",", x.end) + 1 for x in members[:-1])]
    ends = [*(x - 1 for x in begins[1:]), members[-1].end]
    kept = [data[begin:end] for member, begin, end in zip(members, begins, ends, strict=True) if stays(member)]
    return data[:first] + b",".join(kept) + data[members[-1].end :]


@dataclass(frozen=True, kw_only=True)
class OverrideFormat:
    """Describes one format of override files (lists of kernels to use).  It is an entry of ``OVERRIDE_FORMATS``.

    For reading (used by lint and by all other commands):

    * ``recognise``: tells whether a file has this format.
    * ``reader``: reads a file as the library does, given the file's name, its bytes and the facts of the target
      machine.
    * ``remarks``: returns further notes for the user about a file that was read.
    * ``compared``: names of facts (or a common prefix of the names) that the library compares.  The library refuses a
      file if the facts differ, because the file is from another build.
    * ``accepted_if``: what the target machine must have so that the library accepts a file.  It is shown if the target
      is too little known to decide.
    * ``order``: what the order of several rows with one key means.  The order of rows with different keys has no
      meaning in any format.

    For finding the row of a call (coverage, verify, diff):

    * ``kinds``: the kinds of problems (such as matrix products) that the rows are for.
    * ``key``: returns the library's key of a call on a target machine.  It is the key that the writer writes.  A row
      with this key is used for the call.
    * ``probe_order``: sorts the rows of one key in the order in which the library tries them.  The default is the
      file's order.
    * ``fallback_keys``: returns the keys that the library tries, in order, if no row has the call's own key.
    * ``reported``: returns what the messages of a log (function and text) say about searches in this file, by problem.
      For a format without ``kinds`` these are all calls that are known.
    * ``kernels``: returns the kind of kernels that a call needs, where its key does not state it.  This function is
      used if all kernels of a solution are of one kind.  Empty means the usual kind.  None means that the problem does
      not state it.
    * ``other_product``: returns the reason why a row's kernel cannot run a call of the same key.  It gets the row's
      problem and the call's problem.  The reason is empty if row and call agree in everything that both state.
    * ``not_in_this_build``: returns the reason why a build with the given facts makes no such key.
    * ``selects``: True if a row chooses a kernel.  A row of a perf-db only sets parameters.
    * ``signs``: texts with which the library's log reports that it ignored a file, each with its meaning.
    * ``family``: returns a name for the files that the library reads as one table, from the name of one of them.
    * ``graph_unsafe``: libraries whose rows allocate memory at a first call.  Such an allocation fails if the first
      call happens while a GPU graph is captured.

    For writing:

    * ``writer``: makes the file.  ``list_writer``: makes a list of calls, which the library's tuning program reads.
    * ``lines``: returns rows as lines of a file.  ``merge`` writes its files with this function.  A user's own rows are
      also kept with it.
    * ``cut``: returns the file without some of its rows.  For each row, in the file's order, it asks whether the row
      stays.  All other bytes stay.  The default is for rows that are lines.  ``cut_members`` is for members of JSON,
      ``cut_items`` for items of a list in it.
    * ``find_copy_obstacle``: returns the reason why no row of one file may be copied into another file of this format,
      or None.  Without this function, a user's own rows are not kept.
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
    accepted_if: str = "the library build that wrote the file"
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
    list_writer: Writer | None = None
    find_copy_obstacle: Callable[[OverrideFile, OverrideFile], str | None] | None = None
    conversion: Conversion | None = None

    @property
    def writers(self) -> tuple[Writer, ...]:
        return tuple(x for x in (self.writer, self.list_writer) if x is not None)

    @property
    def convolutions(self) -> bool:
        """True if the rows are for convolutions, not for matrix products."""
        return "conv" in self.kinds

    def inspect(self, name: str, data: bytes, target: Facts) -> OverrideFile:
        """Read an override file (a user's list of kernels to use) as its library does, and note all faults in it."""
        reading = self.reader(name, data, target)
        broken = (breach.note for row, _ in reading.alike for breach in row.breaches)
        noted = (*reading.refusals, *broken, *self.remarks(name, data, reading))
        return OverrideFile(format=self.name, name=name, reading=reading, noted=noted)


def bytes_of(lines: Iterable[str]) -> bytes:
    """Return the content of a file (bytes) from its lines (texts).

    Bytes that were not UTF-8 when the text was read become the same bytes again.
    """
    out = BytesIO()
    out.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines)
    return out.getvalue()


def records_of(format: FileFormat) -> Callable[[Source], Iterator[tuple[int, Record]]]:
    """Return a function that reads files of this format for the subcommand ``convert``.

    The function yields the file's records, each with the number of the line where the record ends.
    """

    def read(file: Source) -> Iterator[tuple[int, Record]]:
        line = 0
        for outcome in format.read(file):
            line += outcome.lines
            yield from ((line, record) for record in outcome.records)

    return read
