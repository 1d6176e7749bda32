"""How a hipBLASLt to come reads a tuning file: each row is validated by itself, whatever the order of its columns.

Rows that name their kernel survive another revision of the library: the index counts only where the name is still its.
Rows without a name are kept only under the library's own revision.  A row with a ``schema_version`` is of the tuning
cache: it must have the whole key, and serves only calls whose whole problem and device are its own.  Index 0 is valid.

Source: ROCm/rocm-libraries pull request 10424 as of August 2026 (``UserDrivenTuningParser.cpp``), which the changelog
of 1.5 announces; no released library has it yet, so this is not compared with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from logparse.formats.hipblaslt.tuning_lines import (
    BLANKS,
    COMPUTES,
    FAST,
    FIRST,
    INDEX,
    NEWER_DATA,
    NUMBERS,
    TYPES,
    Dropped,
    Taken,
    Version,
    number,
    split,
)
from logparse.formats.reading import whole

SCHEMA = "schema_version"
_SCHEMAS = ("1", "2")
_NAMES = ("kernel_name", "solution_name")
_DATA = NEWER_DATA | {"f32_c", "f64_c"}
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_TEXTS = ("a_type", "b_type", "c_type", "d_type", "compute_type", "gcnArchName", *_NAMES)
_SIZES = (
    *("m", "n", "k", "batch_count", "lda", "ldb", "ldc", "ldd", "lde"),
    *("stride_a", "stride_b", "stride_c", "stride_d", "stride_e", "required_workspace"),
)
_CODES = (
    *("compute_input_type_a", "compute_input_type_b", "batch_mode", "epilogue", "bias_type", "bias_stride", "aux_type"),
    *("scaleA_format", "scaleB_format", "streamk_tile_scheduling", "sm_count_target", "CUs"),
)
_FLAGS = (
    *("gradient", "bias_vector", "scaleA", "scaleB", "scaleC", "scaleD", "scaleE", "scaleAlphaVec", "amaxD"),
    *("swizzle_a", "swizzle_b", "uniform_summation_order"),
)


def pairs(text: str) -> Iterator[tuple[int, tuple[str, ...] | None, tuple[str, ...], str]]:
    """Line number, header (None: values without one), values and the file's revision as far as it was read."""
    stamp = ""
    header: tuple[str, ...] | None = None
    for line, content in enumerate(text.split("\n"), start=1):
        words = tuple(word.strip(BLANKS) for word in split(content.strip(BLANKS)))
        if "transA" in words and INDEX in words:
            header = words  # one that was torn from its values is left
        elif header is not None:
            yield line, header, words, stamp
            header = None
        elif not stamp and FIRST in content.strip(BLANKS):
            stamp = content.strip(BLANKS).partition(FIRST)[2]
        elif len(words) > 1:
            yield line, None, words, stamp


def cells_of(header: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Values by column, the first of each name."""
    cells: dict[str, str] = {}
    for name, value in zip(header, values, strict=False):
        if name:
            cells.setdefault(name, value)
    return cells


def take(
    header: Sequence[str] | None, values: Sequence[str], stamp: str, revision: str | None, version: Version
) -> Taken | Dropped:
    """What the library of this revision (None: unknown) keeps of a row."""
    if header is None:
        return Dropped("no-header", "values without a header line: ROCm 7.0 and later do not read them")
    cells = cells_of(header, values)
    whole = SCHEMA in cells
    if whole and cells[SCHEMA] not in _SCHEMAS:
        return Dropped("schema", f"the library knows no schema_version {cells[SCHEMA]!r}")
    if whole and (missing := _invalid(cells)):
        return Dropped("schema", f"{', '.join(missing[:4])}: a row of the tuning cache must have the whole key")
    index = _exact(cells.get(INDEX, ""))
    if index is None or not 0 <= index < 1 << 31:
        return Dropped("index", f"solution index {cells.get(INDEX)!r}: the library takes numbers from 0 to 2147483647")
    types = [*TYPES, *(["d_type"] if "d_type" in cells else [])]
    wrong = [f"{name} {cells.get(name, '')!r}" for name in types if cells.get(name) not in _DATA]
    if wrong:
        return Dropped("type", f"the library knows no {', '.join(wrong)}")
    compute = cells.get("compute_type", "")
    if compute not in COMPUTES | FAST:
        return Dropped("compute-type", f"the library knows no compute type {compute!r}")
    built = cells.get("git_version") or stamp
    if revision is not None and built != revision and not any(cells.get(name) for name in _NAMES):
        return Dropped(
            "revision", f"a row without kernel_name is for hipBLASLt {built!r} only, the target is {revision!r}"
        )
    sizes = {name: number(cells.get(name, "")) or (name == "batch_count" and name not in cells) for name in NUMBERS}
    trans = ["N" if cells.get(name, "N") == "N" else "T" for name in ("transA", "transB")]
    folded = "f32_r" if compute in FAST and version.folds_fast else compute
    words = (*trans, *(str(int(sizes[name])) for name in NUMBERS), *(cells[name] for name in TYPES), folded)
    no_call = "" if all(value > 0 for value in sizes.values()) else "no call has a size of 0 or less"
    return Taken(",".join(words), index, cells, no_call, whole)


def _invalid(cells: Mapping[str, str]) -> list[str]:
    """The columns of a cache row that are missing or no values of their kind."""
    out = [name for name in ("transA", "transB") if cells.get(name) not in ("N", "T", "C")]
    out += [name for name in _TEXTS if not cells.get(name)]
    numbers = {name: _exact(cells.get(name, "")) for name in (*_SIZES, *_CODES, *_FLAGS)}
    out += [name for name in _SIZES if (numbers[name] or 0) < (name == "batch_count") or numbers[name] is None]
    out += [name for name in _CODES if numbers[name] is None or not -(1 << 31) <= (numbers[name] or 0) < 1 << 31]
    return out + [name for name in _FLAGS if numbers[name] not in (0, 1)]


def _exact(text: str) -> int | None:
    """A cell that is a number of 64 bits and nothing else."""
    return whole(text) if _INTEGER.fullmatch(text) else None
