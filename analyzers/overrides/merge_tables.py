"""Tables of GEMM solutions merged: aiter's, rocBLAS's and hipBLASLt's.

Their rows are written as they stand.  aiter's tables have the device in their keys and tell no build, and two rows of
one key make its reader raise.  hipBLASLt compares the revision only; rocBLAS compares nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from analyzers.overrides import aiter, hipblaslt
from analyzers.overrides import rocblas as rules_rocblas
from analyzers.overrides.aiter_lookup import BF16, VARIABLES, Table, stem, table_of
from analyzers.overrides.merge_choice import Choice, Contents, Merged, choose, left_out, unusable
from analyzers.overrides.rules import OverrideFile, text_of
from logparse.errors import InputError
from logparse.formats import rocblas
from logparse.formats.format import Emission

_NO_TABLE = ("columns", "values", "empty")
"""Rules that say that pandas or aiter reads no table."""
_ONE_BUILD = "merge files of one build only"


# ------------------------------------------------------------------------------------------------------------- aiter


def aiter_tables(contents: Contents) -> Merged:
    """Tables of one kind and one header.  Raises InputError where one cannot be read or is of another kind."""
    notes = [f"the files do not tell which libraries and kernels their rows are of: {_ONE_BUILD}"]
    found: dict[str, list[Choice]] = {}
    lines: dict[tuple[str, int], list[str]] = {}
    header: list[str] = []
    for path, name, data in contents:
        columns, entries, damage = aiter.entries(text_of(data)[0])
        file = aiter.inspect(name, data, {})
        broken = next((x for x in (*damage, *file.notes) if x.severity == "error" and x.rule in _NO_TABLE), None)
        if broken is not None:
            raise InputError(f"{path}: {broken.message}")
        header = header or columns
        if columns != header:
            raise InputError(f"{path} and {contents[0][0]} have other columns: they are of several versions of aiter")
        for entry, row in zip(entries, file.rows, strict=True):
            tuned = entry.texts.get("us", entry.texts.get("soltimes", "")).strip()
            if row.solution is None or (tuned and row.time_us is None) or unusable(row):
                notes.append(left_out(path, row.line, row.verdicts.why or "it could not be run"))
                continue
            choice = Choice(path, row.line, row.solution.raw or row.solution.text, row.time_us)
            found.setdefault(row.key, []).append(choice)
            lines[path, row.line] = [entry.texts.get(x, "") for x in columns]
    name, use = _aiter_name(contents, table_of(header) or BF16)
    taken, conflicts = choose(found)
    sink = io.StringIO()
    body = [lines[choice.file, choice.line] for _, choice in sorted(taken.items())]
    csv.writer(sink, lineterminator="\n").writerows([header, *body])
    return Merged((Emission(name, sink.getvalue().encode(), use),), len(body), conflicts, tuple(notes))


def _aiter_name(contents: Contents, table: Table) -> tuple[str, str]:
    """The merged table's name and the variable that aiter looks for it in."""
    stems = {stem(name) for _, name, _ in contents}
    if table is BF16:
        stems = {"bf16_tuned_gemm"}
    kind = stems.pop()
    if stems or kind is None:
        names = ", ".join(path for path, _, _ in contents)
        raise InputError(
            f"{names}: the columns do not tell which of aiter's operators a table is for, its name must; one of "
            + ", ".join(sorted(VARIABLES))
        )
    return f"{kind}.csv", f"export {VARIABLES[kind]}={{path}}"


# ----------------------------------------------------------------------------------------------------------- rocBLAS


def rocblas_rows(contents: Contents) -> Merged:
    """Override CSVs of rocBLAS, which have no times: of one key the first file's row."""
    notes = [f"nothing tells which rocBLAS and GPU the indices are of: {_ONE_BUILD}"]
    found: dict[str, list[Choice]] = {}
    lines: dict[tuple[str, int], str] = {}
    for path, name, data in contents:
        text, _ = text_of(data)
        clean = text.replace("\r\n", "\n")
        rows = rules_rocblas.inspect(name, clean.encode("utf-8", "surrogateescape"), {}).rows
        for entry, row in zip(rules_rocblas.entries(clean), rows, strict=True):
            if row.solution is None or row.dead:
                notes.append(left_out(path, row.line, row.verdicts.why or "no solution"))
                continue
            found.setdefault(row.key, []).append(Choice(path, row.line, row.solution.raw or "", None))
            lines[path, row.line] = ",".join(entry.cells)
    taken, conflicts = choose(found, in_order=True)
    body = [lines[choice.file, choice.line] for _, choice in sorted(taken.items())]
    data = "".join(f"{line}\n" for line in [rocblas.HEADING, *body]).encode("utf-8", "surrogateescape")
    use = "export ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH={path}"
    return Merged((Emission("rocblas_override.csv", data, use),), len(body), conflicts, tuple(notes))


# --------------------------------------------------------------------------------------------------------- hipBLASLt


def tuning_files(contents: Contents) -> Merged:
    """HipBLASLt's tuning files of one revision, device and layout.  Raises InputError where they are of several."""
    notes: list[str] = []
    found: dict[str, list[Choice]] = {}
    lines: dict[tuple[str, int], str] = {}
    known: dict[str, tuple[str, str]] = {}
    for path, name, data in contents:
        clean = text_of(data)[0].replace("\r\n", "\n")
        file = hipblaslt.inspect(name, clean.encode("utf-8", "surrogateescape"), {})
        entries = list(hipblaslt.entries(clean))
        _agree(known, path, file, entries)
        for entry, row in zip(entries, file.rows, strict=True):
            if row.solution is None or row.dead or row.verdicts.honoured is False:
                notes.append(left_out(path, row.line, row.verdicts.why or "no solution"))
                continue
            found.setdefault(row.key, []).append(Choice(path, row.line, row.solution.text, row.time_us))
            named = [",".join(entry.header)] if entry.header is not None else []
            lines[path, row.line] = "".join(f"    {line}\n" for line in [*named, ",".join(entry.values)])
    taken, conflicts = choose(found, in_order=True)
    body = [lines[choice.file, choice.line] for _, choice in sorted(taken.items())]
    revision = known["revision"][0]
    data = "".join([f"Git Version: {revision}\n", *body]).encode("utf-8", "surrogateescape")
    use = "export HIPBLASLT_TUNING_OVERRIDE_FILE={path}"
    return Merged((Emission("hipblaslt_tuning.txt", data, use),), len(body), conflicts, tuple(notes))


def _agree(
    known: dict[str, tuple[str, str]], path: str, file: OverrideFile, entries: Sequence[hipblaslt.Entry]
) -> None:
    """Hold a file against what the ones before it said of revision, device and layout, each with who said it."""
    if "hipblaslt_revision" not in file.facts:
        raise InputError(f"{path} does not begin with 'Git Version: …': nobody can tell which hipBLASLt it is of")
    device = (("arch", "gcnArchName"), ("cu_count", "CUs"))
    told = {name: {entry.cells.get(column, "") for entry in entries} - {"", "0"} for name, column in device}
    told["revision"] = {file.facts["hipblaslt_revision"]}
    told["layout"] = {"values only (ROCm 6.4)" if x.header is None else "a header line each (ROCm 7)" for x in entries}
    for name, values in told.items():
        for value in sorted(values):
            first, who = known.setdefault(name, (value, path))
            if first != value:
                raise InputError(f"{path} and {who} cannot be merged: {name} is {value}, not {first}")
