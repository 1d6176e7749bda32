"""Check MIOpen's find-db (its database of the fastest solvers): does MIOpen use the file, and what is wrong in it?

A row here is one solver in a line of the file (see ``find_db_items``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import Merging, OverrideFormat, bytes_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Row
from logparse.libraries.kinds.reading import remarks as row_remarks
from logparse.libraries.miopen import db_names, find_db
from logparse.libraries.miopen import records as miopen_records
from logparse.libraries.miopen.db_names import advise_file_name, odd_name, other_machine
from logparse.libraries.miopen.find_db_file import FindDbFile, FindDbReading
from logparse.libraries.miopen.find_db_items import REFIND, RULES, items
from logparse.libraries.miopen.problem_key import is_key, problem_from_key
from logparse.libraries.miopen.records import line_notes, problem_or_none
from logparse.libraries.miopen.solvers import MOST_ELEMENTS, explain_overflow
from logparse.target import Facts

_MOST = 10


def _overwritten(rows: Iterable[Row]) -> Iterator[Note]:
    """Warn about each line of MIOpen's solver database that MIOpen will overwrite.

    MIOpen does so if it can use no solver of the line.
    """
    lost: dict[int, bool] = {}
    for row in rows:
        # A solver that logparse does not know may exist in the target machine's MIOpen, so it is taken as usable.
        drops = any(breach.note.rule == "workspace" for breach in row.breaches)
        lost[row.line] = lost.get(row.line, True) and drops and not row.dead
    message = "MIOpen can use no solver of the record, so MIOpen searches again and overwrites the record"
    for line in (line for line, all_lost in lost.items() if all_lost):
        yield warn_of_overwriting(line, message)


def warn_of_overwriting(line: int, message: str) -> Note:
    """Return the warning that MIOpen will overwrite a record of its database. ``message`` is the reason."""
    remedy = "add to the record a solver that MIOpen on the target machine has"
    return Note(line, "warning", "overwritten", message, remedy)


def _overflows(data: bytes) -> Iterator[Note]:
    """Yield a note for each solver that may give wrong results, because a tensor is too large for 32-bit indices."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        key, _, payload = line.partition(b"=")
        if not _is_large(key):
            continue
        problem = problem_or_none(problem_from_key, key.decode("latin-1"))
        for item in items(key.decode("latin-1"), payload.decode("latin-1"), problem) if problem else ():
            why = explain_overflow(item.solver, item.problem) if item.problem is not None else None
            if why is not None:
                yield Note(
                    number,
                    "warning",
                    "int-overflow",
                    why,
                    ("remove this solver from the record, and let MIOpen on the target machine search again"),
                )


def _is_large(key: bytes) -> bool:
    """Return True if a convolution may have a tensor that is too large for 32-bit indices.

    ``key`` is its key in MIOpen's solver database.
    """
    # This function runs for every line of a file, so it does no more than split the key and multiply its sizes.
    parts = key.split(b"-")
    axes = 2 if len(parts) > 3 and b"x" in parts[3] else 3
    try:
        sizes = [int(x) for x in (*parts[: axes + 1], *parts[axes + 2 : 2 * axes + 4])]
    except ValueError:
        return False
    first, second, n = sizes[: axes + 1], sizes[axes + 1 : 2 * axes + 2], sizes[2 * axes + 2 :]
    return bool(n) and max(math.prod(first), math.prod(second)) * n[0] > MOST_ELEMENTS


def _convolutions(name: str, data: bytes) -> bytes:
    """Return the content of a database without the records of fused operations, whose keys have another form.

    Each removed record leaves an empty line, so that the line numbers of the other records do not change.
    """
    if not db_names.of_fusions(name):
        return data
    return b"\n".join(x if is_key(x.partition(b"=")[0].decode("latin-1")) else b"" for x in data.split(b"\n"))


def _refusals(name: str, target: Facts, *, holds: bool) -> Iterator[Note]:
    """Yield the reasons why MIOpen would read no convolutions from a find-db (solver database) with this file name.

    ``holds`` is True if the file contains convolutions.
    """
    match = db_names.FILE_NAME.fullmatch(name)
    remedy = advise_file_name(
        target, "ufdb", "give the file the name that a MIOpen log of level 5 states in its line 'File is unreadable'"
    )
    if match is None or match["kind"] not in ("ufdb", "fdb"):
        message = f"MIOpen does not look for a find-db named {name}"
        yield Note(None, "error", "file-name", message, remedy)
        return
    if match["kind"] == "ufdb" and not match["version"]:
        message = f"{name} has no version, but MIOpen looks for <device>.HIP.<version>_<build>.ufdb.txt"
        yield Note(None, "error", "file-name", message, remedy)
    elif match["kind"] == "fdb" and match["version"]:
        message = f"{name} has a version, but the name of a system find-db has none"
        yield Note(None, "error", "file-name", message, remedy)
    elif match["kind"] == "ufdb" and (why := odd_name(name, match)):
        yield Note(None, "error", "file-name", f"MIOpen does not look for a file of this name: {why}", remedy)
    elif match["fusion"] and holds:
        message = "MIOpen reads this file only for fusion plans; for convolutions it reads the file without .fusion"
        yield Note(None, "error", "fusion", message, f"name the file {name.replace('.fusion', '')}")
    yield from other_machine({x.name: x.value for x in db_names.facts_of_name(name)}, target, remedy)


def read(name: str, data: bytes, target: Facts) -> Reading[FindDbFile]:
    """Read a find-db (MIOpen's solver database) as MIOpen on the target machine would, and return the usable solvers.

    If nothing is known about the target machine, every valid file name is accepted.
    """
    own = {fact.name: fact.value for fact in db_names.facts_of_name(name)}
    # A byte order mark is read as part of the first key, because MIOpen does so.
    records = _convolutions(name, data)
    refusals = tuple(_refusals(name, target, holds=bool(records.strip())))
    certain, taken, why = db_names.judge_file_use(target, refusals)
    file = FindDbFile(records, taken, why)
    return FindDbReading(rows=file, refusals=refusals, certain=certain, facts=own, target=target, parsed=file)


def remarks(name: str, data: bytes, reading: Reading[FindDbFile]) -> Iterator[Note]:
    """Yield remarks about a find-db (MIOpen's solver database) and its entries.

    They do not include the reasons why MIOpen refuses the whole file.
    """
    yield from line_notes(reading.parsed.keyless)
    for number in reading.parsed.longer_than(_MOST):
        message = (
            f"the record has more than {_MOST} solvers: PyTorch's immediate mode aborts if more than {_MOST} of them "
            "are usable"
        )
        yield Note(number, "warning", "too-many", message, "keep only the fastest solvers of the record")
    if db_names.of_fusions(name) and not _convolutions(name, data).strip() and data.strip():
        message = (
            "the file has records of fusion plans, which MIOpen reads beside the records of convolutions; lint does "
            "not check records of fusion plans"
        )
        yield Note(None, "info", "fusion", message, "")
    if not data.replace("\ufeff".encode(), b"").strip(b"\r\n "):
        yield Note(None, "error", "empty", "the file has no records", REFIND)
    if reading.facts.get("miopen_version") == "3.3.0":
        remedy = "run the job with a later version of MIOpen and MIOPEN_FIND_MODE=1, so that MIOpen searches again"
        yield Note(None, "warning", "biased-times", find_db.BIASED, remedy)
    for item, _, lines in reading.parsed.judged:
        for note in row_remarks(item.line, item, reading.target, RULES):
            yield replace(note, others=lines[1:])
    yield from _overflows(data)
    if reading.accepted is not False:
        yield from _overwritten(row for judged in reading.parsed.odd.values() for _, row in judged)


def _rank(row: Row | Offer) -> float:
    """Return the number by which solvers are sorted, which is the time.

    Without a time the result is infinite, so that the solver comes last.
    """
    return math.inf if row.time_us is None else row.time_us


def _merged(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> Sequence[Emission]:
    """Write a merged solver database. The fastest solver for a convolution comes first in its line."""
    records = (sorted(record, key=lambda row: (_rank(row), row.text)) for _, record in groupby(rows, lambda x: x.key))
    lines = (f"{record[0].key}={';'.join(row.text for row in record)}" for record in records)
    return [Emission(name, bytes_of(lines), find_db.USE)]


OVERRIDE_FORMAT = OverrideFormat(
    name=find_db.FORMAT.name,
    order="if several records have the same key, MIOpen uses the first record",
    kinds=frozenset({"conv"}),
    recognise=find_db.recognise,
    reader=read,
    remarks=remarks,
    key=find_db.key,
    compared=("miopen_version", "miopen_tweak"),
    probe_order=lambda rows, facts: sorted(rows, key=_rank),
    signs=(
        ("Bad algorithm", "MIOpen threw an error when it read an item of the find-db"),
        (
            "Not enough workspace has been provided",
            (
                "MIOpen could not run a solver of the find-db, because the solver needs a larger workspace than the "
                "call gave"
            ),
        ),
    ),
    writer=find_db.WRITER,
    lines=miopen_records.lines,
    cut=miopen_records.remove_entries,
    find_copy_obstacle=miopen_records.find_copy_obstacle,
    merging=Merging(header=miopen_records.header("ufdb"), write=_merged, slot=miopen_records.slot, several=True),
)
