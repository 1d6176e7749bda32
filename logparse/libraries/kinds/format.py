"""What a format is: text (or bytes) to nouns, and back where a library reads the file.

There are three kinds (see CONTRIBUTING): *record lines*, counted distinct; *blocks*, read in order; *whole files*, of
which *tables* are one (``table.py``).
Recognising never raises; reading never raises on content: what looks like ours and cannot be read is a ``Reject``.
Every input line ends in exactly one ``Unit``; ingest checks that nothing is lost.

Each format says of itself, for readers and for the table in docs/formats.md: ``about`` in a few words, the versions
``seen`` whose files were read, an ``example`` of a line, and what it ``gives``; and, for the table of its library,
``how`` to produce it and ``since`` which version.  Without ``how`` the page's text tells it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

import pyarrow as pa

from logparse.errors import EmissionError
from logparse.libraries.kinds.patterns import regex
from logparse.model import Override, Problem, Record
from logparse.quoting import Shell, filled, is_file_name, lines_of, shell_comment, shell_word

Unit = Literal["call", "message", "measurement", "fact", "reject", "foreign", "blank"]
UNITS: tuple[Unit, ...] = ("call", "message", "measurement", "fact", "reject", "foreign", "blank")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end, and the byte offset of its first byte in the (decompressed) stream."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of ``lines`` input units: the unit they count as and the records they gave.

    ``at`` is the offset of the unit in a whole file, to which a ``Reject`` in ``records`` is relative; of lines and
    blocks ingest knows the offset, and ``at`` stays 0.  ``tables`` holds ready Arrow columns by the store's table
    names, for formats whose every line is a record of its own (find-db).
    """

    unit: Unit
    records: Sequence[Record] = ()
    lines: int = 1
    at: int = 0
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


FOREIGN = Outcome("foreign")


@dataclass(frozen=True)
class Head:
    """What a whole-file format is recognised from: the file's name (no folder, ``.gz`` etc. removed) and the first
    64 KiB of its content.
    """

    name: str
    data: bytes


def begins(pattern: bytes) -> Callable[[Head], bool]:
    """Recognises the files whose first bytes match."""
    beginning = regex(pattern)
    return lambda head: beginning.match(head.data) is not None


class Source(Protocol):
    """An input file while it is read."""

    @property
    def name(self) -> str: ...  # file name without folder and compression suffix

    def open(self) -> BinaryIO:
        """The decompressed content from its start."""
        ...

    def lines(self) -> Iterator[Line]:
        """Lines decoded as UTF-8 (bad bytes escaped), split at LF only, one trailing CR kept."""
        ...

    def local_path(self) -> str:
        """A path on this machine with the decompressed content (sqlite needs one)."""
        ...

    def beside(self) -> Iterator[Source]:
        """The other files of its folder, by name, then those of its subfolder ``capture_traces``."""
        ...


def content(source: Source) -> bytes:
    """The whole of a small file; one read of a pipe or an archive may return less than there is."""
    with source.open() as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def parsed(data: bytes) -> Any:
    """The JSON value that a file contains.  Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


@dataclass(frozen=True)
class Origin:
    """Who took the times that a format reads: ``name`` is the ``origin`` of its measurements.

    ``evidence``: the times are measurements of named solutions, which picks are compared by.  Not so are kernel times
    of traces, choices without a time, and estimates.
    """

    name: str
    evidence: bool


@dataclass(frozen=True)
class LineFormat:
    """One line, one record: ``read`` gets each *distinct* line once and its result is counted.

    ``markers``: a line is of this format iff it holds one of these byte strings.  ``start`` is a regular expression
    (bytes) that matches where a record begins, used to split spliced lines; ``prefixed`` means that records begin with
    ``[date time][LIB][n]``, whose clock and third bracket ingest takes off (``read`` then gets
    ``[LIB][Layer][function] body``) and that addresses may be masked (``0x@``, NULL stays as printed).  ``process``
    returns the process that a line without such a prefix names, or None.
    """

    name: str
    about: str
    markers: tuple[bytes, ...]
    start: bytes
    read: Callable[[str], Outcome]
    prefixed: bool = False
    process: Callable[[str], int | None] | None = None
    origins: tuple[Origin, ...] = ()
    job_log: bool = True
    asked_late: str = ""
    seen: str = ""
    example: str = ""
    gives: str = ""
    how: str = ""
    since: str = ""


class BlockReader(Protocol):
    """State of one block format in one stream."""

    @property
    def awake(self) -> bool:
        """Whether lines without a marker must be shown to ``take`` now."""
        ...

    def take(self, line: Line) -> Outcome | None:
        """What this line is, or None when it is not ours."""
        ...

    def close(self) -> Iterable[Record]:
        """Records still held at the end of the stream; an unclosed block is a ``Message``."""
        ...


@dataclass(frozen=True)
class BlockFormat:
    """A format whose lines only mean something in their ``order``; a line with one of ``markers`` wakes its reader."""

    name: str
    about: str
    markers: tuple[bytes, ...]
    begin: Callable[[], BlockReader]
    origins: tuple[Origin, ...] = ()
    job_log: bool = True
    asked_late: str = ""
    seen: str = ""
    example: str = ""
    gives: str = ""
    how: str = ""
    since: str = ""
    order: str = ""


@dataclass(frozen=True)
class FileFormat:
    """A whole file, recognised from its head.  ``read`` accounts for every unit of the file.

    ``job_log``: the facts of such a file are of the job that wrote it, as those of a trace are.  Tables and override
    files travel between machines, so theirs are not: ``stale-override`` compares no file with them.  ``asked_late`` is
    why other formats are asked first whether a file is theirs; such formats come last.  ``order`` is what the order of
    the lines below the first means; empty: nothing, and a law of all formats holds it to that.
    """

    name: str
    about: str
    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterator[Outcome]]
    origins: tuple[Origin, ...] = ()
    job_log: bool = False
    asked_late: str = ""
    seen: str = ""
    example: str = ""
    gives: str = ""
    how: str = ""
    since: str = ""
    order: str = ""


Format: TypeAlias = LineFormat | BlockFormat | FileFormat


def evidence_of(formats: Iterable[Format]) -> tuple[str, ...]:
    """Names of the origins of these formats whose times are evidence, sorted: what a commit states of its rows."""
    return tuple(sorted({origin.name for format in formats for origin in format.origins if origin.evidence}))


@dataclass(frozen=True)
class Emission:
    """A file to write: its name, its bytes, and what makes the library read it: shell lines to paste, in which
    ``{path}`` stands for the written file, ``{folder}`` for its folder, ``{name}`` for its name and ``{generic}`` for
    that without a device's number.

    ``use`` holds no text of a file: ``lines`` puts the names in, quoted.  Once it is written it has a ``path``, which
    they then name; ``applied``: the ``apply.sh`` beside it does all of ``use``.  ``shared``: it is made to be ingested,
    so it is not passed over as our own.  Raises EmissionError where ``name`` is a path or no name of a file.
    """

    name: str
    data: bytes
    use: Shell
    path: Path | None = None
    applied: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if not is_file_name(self.name):
            raise EmissionError(f"{self.name!r} is no name of a file")

    @property
    def lines(self) -> list[Shell]:
        """The lines of ``use``, with the place of the file once it is written."""
        if self.path is None:
            return self.lines_at(Shell("{folder}"), Shell("{path}"))
        path = self.path.absolute()
        return self.lines_at(shell_word(path.parent), shell_word(path))

    @property
    def settings(self) -> list[Shell]:
        """The lines of ``use`` that change the environment."""
        return settings(self.lines)

    def lines_at(self, folder: Shell, path: Shell) -> list[Shell]:
        """The lines of ``use`` with these words for its folder and for itself."""
        names = {"name": shell_comment(self.name), "generic": shell_word(_DEVICE.sub("", self.name))}
        values = {"folder": folder, "path": path, **names}
        return [filled(line, values, "{}") for line in lines_of(self.use) if line]


def settings(lines: Iterable[Shell]) -> list[Shell]:
    """The lines that change the environment."""
    return [line for line in lines if _SETTING.match(line)]


_DEVICE = re.compile(r"\d+(?=\.[^.]*\Z)")
_SETTING = re.compile(r"\s*(?:export|unset)\s")


@dataclass(frozen=True)
class Writer:
    """How overrides become a file that a library reads back.

    ``key`` is the library's own key of a problem, by which it matches; None when the library has no key for this
    problem.  ``write`` raises EmissionError naming the fact or field that is unknown and what would supply it.
    ``file`` and ``read_when`` are for ``docs/formats.md``, as Markdown: what is written, and when the library reads it.
    """

    name: str
    about: str
    accepts: Callable[[Override], bool]
    key: Callable[[Problem, Mapping[str, str]], str | None]
    write: Callable[[Sequence[Override], Mapping[str, str]], Sequence[Emission]]
    file: str = ""
    read_when: str = ""


def one_per_key(overrides: Iterable[Override], key_of: Callable[[Override], str]) -> dict[str, Override]:
    """Of several overrides of one key the fastest.  Raises EmissionError where they differ and have not two times."""
    out: dict[str, Override] = {}
    for new in overrides:
        key = key_of(new)
        old = out.setdefault(key, new)
        if old.time_us is not None and new.time_us is not None:
            out[key] = min(old, new, key=lambda x: (x.time_us or 0.0, x.solution.text))
        elif old.solution != new.solution:
            raise EmissionError(f"{old.solution.text} and {new.solution.text} for {key}, and no two times to choose by")
        elif old.time_us is None:
            out[key] = new
    return out


def cells_of(line: str) -> list[str]:
    """The cells of a line, quoted ones without their quotes."""
    if line and '"' not in line and "\r" not in line:
        return line.split(",")  # what csv makes of it, in a fifth of the time
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell beyond csv's limit, before Python 3.11 also a NUL
        return line.split(",")
