"""The interface of a format: it turns text or bytes into records, and back if a library reads the file.

There are three kinds of formats (see CONTRIBUTING):

* *record lines*: each line is a record, and equal lines are counted;
* *blocks*: lines that are read in order;
* *whole files*, for example *tables* (``table.py``).

Recognising a file or line never raises.  Reading never raises because of the content: a line that looks like this
format's and cannot be read becomes a ``Reject``.  Every input line ends in exactly one ``Unit``.  ``ingest`` checks
that no line is lost.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
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
    """One line without its line end.  ``offset`` is the offset of its first byte in the (decompressed) stream."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of reading ``lines`` input units: the kind of unit as which they are counted, and their records.

    In a whole file ``at`` is the byte offset of the unit.  The offset of a ``Reject`` in ``records`` is relative to
    ``at``.  For lines and blocks ``at`` stays 0, because ingest knows the offset.  ``tables`` holds Arrow columns by
    the names of the store's tables.  It is for formats in which every line is a record (find-db).
    """

    unit: Unit
    records: Sequence[Record] = ()
    lines: int = 1
    at: int = 0
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


FOREIGN = Outcome("foreign")


@dataclass(frozen=True)
class Head:
    """Beginning of a file, by which a whole-file format recognises the file.

    ``name`` is the file's name without folder and without endings such as ``.gz``.  ``data`` is the first 64 KiB of the
    content.
    """

    name: str
    data: bytes


def begins(pattern: bytes) -> Callable[[Head], bool]:
    """Return a function that recognises files whose first bytes match a pattern."""
    beginning = regex(pattern)
    return lambda head: beginning.match(head.data) is not None


class Source(Protocol):
    """Input file that is being read."""

    @property
    def name(self) -> str: ...  # file name without folder and compression suffix

    def open(self) -> BinaryIO:
        """Open the decompressed content at its start."""
        ...

    def lines(self) -> Iterator[Line]:
        """Yield the lines, decoded as UTF-8 with bad bytes escaped.

        Lines are split at LF only.  A CR before it stays.
        """
        ...

    def local_path(self) -> str:
        """Return a path on this machine with the decompressed content. sqlite needs such a path."""
        ...

    def beside(self) -> Iterator[Source]:
        """Yield the other files of its folder, sorted by name, then the files of its subfolder ``capture_traces``."""
        ...


def content(source: Source) -> bytes:
    """Return the whole content of a small file.

    It reads in a loop, because one read of a pipe or an archive may return less than there is.
    """
    with source.open() as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def parsed(data: bytes) -> Any:
    """Return the JSON value that a file contains.

    Raises ValueError if the content is not JSON or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


@dataclass(frozen=True)
class Origin:
    """Tool that took the times that a format reads.  ``name`` is the ``origin`` of its measurements.

    ``evidence`` is True if the times are measurements of named solutions, so that a pick can be compared with them.  It
    is False for kernel times of traces, choices without a time, and estimates.

    ``winners`` is True if a tuner wrote each row as the winner of its search.  A single row then states a best time.
    Rows of other origins do so only if at least two solutions were timed.
    """

    name: str
    evidence: bool
    winners: bool = False


@dataclass(frozen=True)
class Described:
    """Statements of a format about itself: for ``ingest``, for readers, and for the tables of docs/formats.md.

    * ``about``: a short description.
    * ``origins``: the origins of its measurements.
    * ``job_log``: the facts of such a file describe the job that wrote the file, as the facts of a trace do.  Tables
      and override files are copied between machines, so their facts do not describe the job, and False is the default
      of whole files.  The finder ``stale-override`` never compares such a file with the job's facts.
    * ``asked_late``: the reason why other formats are asked first.  Formats with a reason come last.
    * ``seen``: versions whose files were read.
    * ``example``: a line of the format.
    * ``gives``: the records that it makes.
    * ``how``: how to produce such a file.  If it is empty, the page's text explains this.
    * ``since``: the first version that writes it.
    * ``order``: what the order of the lines (in a table, of the rows) means.  If it is empty, the order means nothing.
      A test over all formats checks that.
    """

    name: str
    about: str
    _: KW_ONLY
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
class LineFormat(Described):
    """A format of which each line is one record.  ``read`` gets each *distinct* line once, and its result is counted.

    * ``markers``: a line is of this format if and only if it contains at least one of the byte strings.
    * ``start``: regular expression (bytes) that matches at the beginning of a record.  It is used to split spliced
      lines.
    * ``prefixed``: records begin with ``[date time][LIB][n]``.  ``ingest`` takes off the time and the third bracket, so
      ``read`` gets ``[LIB][Layer][function] body``.  Addresses may be masked (``0x@``).  NULL stays as printed.
    * ``process``: returns the process that a line without such a prefix names, or None.
    """

    markers: tuple[bytes, ...]
    start: bytes
    read: Callable[[str], Outcome]
    prefixed: bool = False
    process: Callable[[str], int | None] | None = None


class BlockReader(Protocol):
    """State of one block format while one stream is read."""

    @property
    def awake(self) -> bool:
        """True if ``take`` must now see lines without a marker, too."""
        ...

    def take(self, line: Line) -> Outcome | None:
        """Return the outcome of a line, or None if the line is not of this format."""
        ...

    def close(self) -> Iterable[Record]:
        """Return the records that are left at the end of the stream.  An unclosed block is a ``Message``."""
        ...


@dataclass(frozen=True)
class BlockFormat(Described):
    """A format whose lines have a meaning only in their ``order``.  A line with one of ``markers`` wakes its reader."""

    markers: tuple[bytes, ...]
    begin: Callable[[], BlockReader]


@dataclass(frozen=True)
class FileFormat(Described):
    """A format of whole files, recognised from the head.  ``read`` accounts for every unit of the file."""

    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterator[Outcome]]
    job_log: bool = field(default=False, kw_only=True)


Format: TypeAlias = LineFormat | BlockFormat | FileFormat


def stated_of(formats: Iterable[Format]) -> dict[str, Any]:
    """Return what formats state of their files' rows, as a commit keeps it.

    ``evidence`` and ``winners`` are sorted names of origins.
    """
    formats = tuple(formats)
    origins = [origin for format in formats for origin in format.origins]
    return {
        "evidence": tuple(sorted({origin.name for origin in origins if origin.evidence})),
        "winners": tuple(sorted({origin.name for origin in origins if origin.winners})),
        "job_log": any(format.job_log for format in formats),
    }


@dataclass(frozen=True)
class Emission:
    """A file to write, and the shell lines that make the library read it.

    * ``use``: shell lines to paste.  They contain no text of a file, only the placeholders below.  ``lines`` puts the
      quoted names in.
    * ``path``: place of the file once it is written.  ``lines`` then names this path.
    * ``applied``: True if the file's ``apply.sh`` does everything that ``use`` states.
    * ``shared``: True if the file is made to be ingested, so that ``ingest`` does not skip it as a file of logparse.

    | placeholder | stands for |
    |---|---|
    | ``{path}`` | the written file |
    | ``{folder}`` | its folder |
    | ``{name}`` | its name |
    | ``{generic}`` | its name without a device's number |

    Raises EmissionError if ``name`` is a path or is not a valid file name.
    """

    name: str
    data: bytes
    use: Shell
    path: Path | None = None
    applied: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if not is_file_name(self.name):
            raise EmissionError(f"{self.name!r} cannot be the name of a file")

    @property
    def lines(self) -> list[Shell]:
        """The lines of ``use`` with the place of the file.  The file must have been written."""
        if self.path is None:
            return self.lines_at(Shell("{folder}"), Shell("{path}"))
        path = self.path.absolute()
        return self.lines_at(shell_word(path.parent), shell_word(path))

    @property
    def settings(self) -> list[Shell]:
        """The lines of ``use`` that change the environment."""
        return settings(self.lines)

    def lines_at(self, folder: Shell, path: Shell) -> list[Shell]:
        """Return the lines of ``use`` with these words in place of the folder and the file."""
        names = {"name": shell_comment(self.name), "generic": shell_word(_DEVICE.sub("", self.name))}
        values = {"folder": folder, "path": path, **names}
        return [filled(line, values, "{}") for line in lines_of(self.use) if line]


def settings(lines: Iterable[Shell]) -> list[Shell]:
    """Return the lines that change the environment (``export`` and ``unset``)."""
    return [line for line in lines if _SETTING.match(line)]


_DEVICE = re.compile(r"\d+(?=\.[^.]*\Z)")
_SETTING = re.compile(r"\s*(?:export|unset)\s")


@dataclass(frozen=True)
class Writer:
    """Conversion of overrides into a file that a library reads.

    * ``key``: returns the library's own key of a problem, by which the library matches.  None if it has no key for it.
    * ``write``: returns the files.  Raises EmissionError, which names the unknown fact or field and what would supply
      it.
    * ``file`` and ``read_when``: Markdown for ``docs/formats.md``: the file that is written, and when the library reads
      it.
    """

    name: str
    about: str
    accepts: Callable[[Override], bool]
    key: Callable[[Problem, Mapping[str, str]], str | None]
    write: Callable[[Sequence[Override], Mapping[str, str]], Sequence[Emission]]
    file: str = ""
    read_when: str = ""


def one_per_key(overrides: Iterable[Override], key_of: Callable[[Override], str]) -> dict[str, Override]:
    """Keep the fastest override per key.  Raises EmissionError if two overrides differ and one of them has no time."""
    out: dict[str, Override] = {}
    for new in overrides:
        key = key_of(new)
        old = out.setdefault(key, new)
        if old.time_us is not None and new.time_us is not None:
            out[key] = min(old, new, key=lambda x: (x.time_us or 0.0, x.solution.text))
        elif old.solution != new.solution:
            raise EmissionError(
                f"{old.solution.text} and {new.solution.text} for {key}, but not two times to choose by"
            )
        elif old.time_us is None:
            out[key] = new
    return out


def cells_of(line: str) -> list[str]:
    """Return the cells of a line.  Quoted cells lose their quotes."""
    if line and '"' not in line and "\r" not in line:
        return line.split(",")  # gives the result of csv in a fifth of the time
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # A cell is longer than csv allows.  Before Python 3.11, csv also fails at a NUL.
        return line.split(",")
