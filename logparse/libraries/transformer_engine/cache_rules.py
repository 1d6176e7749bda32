"""Check TransformerEngine's cache of hipBLASLt kernels: which rows does a build read and use?

The rules follow the code of ``GemmAlgoCache::load_``.

Source: ROCm/TransformerEngine ``transformer_engine/common/gemm/rocm_gemm.cu`` at 01d53074 and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from logparse.errors import InputError
from logparse.libraries.hipblaslt.tuning_rules import translate_to_hipblaslt
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import Conversion, Merging, OverrideFormat, bytes_of, records_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Rule, Table, with_key
from logparse.libraries.transformer_engine import cache
from logparse.libraries.transformer_engine.cache import COLUMNS, FORMAT, CacheRow
from logparse.quoting import Shell
from logparse.target import Facts


@dataclass(frozen=True)
class _Context:
    device: int | None
    """The target's GPU architecture as a number of the column ``dev_cap``, or None if it is unknown."""
    keys: Mapping[str, Sequence[CacheRow]]
    serves: bool
    """True if at least one row is for the target's GPU.  A file may have rows for several GPUs."""


def _other_device(row: CacheRow, context: _Context) -> str | None:
    own = row.number("dev_cap")
    if context.device in (None, own):
        return None
    name = f" ({cache.ARCHES[own]})" if own in cache.ARCHES else ""
    return (
        f"the row's dev_cap {own}{name} differs from the target's {context.device}, so TransformerEngine ignores the "
        "row"
    )


def _short(row: CacheRow, context: _Context) -> str | None:
    return (
        None
        if row.complete
        else (
            "the row has fewer values than the header has names, and what TransformerEngine reads for the missing "
            "values is undefined"
        )
    )


def _empty_range(row: CacheRow, context: _Context) -> str | None:
    low, high = row.workspaces
    return (
        f"the row's ws_min {low:,} is above its ws_max {high:,}, so TransformerEngine drops the row"
        if low > high
        else None
    )


def _scale_type(row: CacheRow, context: _Context) -> str | None:
    given = row.cells.get("scale_type")
    return None if given == "float32" else f"the row has scale type {given}, but TransformerEngine accepts only float32"


def _overlaps(row: CacheRow, context: _Context) -> str | None:
    low, high = row.workspaces
    for other in context.keys.get(row.key, ()):
        if other.line >= row.line:
            return None
        if low <= other.workspaces[1] and high >= other.workspaces[0]:
            return (
                f"line {other.line} has the same key and an overlapping range of workspaces, so the first row is kept"
            )
    return None


def _no_index(row: CacheRow, context: _Context) -> str | None:
    return (
        "the row's aidx is negative, so TransformerEngine reads it as a row without a solution"
        if row.number("aidx") < 0
        else None
    )


def _too_large(row: CacheRow, context: _Context) -> str | None:
    return (
        None
        if 0 < row.number("algo_id") < 1 << 31
        else "the row's algo_id cannot be the index of a hipBLASLt solution (32 bits)"
    )


_TUNE = "tune the matrix products again on the target"
_AGAIN = (
    "let TransformerEngine write the row again on the target (TE_HIPBLASLT_ALGO_SAVE), or write it with `logparse "
    "convert`"
)
_RULES: tuple[Rule[CacheRow, _Context], ...] = (
    Rule("device", "warning", "read", lambda r, c: _other_device(r, c) if c.serves else None, _TUNE, fault=False),
    Rule("device", "error", "read", lambda r, c: None if c.serves else _other_device(r, c), _TUNE, fault=False),
    Rule("values", "error", "read", _short, _AGAIN),
    Rule("workspace", "error", "read", _empty_range, _AGAIN),
    Rule("scale", "error", "read", _scale_type, _AGAIN),
    Rule("duplicate", "warning", "read", _overlaps, "remove the later row", fault=False),
    Rule(
        "index",
        "error",
        "honoured",
        _no_index,
        (
            "set aidx to 0 or more: the position in hipBLASLt's list of solutions at which TransformerEngine "
            "begins to search"
        ),
    ),
    Rule("solution", "error", "honoured", _too_large, _AGAIN),
)


def reader(name: str, data: bytes, target: Facts) -> Reading[Table[CacheRow, _Context]]:
    """Read a cache file (list of kernels to use) as TransformerEngine on the target machine would.

    Returns the rows of the file with remarks.
    """
    header, *lines = data.decode("utf-8", "surrogateescape").split("\n")
    names = cache.columns_of(header)
    rows = [row for number, line in enumerate(lines, start=2) if (row := cache.row_of(names, number, line))]
    device = cache.device_cap(target)
    mine = [row for row in rows if device in (None, row.number("dev_cap"))]
    columns = next((x for x, y in cache.HEADERS.items() if y == header), None)
    devices = {cache.ARCHES.get(row.number("dev_cap")) for row in rows}
    facts = {COLUMNS: columns} if columns else {}
    facts |= {"arch": next(iter(devices)) or ""} if len(devices) == 1 and None not in devices else {}
    entries = [row for row in rows if not row.wrong]
    kept = [row for row in mine if not row.wrong and row.workspaces[0] <= row.workspaces[1]]
    notes = [Note(1, "info", "header", f"{columns} columns: {_BUILDS[columns]}")] if columns else []
    return Table(entries, _Context(device, with_key(kept), bool(mine)), _RULES, notes).reading(
        "TransformerEngine does not accept this file",
        refusals=[*_refusals(header, columns, mine, target)],
        certain=COLUMNS in target and device is not None,
        facts=facts,
        target=target,
    )


_BUILDS = {
    "20": (
        "only builds of TransformerEngine whose rows state no scaling mode read this file; any other build ignores "
        "the whole file"
    ),
    "21": (
        "only builds of TransformerEngine with the column fp8_scale read this file; any other build ignores the "
        "whole file"
    ),
    "22": (
        "only builds of TransformerEngine with the columns aux_type and scale_mode read this file; any other build "
        "ignores the whole file"
    ),
}


def _refusals(header: str, columns: str | None, rows: Iterable[CacheRow], target: Facts) -> Iterator[Note]:
    if columns is None:
        bare = header.strip("\ufeff\r ") in cache.HEADERS.values()
        found = (
            "the file's first line has a byte order mark, blanks or a CRLF line end"
            if bare
            else "the file's first line has the columns of no known build"
        )
        message = f"{found}: TransformerEngine accepts a file only if the first line is exactly its own header"
        yield Note(
            1,
            "error",
            "header",
            message,
            "replace this line by the first line of a cache file that the target's TransformerEngine saved",
        )
    elif target.get(COLUMNS, columns) != columns:
        message = (
            f"the file has {columns} columns, but the target's build reads {target[COLUMNS]}, so it ignores the whole "
            "file"
        )
        yield Note(1, "error", "header", message, _AGAIN)
    for row in rows:
        if row.wrong:
            message = f"{row.wrong}: TransformerEngine raises an error, and the job ends at its first product"
            yield Note(row.line, "error", "words", message, "remove the row")


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Return what two cache files must have in common so that they can be merged: the header line.

    Raises InputError if no known build of TransformerEngine reads the file.
    """
    first = data.decode("utf-8", "surrogateescape").partition("\n")[0]
    if first not in cache.HEADERS.values():
        raise InputError("the file's header belongs to no known build of TransformerEngine")
    return [("header", first)]


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([agreed["header"], *(row.text for row in rows)])
    return [Emission("transformer_engine_cache.csv", data, Shell("export TE_HIPBLASLT_ALGO_LOAD={path}"))]


def _without_aux(key: str) -> Sequence[str]:
    """Return the key of a row without the type of the auxiliary matrix, because some builds do not compare this type.

    A build whose cache has fewer than 22 columns finds a row by this shorter key. (The auxiliary matrix is an extra
    output that a forward pass keeps for the backward pass.) The result is a list with one key, or an empty list if the
    key has no such type.
    """
    cells = key.split(",")
    place = cache.KEY.index("aux_type")
    return () if cells[place] == "-" else (",".join((*cells[:place], "-", *cells[place + 1 :])),)


OVERRIDE_FORMAT = OverrideFormat(
    name=FORMAT.name,
    order="if rows of one key have overlapping ranges of workspaces, the first row is used",
    kinds=frozenset({"gemm"}),
    recognise=cache.FORMAT.recognise,
    reader=reader,
    key=cache.key,
    compared=(COLUMNS,),
    fallback_keys=_without_aux,
    signs=(
        (
            "Incorrect algo storage legend",
            "TransformerEngine ignored its cache of hipBLASLt kernels, because the file's header differs",
        ),
        ("Could not load autotune results", "TransformerEngine could not open its cache of hipBLASLt kernels"),
        (
            "cached algoId",
            "TransformerEngine did not find the solution that a row of its cache names in this build of hipBLASLt",
        ),
    ),
    writer=cache.WRITER,
    find_copy_obstacle=lambda own, emitted: (
        None if own.facts.get(COLUMNS) == emitted.facts.get(COLUMNS) else "the files have different columns"
    ),
    merging=Merging(
        header=_header,
        write=_merge_rows,
        in_order=True,
        note="the rows have no times, so if several files have a row for one key, the first file's row is kept",
    ),
    conversion=Conversion(
        word="transformer-engine",
        recognise=cache.FORMAT.recognise,
        read=records_of(FORMAT),
        takes=translate_to_hipblaslt,
        matched="TransformerEngine's rows do not state β, so a row is used for products with and without an addition",
    ),
)
