"""The text that tells the user which files were read: a row for each file, the runs, and files that gave nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from logparse.errors import LogparseError
from logparse.ingest.input_file import InputFile
from logparse.ingest.schedule import Ingested
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, Head, Unit
from logparse.libraries.own import foreign_files
from logparse.libraries.torch_profiler import profiler
from logparse.libraries.user_table import table as user_table
from logparse.output import Answer, Rows, with_total
from logparse.store import command_line
from logparse.text import common_start, short_path

_LOOKED_AT = 50  # maximum number of foreign files, beside known ones, whose heads are read again
_SHOWN, _FIRST = 8, 80  # maximum remarks of one kind; maximum characters of a first line
_TABLE_LINES, _ROWS_SEEN = 200, 20
"""In how many lines of an unknown file the start of a table is searched, and how many lines of it are looked at."""
_WHY_EMPTY: Mapping[str, Callable[[bytes], str]] = {profiler.FORMAT.name: profiler.why_empty}
"""For some formats, a function that says why a file gave nothing. It gets the file's first bytes."""
_SEARCHED = 4 << 20
"""Number of bytes at the start of a file that are searched for the reason why the file gave nothing."""
_UNITS: dict[str, Unit] = {"measured": "measurement", "messages": "message", "rejects": "reject", "foreign": "foreign"}


def answer(results: Sequence[Ingested], label: str | None = None, store: str | None = None) -> Answer:
    """Return the text that the user sees after files were read, and the exit code of the program.

    The text has a line for each file, and says why some files added nothing. ``label`` is the run (one execution of a
    job), and ``store`` the store's URL, if they are known. The exit code is 1 if a file failed, if no file has a known
    format, or if all files belong to other runs.
    """
    left_out = [r for r in results if r.state == "left out"]
    results = [r for r in results if r.state != "left out"]
    names = [shorten_input_path(r) for r in results]
    start = names[0][: common_start(names)] if names else ""
    folder = start[: start.rfind("/") + 1]  # the folder that holds all of several inputs
    rows = [
        {
            "file": shorten_input_path(r).removeprefix(folder),
            "format": r.format,
            "state": r.state,
            "lines": r.lines,
            "calls": r.calls,
            "problems": r.problems,
            **{name: r.units.get(unit, 0) for name, unit in _UNITS.items()},
        }
        for r in results
        if r.state != "failed"
    ]
    errors = [f"error: {r.error}" for r in results if r.state == "failed"]
    remarks = [f"{shorten_input_path(r)}: {r.remark}" for r in results if r.remark]
    elsewhere = [r for r in results if r.state == "unchanged" and label is not None and r.run != label]
    remarks += [
        f"{shorten_input_path(r)}: already in the store as part of run {r.run}, and not added to run {label}. To move "
        f"it there: `{command_line(store, 'forget', r.path)}`, then ingest it again"
        for r in elsewhere[:_SHOWN]
    ]
    known = any(r.recognised for r in results)
    unread = [] if known else [r for r in results if r.state != "failed"]
    remarks += [f"{shorten_input_path(r)}: {_why_nothing(r)}" for r in unread[:_SHOWN]]
    foreign = [r for r in results if known and r.format == "foreign" and r.lines][:_LOOKED_AT]
    remarks += [f"{shorten_input_path(r)}: {why}" for r in foreign if (why := foreign_files.advice(_head(r.path)))][
        :_SHOWN
    ]
    left = max(0, len(elsewhere) - _SHOWN) + max(0, len(unread) - _SHOWN)
    remarks += [f"and {left:,} more"] if left else []
    fine = (known and len(elsewhere) < len(results)) or all(r.is_empty_results for r in results)
    runs = sorted({r.run for r in results if r.run and (r.recognised or r.is_empty_results)})
    text: list[str | Rows] = [f"in {folder}"] if folder and rows else []
    text += [*([with_total(rows)] if rows else []), *([f"run: {', '.join(runs)}"] if runs else [])]
    remarks += [f"{shorten_input_path(r)}: {r.remark}" for r in left_out]
    return Answer(text, errors=[*errors, *remarks], code=int(bool(errors) or not fine))


def shorten_input_path(result: Ingested) -> str:
    """Return the path of an input file for the user: relative if the file is in the working folder."""
    return short_path(result.path)


def _why_nothing(result: Ingested) -> str:
    """Return the reason why a file that could be read added nothing to the store."""
    if result.is_empty_results:
        return (
            "the file is empty, because TunableOp wrote no result (TunableOp tuned nothing, or the worker was killed)"
        )
    if not result.lines:
        return "the file is empty"
    if result.format not in ("", "foreign"):
        why = _WHY_EMPTY.get(result.format)
        hint = f"; {why(_beginning(result.path))}" if why else ""
        return f"the file has format {result.format}, but holds no call, measurement or kernel{hint}"
    head = _head(result.path)
    if known := foreign_files.advice(head):
        return known
    if inside := _table_inside(head):
        return inside
    first = head.data.decode("utf-8", "backslashreplace").strip().partition("\n")[0]
    begins = f"; the file begins with {first[:_FIRST]!r}" if first else ""
    return f"no line has a known format (`logparse formats` lists them){begins}"


def _table_inside(head: Head) -> str | None:
    """Tell at which line a table begins, if text stands before it.  Returns None if no table is seen.

    Only the beginning of the file is searched.
    """
    # Lines of prose may look like the header of a user's own table, which has no fixed first line.
    tables = [x for x in FORMATS if isinstance(x, FileFormat) and x is not user_table.FORMAT]
    lines = head.data.splitlines(keepends=True)
    blanks = [len(line) - len(line.lstrip(b" \t")) for line in lines]
    for at in range(1, min(len(lines), _TABLE_LINES)):
        # The text that documentation indents is looked at without its indentation.
        rest = b"".join(lines[i][min(blanks[at], blanks[i]) :] for i in range(at, min(len(lines), at + _ROWS_SEEN)))
        kind = next((x.name for x in tables if lines[at].strip() and x.recognise(Head("", rest))), None)
        if kind is not None:
            return (
                f"a table of the format {kind} begins at line {at + 1}. A table must begin at the start of its file, "
                "so copy it into a file of its own, without the text around it"
            )
    return None


def _head(path: str) -> Head:
    """Return the name and first bytes of a file. Both are empty if the file can no longer be read."""
    with contextlib.suppress(LogparseError, OSError, EOFError):
        return InputFile(path).head()
    return Head("", b"")


def _beginning(path: str) -> bytes:
    """Return the first bytes of a file's decompressed content, or no bytes if the file can no longer be read."""
    with contextlib.suppress(LogparseError, OSError, EOFError), InputFile(path).open() as stream:
        return stream.read(_SEARCHED)
    return b""
