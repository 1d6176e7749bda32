"""Check an override file without running anything: will the library read the file and use its rows for calls?

An override file lists kernels that a library should use instead of its own choice. The result is given for each row and
for one machine. With the logs of a job (``against``), two more things are checked: whether different calls would use
the same row, and whether the row's kernel is slower than the library's default for any of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from analyzers.evidence.joins import against_default, facts_of, launches_graphs
from analyzers.evidence.miopen_tuning import of_build
from analyzers.evidence.tables import Tables
from logparse.capture import applied
from logparse.errors import InputError
from logparse.groups import in_groups
from logparse.ingest.input_file import HEAD_BYTES, InputFile
from logparse.libraries import FORMATS
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.flashinfer import autotuner
from logparse.libraries.kinds.format import FileFormat, Head
from logparse.libraries.kinds.override_format import OverrideFile, OverrideFormat
from logparse.libraries.kinds.reading import STAGES, Note, Reading, Row
from logparse.libraries.miopen.find_db_rules import warn_of_overwriting
from logparse.libraries.moe import config as moe_config
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.libraries.tunableop.validators import PREFIX as VALIDATOR
from logparse.links import find_link_level
from logparse.model import Problem, problem_from_text
from logparse.output import CHECK_FAILED, Answer, Rows
from logparse.target import Facts, device_of_file, machine_of_files, same_value
from logparse.text import pluralize

CHECKED = ", ".join(format.name for format in OVERRIDE_FORMATS)

_UNCHECKED: Mapping[str, str] = {
    aiter.FORMAT.name: (
        "a table of aiter that lint cannot check, because lint checks only the tables of tuned kernels"
    ),
    autotuner.FORMAT.name: (
        "FlashInfer uses the file only if all metadata in the file (versions, GPU) equal FlashInfer's own values; "
        "lint does not check the tactics (the kernels that the file names)"
    ),
}
"""Formats of files that a library reads, but that lint cannot check, each with the reason."""
_BOM = b"\xef\xbb\xbf"
_SHOWN, _LINES = 4, 8
"""The largest number of operators, and of line numbers, that one message names."""


class NotAnOverrideError(InputError):
    """Raised if a file is not a list of kernels that some library reads (an override file). ``why`` has the reason.

    It is also raised if it is unknown how the library reads such a file.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}; lint checks: {CHECKED} (if the file is one of these, name it with --as)")
        self.why = why


class Unread(NamedTuple):
    """One of several files that could not be checked, and the reason."""

    path: str
    why: str


def lint(
    path: str, target: Facts | None = None, against: Tables | None = None, format: str | None = None
) -> OverrideFile:
    """Check an override file (the user's list of kernels for a library): will the library use the entries?

    * ``target``: facts about the machine.
    * ``against``: a job's data.

    Raises InputError for a missing file or an unknown format.
    """
    name, data = content_of(path)
    given, run = target or {}, facts_of_run(against) if against is not None else {}
    # A fact that ``target`` lacks is taken from the job's files, unless they contradict each other.
    judged = inspect(name, data, {**_left_open(run, given), **given}, format)
    return judged if against is None else with_collisions(judged, against)


def _left_open(run: Facts, given: Facts) -> dict[str, str]:
    """Return the facts about a job's machine that may be added to the facts that the user stated (``given``)."""
    # PyTorch compares a set of facts (its validators) before it uses a file, and must not get a mixture of two
    # machines. So the job's validators are left out if the user stated a validator, or a value that differs from the
    # job's.
    other = any(x.startswith(VALIDATOR) or not same_value(x, value, run.get(x, value)) for x, value in given.items())
    return {x: value for x, value in run.items() if not (other and x.startswith(VALIDATOR))}


def files_in(paths: Iterable[str]) -> list[str]:
    """Return the paths without duplicates. A folder is replaced by the override files of its ``apply.sh``.

    These are the files that a job reads under ``logparse run --with FOLDER``. Raises InputError if a folder has no
    ``apply.sh``, or one that lists no files.
    """
    out: list[str] = []
    for path in paths:
        found = [str(x) for x in applied.files_of(Path(path))] if os.path.isdir(path) else [path]
        if not found:
            raise InputError(
                f"{path}: the folder has no apply.sh that lists override files; name the files, or the folder that "
                "`logparse recommend` wrote"
            )
        out += found
    return list(dict.fromkeys(out))


def lint_files(
    paths: Sequence[str],
    target: Facts | None = None,
    against: Tables | None = None,
    format: str | None = None,
    begins: Callable[[str], None] = lambda path: None,
) -> tuple[list[OverrideFile], list[Unread]]:
    """Check several override files (lists of kernels): will the libraries of one machine read and use them?

    * ``against``: a job that ran on the machine.
    * ``begins``: called with each path. A folder stands for the files of its ``apply.sh`` (``files_in``).

    Raises InputError if a single file is not an override file.
    """
    if format is not None:
        format_of("", b"", format)
    judged: list[tuple[str, OverrideFile]] = []
    unread, paths = [], files_in(paths)
    for path in paths:
        begins(path)
        try:
            judged.append((path, lint(path, target, against, format)))
        except InputError as error:
            if len(paths) == 1:
                raise
            why = error.why if isinstance(error, NotAnOverrideError) else str(error).removeprefix(f"{path}: ")
            # Files that are no override files are the second list of the result.
            unread.append(Unread(path, why))
    names = Counter(file.name for _, file in judged)
    return [replace(file, shown=path) if names[file.name] > 1 else file for path, file in judged], unread


def content_of(path: str) -> tuple[str, bytes]:
    """Return a file's name (without folder and compression suffix) and its bytes.

    Raises InputError if the file cannot be read.
    """
    file = InputFile(path, as_is=True)
    try:
        with file.open() as stream:
            return file.name, stream.read()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def inspect(name: str, data: bytes, target: Facts, format: str | None = None) -> OverrideFile:
    """Read an override file (the user's list of kernels) in the same way as the library that will use it.

    Raises InputError if the file has no known format.
    """
    return format_of(name, data, format).inspect(name, data, target)


def format_of(name: str, data: bytes, format: str | None = None) -> OverrideFormat:
    """Return the format of an override file: the one that the user named, or the one that the content shows.

    Raises InputError if there is no such format.
    """
    if format is not None:
        found = next((x for x in OVERRIDE_FORMATS if x.name == format), None)
        if found is None:
            raise InputError(f"--as {format}: must be one of {CHECKED}")
        return found
    head = Head(name, data.removeprefix(_BOM)[:HEAD_BYTES])
    found = next((x for x in OVERRIDE_FORMATS if x.recognise(head)), None)
    if found is None:
        raise NotAnOverrideError(name, _what_else(head))
    return found


def _what_else(head: Head) -> str:
    """Explain why ``lint`` cannot check a file, for example "the file is empty"."""
    if not head.data.strip():
        return "the file is empty"
    if moe_config.recognise(head):
        return (
            "the file holds settings of FlyDSL kernels, which lint cannot check, because it is not known how vLLM "
            "reads such settings"
        )
    other = next((x for x in FORMATS if isinstance(x, FileFormat) and x.recognise(head)), None)
    if other is None:
        return "the file is not an override file that logparse knows"
    if other.name in _UNCHECKED:
        return f"the file is {other.name} ({other.about}): {_UNCHECKED[other.name]}"
    return f"the file is {other.name} ({other.about}), which no library reads as overrides"


def by_name(format: str) -> OverrideFormat:
    return next(x for x in OVERRIDE_FORMATS if x.name == format)


def facts_of_run(tables: Tables) -> dict[str, str]:
    """Return the facts about a job's machine on which all of its files agree.

    PyTorch compares a set of facts, its validators, before it uses a file. They are included only if all files that
    state them state the same set.
    """
    facts = tables.facts[tables.facts["run"] == tables.run]
    return machine_of_files(zip(*(facts[x] for x in ("source_id", "name", "value")), strict=True))


# ------------------------------------------------------------------------------------------- calls that share a row


def same_calls(texts: Iterable[str]) -> dict[str, list[str]]:
    """Group the texts of calls that may describe the same call. Texts in different groups are different calls.

    A group's key is its text with the fewest unknown values.
    """
    out: dict[str, list[str]] = {}
    by_shape: dict[str | None, list[Problem]] = {}
    for text in sorted(texts, key=lambda x: (x.count("?"), x)):
        problem = problem_from_text(text)
        # Two logs of one job may describe a call in more or less detail.
        near = by_shape.setdefault(problem.shape, [])
        mine = next((known.text for known in near if find_link_level(problem, known)), None)
        if mine is None:
            near.append(problem)
        out.setdefault(mine or text, []).append(text)
    return out


def with_collisions(file: OverrideFile, tables: Tables) -> OverrideFile:
    """Add notes to rows of an override file that do not suit the calls of a job.

    A note is added in any of four cases:

    * One row applies to several different calls, or its kernel is slower than the default for one of them.
    * A row states a smaller workspace than was measured.
    * Nothing shows that the solvers in a row of a MIOpen file exist in the build that will read it.
    * The job launches CUDA graphs, and the row's library allocates memory at the first call of a shape.
    """
    format = by_name(file.format)
    work = tables.workload[tables.workload["kind"].isin(format.kinds)]["problem"].drop_duplicates()
    members: dict[str, list[str]] = {}
    for text in sorted(work):
        key = format.key(problem_from_text(text), file.reading.key_facts)
        if key is not None:  # The log leaves no field of the key open.
            members.setdefault(key, []).append(text)
    ratios, reading = against_default(tables.measurements, tables.facts), file.reading
    stated = tables.measurements.dropna(subset="workspace_bytes")
    needed: dict[Any, int] = stated.groupby(["problem", "solution"])["workspace_bytes"].max().to_dict()
    notes = []
    for key, texts in members.items():
        same = same_calls(texts)
        for row in reading.by_key.get(key, ()):
            if row.live:
                notes += [*_collision(row, same, ratios), *_too_small(row, texts, needed)]
    if format.convolutions and format.selects:
        notes += _not_in_the_build(file, tables)
    if format.graph_unsafe and launches_graphs(tables):
        notes += _in_graphs(reading, format.graph_unsafe)
    return replace(file, noted=(*file.noted, *notes))


def _in_graphs(reading: Reading[Any], unsafe: Collection[str]) -> Iterator[Note]:
    """Yield a warning if kernels that the user selected cannot be used in a job that captures CUDA or HIP graphs.

    ``unsafe``: libraries that allocate memory at the first call of a size, which fails during a capture.
    """
    lines = [row.line for row in reading.rows if row.live and row.solution and row.solution.library in unsafe]
    if lines:
        message = (
            "the run launches graphs, and this library allocates memory at the first call of a size, so that such a "
            "call fails while a graph is captured"
        )
        others = " or ".join(sorted(unsafe))
        remedy = f"tune without kernels of {others}, or let the job call each size once before it captures a graph"
        yield Note(lines[0], "warning", "graphs", message, remedy, lines[1:])


def _collision(row: Row, members: Mapping[str, Sequence[str]], ratios: Mapping[tuple[str, str], float]) -> list[Note]:
    """Return warnings about a row of the override file that applies to calls that it does not suit.

    ``ratios``: maps (operator, kernel) to (time of the kernel) / (time of the library's default).
    """
    name = row.solution.text if row.solution else ""
    losing = [text for text, same in members.items() if any(ratios.get((x, name), 0) > 1 for x in same)]
    out = []
    # The row's kernel is slower than the library's default for some calls.
    if losing:
        count = f"{len(losing)} of its {len(members)} problem(s)"
        message = f"the row's solution is slower than the default for {count}: {_names(losing)}"
        out.append(
            Note(
                row.line,
                "warning",
                "loses",
                message,
                "remove the row, or measure the row's solution again for each call that uses the row",
            )
        )
    # Several different calls use the row.
    if len(members) > 1:
        unmeasured = sum(not any((x, name) in ratios for x in same) for same in members.values())
        message = f"{len(members)} problems of the workload share this row: {_names(list(members))}"
        remedy = (
            (
                f"measure the row's kernel for each problem; {unmeasured} of the problems are not measured with this "
                "kernel"
            )
            if unmeasured
            else ""
        )
        out.append(Note(row.line, "warning" if unmeasured else "info", "collision", message, remedy))
    return out


def _too_small(row: Row, texts: Sequence[str], needed: Mapping[tuple[str, str], int]) -> Iterator[Note]:
    """Yield an error if an entry (``row``) of an override file states less workspace than its kernel needs.

    * ``texts``: the operators that would use the entry.
    * ``needed``: the measured workspace (bytes) for an operator and a kernel.
    """
    if row.solution is not None and row.workspace_bytes is not None:
        most = int(max(needed.get((text, row.solution.text), 0) for text in texts))
        if row.workspace_bytes < most:
            message = f"{row.solution.id} needs {most:,} bytes of workspace, but the row has {row.workspace_bytes:,}"
            remedy = "write the measured workspace size into the row, because the call fails with a smaller workspace"
            yield Note(row.line, "error", "workspace", message, remedy)


def _not_in_the_build(file: OverrideFile, tables: Tables) -> Iterator[Note]:
    """Yield warnings about rows whose kernels may be missing in the user's build of MIOpen.

    A kernel is known to exist if a log, a measurement, or a find-db (a file with search results) of that build names
    it.
    """
    named = tables.measurements if tables.solvers is None else tables.solvers
    known = set(of_build(named, facts_of(tables), file.reading.key_facts)["solution"])
    live = [(row, lines) for row, lines in file.reading.alike if row.live and row.solution is not None]
    served = {line for row, lines in live if row.solution and row.solution.text in known for line in lines}
    records: dict[int, list[str]] = {}
    for row, lines in live if known else ():
        for line in lines:
            if line not in served:
                records.setdefault(line, []).append(row.solution.id if row.solution else "")
    for line, names in records.items():
        message = (
            f"no file of this MIOpen build names {', '.join(names[:_SHOWN])}; if the build lacks these solvers, "
            "MIOpen searches again and overwrites the record"
        )
        yield warn_of_overwriting(line, message)


def _names(texts: Sequence[str]) -> str:
    fields = [problem_from_text(text).label for text in texts[:_SHOWN]]
    return "; ".join(dict.fromkeys(fields)) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


# ------------------------------------------------------------------------------------------------------------ answers


def answer(judged: Sequence[OverrideFile], unread: Sequence[Unread], rows: bool = False) -> Answer:
    """Return the output of the command ``lint`` about each file, or about each row of the files if ``rows`` is True."""
    code = CHECK_FAILED if not all(file.ok for file in judged) else int(bool(unread))
    errors = unread_lines(unread)
    if rows:
        table = [row for file in judged for row in row_rows(file)]
        return Answer([table], table, "lint -v", errors=errors, code=code)
    text = [line for file in judged for line in lines(file)] + share_lines(judged)
    return Answer(text, lambda: note_rows(judged, unread), "lint", errors=errors, code=code)


def share_lines(judged: Sequence[OverrideFile]) -> list[str]:
    """Return lines for the user: how many entries of several override files (lists of kernels) this GPU can use."""
    families: dict[str, list[int]] = {}
    for file in judged:
        # Files that a library reads as one table are counted together.
        counts = families.setdefault(by_name(file.format).family(file.name) or file.format, [0, 0, 0])
        live = sum(len(lines) for row, lines in file.reading.alike if row.live)
        counts[:] = [counts[0] + live, counts[1] + len(file.rows), counts[2] + 1]
    # There are no lines for a single file, or if the GPU is unknown.
    device = device_of_file(judged[0].target) if len(judged) > 1 else ""
    shares = (
        f"  {name}: {live:,} of {total:,} rows ({live / total:.0%}) in {pluralize(files, 'file')}"
        for name, (live, total, files) in families.items()
        if total
    )
    return [f"what can serve {device}:", *shares] if device else []


def lines(file: OverrideFile) -> list[str]:
    """Return what ``lint`` prints about an override file (list of kernels): can the library use it, and what is wrong?

    Each kind of fault has one line, which names the first places in the file where it occurs.
    """
    accepted = {
        True: "accepted",
        False: "not accepted",
        None: f"accepted if the target has {by_name(file.format).accepted_if}",
    }
    live = faulty = 0
    for row, at in file.reading.alike:
        live += len(at) * row.live
        faulty += len(at) * (row.live and bool(row.verdicts.fault))
    usable = f"{live:,} of {len(file.rows):,} rows are usable" + f", {faulty:,} of them with a fault" * bool(faulty)
    out = [f"{file.title}: {file.format}, {accepted[file.accepted]}; {usable}"]
    for (severity, rule, message, remedy), count, first in grouped(file.noted):
        shown = ", ".join(map(str, dict.fromkeys(first))) + (f" and {count - _LINES} more" * (count > _LINES))
        # A line of a find-db has several rows, but its number is shown once.
        where = f"line {shown}: " if first[0] else ""
        out.append(f"  {severity} [{rule}] {where}{message}" + (f" → {remedy}" if remedy else ""))
    return out


def grouped(noted: Sequence[Note]) -> Iterator[tuple[tuple[str, str, str, str], int, list[int]]]:
    """Group notes that differ only in their line number, so that a rule is printed once.

    Yields (severity, rule, message, remedy), the number of notes, and the first line numbers, in order of lines.
    """
    # Line 0 means the whole file.
    in_order = sorted(noted, key=lambda note: note.line or 0)
    groups = in_groups(in_order, lambda note: (note.severity, note.rule, note.message, note.remedy))
    for what, notes in groups.items():
        numbers = chain.from_iterable((note.line or 0, *note.others[:_LINES]) for note in notes)
        yield what, sum(1 + len(note.others) for note in notes), nsmallest(_LINES, numbers)


def unread_lines(unread: Sequence[Unread]) -> list[str]:
    """Return a line for each file that could not be checked, then a line about what lint can check.

    The last line lists the kinds of files that lint can check.
    """
    out = [f"error: {path}: {why}" for path, why in unread]
    return [*out, f"lint checks: {CHECKED} (if a file is one of these, name it with --as)"] if out else []


def note_rows(judged: Sequence[OverrideFile], unread: Sequence[Unread] = ()) -> Rows:
    """Return all remarks of ``lint`` as a table. A file that could not be checked has a row, too."""
    names = ("line", "severity", "rule", "message", "remedy")
    rows = [{"file": x.title, **{name: getattr(note, name) for name in names}} for x in judged for note in x.notes]
    return rows + [{"file": x.path, "severity": "error", "rule": "unread", "message": x.why} for x in unread]


def row_rows(file: OverrideFile) -> Rows:
    """Return a table that states for each entry of an override file (list of kernels) whether the library will use it.

    ``key`` is the text by which the library finds the entry.
    """
    return [
        {
            "file": file.title,
            "line": row.line,
            "key": row.key,
            "solution": row.solution.text if row.solution else None,
            **{name: getattr(row.verdicts, name) for name in (*STAGES, "why")},
        }
        for row in file.rows
    ]
