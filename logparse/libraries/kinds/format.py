"""The interface of a format, which turns the text or bytes of a log file into records.

If a library reads such files, the format can also write them.  There are three kinds of formats (see CONTRIBUTING):

* *Record lines*: each line is a record, and equal lines are counted.
* *Blocks*: the lines are read in order, because their meaning depends on the lines before them.
* *Whole files*, for example *tables* (``table.py``).

No content makes a format raise an error.  A line that seems to be of the format but cannot be read becomes a
``Reject``.  Every input line is counted as exactly one kind of unit (``Unit``), and ``ingest`` checks that no line is
lost.
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
from logparse.model import Override, Problem, Record, Reject
from logparse.quoting import Shell, fill_template, is_file_name, lines_of, shell_comment, shell_word

Unit = Literal["call", "message", "measurement", "fact", "reject", "foreign", "blank"]
UNITS: tuple[Unit, ...] = ("call", "message", "measurement", "fact", "reject", "foreign", "blank")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file without its line end.

    ``offset`` is the position of its first byte in the decompressed file.
    """

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of reading some input lines: how they are counted, and the records that they contain.

    * ``unit``: the category in which the lines are counted, for example ``call`` or ``blank``.
    * ``lines``: the number of input lines.
    * ``at``: in a whole file, the byte offset of the part that was read.  For lines and blocks it stays 0, because the
      caller knows the offset.  The offset of a ``Reject`` in ``records`` is relative to ``at``.
    * ``tables``: Arrow columns for each table of the store.  Formats in which every line is a record (MIOpen's find-db)
      give them, because this is faster than records.
    """

    unit: Unit
    records: Sequence[Record] = ()
    lines: int = 1
    at: int = 0
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


FOREIGN = Outcome("foreign")


@dataclass(frozen=True)
class Head:
    """The name of a file and its first bytes, which suffice to recognise the file's format.

    * ``name`` is the file's name without folder and without endings such as ``.gz``.
    * ``data`` is the first 64 KiB of the content.
    """

    name: str
    data: bytes


def begins(pattern: bytes) -> Callable[[Head], bool]:
    """Return a function that tells whether a file's first bytes match a regular expression."""
    beginning = regex(pattern)
    return lambda head: beginning.match(head.data) is not None


class Source(Protocol):
    """A file that is being read, as the readers of the formats see it."""

    @property
    def name(self) -> str: ...  # file name without folder and compression suffix

    def open(self) -> BinaryIO:
        """Open the decompressed content at its start."""
        ...

    def lines(self) -> Iterator[Line]:
        """Yield the file's lines, decoded as UTF-8.  Bad bytes are escaped.

        Lines are split only at line feeds (LF).  A carriage return (CR) before the line feed stays.
        """
        ...

    def local_path(self) -> str:
        """Return the path of a file on this machine that has the decompressed content. sqlite needs such a path."""
        ...

    def beside(self) -> Iterator[Source]:
        """Yield the other files in the same folder, sorted by name.

        The files in its subfolder ``capture_traces`` follow.
        """
        ...


def content(source: Source) -> bytes:
    """Return the whole content of a small file.

    The file is read in a loop, because one read of a pipe or an archive may return only a part.
    """
    with source.open() as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def parsed(data: bytes) -> Any:
    """Return the value that a JSON file contains.  Raises ValueError if it is not JSON or is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deeply") from error


def read_facts(source: Source, about: str, facts: Callable[[bytes], Sequence[Record]]) -> Iterator[Outcome]:
    """Read a small file whose whole content ``facts`` turns into facts.

    If ``facts`` raises ValueError, the whole file is one reject. ``about`` says what such a file holds, and begins the
    reason of the reject.
    """
    data = content(source)
    try:
        yield Outcome("fact", facts(data))
    except ValueError as error:
        yield Outcome("reject", [Reject(f"{about}: {error}", 0, len(data))])


@dataclass(frozen=True)
class Origin:
    """The tool that measured the times in a file, such as a benchmark or a tuner.

    * ``name``: the tool's name in the stored measurements.
    * ``evidence``: True if each time belongs to a named kernel of a library, so that the library's own choice can be
      compared with it.  It is False for kernel times in traces, for choices without a time, and for estimates.
    * ``winners``: True if the tool is a tuner that writes only the winner of each search.  Then a single row already
      states the best time.  For other tools, a best time is known only if at least two kernels were timed.
    """

    name: str
    evidence: bool
    winners: bool = False


@dataclass(frozen=True)
class Described:
    """The description of a format: for ``ingest``, for readers of the code, and for the tables of docs/formats.md.

    * ``about``: a short description.
    * ``origins``: the tools that measured the times in such files.
    * ``job_log``: True if the facts in such a file describe the job that wrote it, as in a trace.  Tables and override
      files (a user's forced choices) are copied between machines, so their facts do not describe the job.  Therefore
      False is the default for whole files.  The finder ``stale-override`` never compares such a file with the job's
      facts.
    * ``asked_late``: the reason why other formats are tried first.  Formats with a reason are tried last.
    * ``seen``: the versions whose files were read.
    * ``example``: a line of the format.
    * ``gives``: the records that it makes.
    * ``how``: how to produce such a file.  If it is empty, the text of the page explains it.
    * ``since``: the first version that writes it.
    * ``order``: what the order of the lines (in a table, of the rows) means.  If it is empty, the order means nothing.
      A test over all formats checks this.
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
    """A log format in which each line is one record.

    ``read`` gets each *distinct* line once, and its result is counted as often as the line occurs.

    * ``markers``: byte strings.  A line is of this format if and only if it contains at least one of them.
    * ``start``: a regular expression (bytes) that matches the beginning of a record.  It is used to separate records
      that ended up on one line.
    * ``prefixed``: True if records begin with ``[date time][LIB][n]``.  ``ingest`` removes the time and the third
      bracket, so ``read`` gets ``[LIB][Layer][function] body``.  Addresses may be masked (``0x@``).  NULL stays as
      printed.
    * ``process``: a function that returns the process that a line without such a prefix names, or None.
    """

    markers: tuple[bytes, ...]
    start: bytes
    read: Callable[[str], Outcome]
    prefixed: bool = False
    process: Callable[[str], int | None] | None = None


class BlockReader(Protocol):
    """Reads a file of one format line by line, and finds its blocks: groups of lines that belong together."""

    @property
    def awake(self) -> bool:
        """True if the log is within a block of lines, so that this reader of blocks must see the next line too.

        Outside a block, this reader sees only lines that contain one of its format's marker words.
        """
        ...

    def take(self, line: Line) -> Outcome | None:
        """Read the next line of the log.

        Returns an ``Outcome``: the kind of the line, for example "measurement", and the records that were read from it.
        Returns None if the line is not of this format.
        """
        ...

    def close(self) -> Iterable[Record]:
        """Tell the reader that the log has ended.  Return the records that are still incomplete.

        For example, the last line of a table in the log may be missing.  Then a ``Message`` says so.
        """
        ...


@dataclass(frozen=True)
class BlockFormat(Described):
    """A log format whose lines must be read in order, because a line can only be understood with earlier lines.

    * ``markers``: texts of lines that may begin a block.
    * ``begin``: makes a reader for the lines.
    * ``order``: explains what the order of the lines means.
    """

    markers: tuple[bytes, ...]
    begin: Callable[[], BlockReader]


@dataclass(frozen=True)
class FileFormat(Described):
    """A format that is read as a whole file and recognised by the file's beginning.

    * ``read`` tells for every line or part of the file how it is counted.
    * ``named`` is True if the file's name is part of its content, as for MIOpen's databases.
    """

    recognise: Callable[[Head], bool]
    read: Callable[[Source], Iterator[Outcome]]
    job_log: bool = field(default=False, kw_only=True)
    named: bool = field(default=False, kw_only=True)


TRACE_ID = "trace_id"
"""Name of the fact that identifies a trace, whatever the layout of its file."""

Format: TypeAlias = LineFormat | BlockFormat | FileFormat


def stated_of(formats: Iterable[Format]) -> dict[str, Any]:
    """Summarise some file formats in a dictionary, which is saved together with the data that was read.

    * ``evidence`` lists the tools that time named kernels of a library, so that other kernels can be compared with
      them.
    * ``winners`` lists the tools that write only the fastest kernel of each search.
    * ``job_log`` is True if one of the formats is the log of a user's job.

    The names of the tools are sorted.
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
    """A file to write, and the shell lines that make a library read it.

    * ``use``: the shell lines for the user to paste.  They contain no text of a file, only the placeholders below.  The
      property ``lines`` replaces these by quoted names.
    * ``path``: the place of the file once it is written.  ``lines`` then names this path.
    * ``applied``: True if the file's ``apply.sh`` does everything that ``use`` describes.
    * ``shared``: True if the file is made to be ingested.  Other files that logparse wrote are skipped by ``ingest``.

    | placeholder | means |
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
        """The shell lines that the user must run so that a library uses the kernels listed in this file.

        If the file was already written, the lines contain its path. Before that they contain the placeholders
        ``{folder}`` and ``{path}``.
        """
        if self.path is None:
            return self.lines_at(Shell("{folder}"), Shell("{path}"))
        path = self.path.absolute()
        return self.lines_at(shell_word(path.parent), shell_word(path))

    @property
    def settings(self) -> list[Shell]:
        """The ``export`` and ``unset`` lines after which a library uses the kernels listed in this file."""
        return settings(self.lines)

    def lines_at(self, folder: Shell, path: Shell) -> list[Shell]:
        """Return the shell lines that make a library read the file, if it is at ``path`` in ``folder``."""
        names = {"name": shell_comment(self.name), "generic": shell_word(_DEVICE.sub("", self.name))}
        values = {"folder": folder, "path": path, **names}
        return [fill_template(line, values, "{}") for line in lines_of(self.use) if line]


def settings(lines: Iterable[Shell]) -> list[Shell]:
    """Return only those lines of a shell script that change the environment (``export`` and ``unset``)."""
    return [line for line in lines if _SETTING.match(line)]


_DEVICE = re.compile(r"\d+(?=\.[^.]*\Z)")
_SETTING = re.compile(r"\s*(?:export|unset)\s")


@dataclass(frozen=True)
class Writer:
    """Writes a file with which a library uses certain kernels instead of its own choice.

    * ``key``: a function that returns the key by which the library looks up a matrix product or convolution in the
      file. None means that the library has no such key.
    * ``write``: a function that returns the files.  It raises EmissionError if a fact or field is unknown.  The error
      names it and says what would supply it.
    * ``file`` and ``read_when``: Markdown for ``docs/formats.md``.  They say which file is written and when the library
      reads it.
    """

    name: str
    about: str
    accepts: Callable[[Override], bool]
    key: Callable[[Problem, Mapping[str, str]], str | None]
    write: Callable[[Sequence[Override], Mapping[str, str]], Sequence[Emission]]
    file: str = ""
    read_when: str = ""


def one_per_key(overrides: Iterable[Override], key_of: Callable[[Override], str]) -> dict[str, Override]:
    """Keep only the fastest override for each key. An override is a kernel to use instead of the library's choice.

    Raises EmissionError if two overrides have the same key but different kernels, and one of them has no time.
    """
    out: dict[str, Override] = {}
    for new in overrides:
        key = key_of(new)
        old = out.setdefault(key, new)
        if old.time_us is not None and new.time_us is not None:
            out[key] = min(old, new, key=lambda x: (x.time_us or 0.0, x.solution.text))
        elif old.solution != new.solution:
            raise EmissionError(
                f"{old.solution.text} and {new.solution.text} are both given for {key}, but the faster one is unknown, "
                "because not both have a time; measure both"
            )
        elif old.time_us is None:
            out[key] = new
    return out


def cells_of(line: str) -> list[str]:
    """Split a line of a comma-separated table into its cells.  Quoted cells lose their quotes."""
    if line and '"' not in line and "\r" not in line:
        return line.split(",")  # gives the result of csv in a fifth of the time
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # A cell is longer than csv allows.  Before Python 3.11, csv also fails at a NUL.
        return line.split(",")
