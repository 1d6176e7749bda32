"""The rules of MIOpen's perf-db (its database of tuned parameters): what MIOpen uses, and what is wrong in a file.

A perf-db chooses no solver.  Its rows hold the parameters with which a solver of the find-db (the database of the
fastest solvers) runs.  MIOpen finds a user's perf-db, like a find-db, only by its file name.  A row here is one solver
in a record.  Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/ramdb.cpp``, ``src/conv/problem_description.cpp``
(``VisitAll``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from logparse.errors import InputError
from logparse.libraries.kinds.override_format import Merging, OverrideFormat
from logparse.libraries.kinds.reading import Note, Reading, judge, text_of
from logparse.libraries.kinds.reading import remarks as row_remarks
from logparse.libraries.miopen import db_names, perf_db
from logparse.libraries.miopen import records as miopen_records
from logparse.libraries.miopen.db_names import FILE_NAME, advise_file_name, odd_name, other_machine
from logparse.libraries.miopen.perf_db_items import RETUNE, RULES, problem_from_perf_key, row_of, split
from logparse.libraries.miopen.records import Item, items, line_notes
from logparse.target import Facts

_NAME = re.compile(r"gfx\w+?\.db\.txt")


def _refusals(name: str, target: Facts) -> Iterator[Note]:
    """Yield the reasons why MIOpen never opens a perf-db (database of tuned parameters) with this file name.

    A file of batch normalisations is not judged, so nothing is yielded.
    """
    if perf_db.of_batch_norms(name):
        return
    match = FILE_NAME.fullmatch(name)
    remedy = advise_file_name(
        target,
        "udb",
        "rename the file: use the name of the .ufdb.txt file in its folder, but write .udb.txt for .ufdb.txt",
    )
    user = match is not None and match["kind"] == "udb" and match["version"]
    if not user and not _NAME.fullmatch(name):
        message = f"MIOpen does not look for a perf-db named {name}"
        yield Note(None, "error", "file-name", message, remedy)
        return
    if match is not None and name.endswith(".udb.txt") and (why := odd_name(name, match)):
        yield Note(None, "error", "file-name", f"MIOpen does not look for a file of this name: {why}", remedy)
    own = {fact.name: fact.value for fact in perf_db.facts_of_file(name)}
    yield from other_machine(own, target, remedy)
    if user and re.match(r"[012]\.|3\.[01]\.", own.get("miopen_version", "")):
        message = (
            f"MIOpen {own['miopen_version']} stores its perf-db in sqlite and does not read text (it does from 3.2 on)"
        )
        yield Note(None, "error", "file-name", message, RETUNE)


def read(name: str, data: bytes, target: Facts) -> Reading[Sequence[Item]]:
    """Return the entries that MIOpen on the target machine takes from a perf-db (its database of tuned parameters).

    If nothing is known about the target machine, every valid file name is accepted.
    """
    own = {fact.name: fact.value for fact in perf_db.facts_of_file(name)}
    # A file about batch normalisations gives no entries.
    found = tuple(items(_text(name, data), problem_from_perf_key, split))
    refusals = tuple(_refusals(name, target))
    certain, taken, why = db_names.judge_file_use(target, refusals)
    rows = tuple(row_of(item, *judge(item.line, item, target, RULES, taken, why)) for item in found)
    return Reading(rows=rows, refusals=refusals, certain=certain, facts=own, target=target, parsed=found)


def _text(name: str, data: bytes) -> str:
    """Return the text of a perf-db (database of tuned parameters) that MIOpen reads for convolutions.

    A byte order mark is part of the first key, as in MIOpen.  A file of batch normalisations gives an empty text.
    """
    text, bom = text_of(b"" if perf_db.of_batch_norms(name) else data)
    return "\ufeff" * bom + text


def remarks(name: str, data: bytes, reading: Reading[Sequence[Item]]) -> Iterator[Note]:
    """Yield notes about a perf-db (MIOpen's database of tuned parameters) and its entries.

    The reasons why MIOpen refuses the whole file are not among them.
    """
    text = _text(name, data)
    split = enumerate((line.partition("=") for line in text.split("\n")), start=1)
    yield from line_notes(n for n, (key, equals, _) in split if (key.strip() or equals) and not (key and equals))
    if perf_db.of_batch_norms(name):
        message = (
            "the file is the perf-db of batch normalisations, which MIOpen reads beside the perf-db of "
            "convolutions; lint does not check the file's rows"
        )
        yield Note(None, "info", "batch-norm", message, "")
    elif not text.strip("\ufeff\r\n "):
        yield Note(None, "error", "empty", "the file has no records", RETUNE)
    for item in reading.parsed:
        yield from row_remarks(item.line, item, reading.target, RULES)


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    if perf_db.of_batch_norms(name):
        raise InputError(
            "the file has parameters of batch normalisations, which cannot be merged; copy one of the files unchanged"
        )
    return miopen_records.header("udb")(name, data)


OVERRIDE_FORMAT = OverrideFormat(
    name=perf_db.FORMAT.name,
    order="if several records have the same key, MIOpen uses the first record",
    kinds=frozenset({"conv"}),
    recognise=perf_db.recognise,
    reader=read,
    remarks=remarks,
    key=perf_db.key,
    compared=("miopen_version", "miopen_tweak"),
    selects=False,
    writer=perf_db.WRITER,
    lines=miopen_records.lines,
    cut=miopen_records.remove_entries,
    find_copy_obstacle=miopen_records.find_copy_obstacle,
    merging=Merging(header=_header, write=miopen_records.write, slot=miopen_records.slot, in_order=True),
)
