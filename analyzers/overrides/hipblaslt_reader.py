"""What hipBLASLt itself takes from a line of a tuning file: its key with the types as read, its index, or why not.

There are two readers.  ROCm 6.4 takes every line of exactly 37 values by their places.  From 7.0 on (library version
1500) a line that contains ``transA`` names the columns of the line after it, whatever that is; eleven columns are
collected in one order, the first of each name that is next.  Both remove blanks in front of a line and nowhere else,
take any transpose but ``N`` for T, and numbers as far as they are numbers (``4096.0``, ``101917abc``).

The reader by name takes a compute type that it does not know for ``f32_r``; until rocm-libraries PR 6557 (after version
1.2.2) calls of the fast types had keys that no row has, since then they have that of ``f32_r``.  The older reader takes
the compute type for a data type.

Compared with libhipblaslt 1.2.2 (ROCm 7.2.4) over a virtual GPU in
``tests/analyzers/overrides/test_hipblaslt_reader.py``.
Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp`` (6.4, 7.0),
ROCm/rocm-libraries ``projects/hipblaslt``, the same file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logparse.formats.fp8 import FNUZ, fnuz_only
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS

WANTED = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
INDEX = "solution_index"
BLANKS = " \t\n\r\f\v"
_NUMBERS = ("batch_count", "m", "n", "k")
_TYPES = ("a_type", "b_type", "c_type")
_INT = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+)", re.ASCII)

_DATA = frozenset({"f16_r", "bf16_r", "f32_r", "f64_r", "i8_r", "i32_r", "f8_r", "bf8_r"})
_NAMED_DATA = _DATA | frozenset(FNUZ.values())
_NEWER_DATA = _NAMED_DATA | {"f6_r", "bf6_r", "f4_r"}
_COMPUTES = frozenset({"f32_r", "f64_r", "i32_r", "xf32_r"})
_FAST = frozenset({"f32_f16_r", "f32_bf16_r"})
_DATA_COMPUTES = frozenset({"f16_r", "f32_r", "f64_r", "i32_r"})


@dataclass(frozen=True)
class Version:
    """Which reader a library has; ``number`` as ``hipblasLtGetVersion`` returns it, None where it is unknown."""

    number: int | None

    @property
    def by_name(self) -> bool | None:
        return None if self.number is None else self.number >= 1500

    @property
    def folds_fast(self) -> bool | None:
        """Whether calls of the fast compute types have the key of ``f32_r``."""
        return None if self.number is None else self.number > 100_202


@dataclass(frozen=True)
class Taken:
    """A line as the library keeps it: a call of this key gets this solution.

    ``no_call`` is why calls of this library have no such key.
    """

    key: str
    index: int
    cells: Mapping[str, str]
    no_call: str = ""


@dataclass(frozen=True)
class Dropped:
    """A line that the library ignores without a message; ``rule`` names the rule of lint that it breaks."""

    rule: str
    why: str


def split(line: str) -> tuple[str, ...]:
    """The cells of a line as ``std::getline`` splits them: an empty last one is dropped."""
    cells = line.lstrip(BLANKS).split(",")
    return tuple(cells[:-1] if len(cells) > 1 and not cells[-1] else cells)


def take(header: Sequence[str] | None, values: Sequence[str], version: Version, arch: str | None) -> Taken | Dropped:
    """What the library keeps of a line of values after this header line (None: after none).

    Where the version is unknown, the reader that its layout is for.  ``arch`` is the one of the rows of the file.
    """
    by_name = version.by_name if version.by_name is not None else header is not None
    if not by_name:
        if len(values) != len(TUNING_COLUMNS):
            why = f"{len(values)} values: ROCm 6.4 silently ignores any number but {len(TUNING_COLUMNS)}"
            return Dropped("37-values", why)
        return _parsed(dict(zip(TUNING_COLUMNS, values, strict=True)), version, by_name, arch)
    if header is None:
        return Dropped("no-header", "values without a header line: ROCm 7.0 and later do not read them")
    cells = _collected(header, values)
    if len(cells) < len(WANTED) + 1:
        return Dropped("columns", _why_not_collected(header, values))
    return _parsed(cells, version, by_name, arch)


def _collected(header: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    cells: dict[str, str] = {}
    wanted = iter((*WANTED, INDEX))
    following = next(wanted)
    for name, value in zip(header, values, strict=False):
        if name == following:
            cells[name] = value
            following = next(wanted, "")
    return cells


def _why_not_collected(header: Sequence[str], values: Sequence[str]) -> str:
    missing = [name for name in (*WANTED, INDEX) if name not in header]
    if missing:
        padded = [name for name in missing if name in {x.strip(BLANKS) for x in header}]
        blanks = " (blanks around a name are part of it)" if padded else ""
        return f"the header has no column {', '.join(missing)}{blanks}"
    if len(_collected(header, header)) <= len(WANTED):
        return "the header's columns are not in the order in which the library looks for them"
    return (
        f"{len(values)} values for a header of {len(header)}: the library takes the line after a header for its values"
    )


def number(text: str, bits: int = 64) -> int | None:
    """C++'s ``std::stol`` (or ``stoi``): the number at the start, None where it would throw."""
    match = _INT.match(text)
    return int(match[1]) if match and -(1 << (bits - 1)) <= int(match[1]) < 1 << (bits - 1) else None


def _parsed(cells: Mapping[str, str], version: Version, by_name: bool, arch: str | None) -> Taken | Dropped:
    sizes = {name: number(cells[name]) for name in _NUMBERS}
    bad = [name for name, value in sizes.items() if value is None]
    if bad:
        return Dropped("number", f"{', '.join(bad)} is no number")
    index = number(cells[INDEX], 32)
    if index is None or index <= 0:
        return Dropped("index", f"solution index {cells[INDEX]!r}: the library takes numbers from 1 to 2147483647 only")
    known = _DATA if not by_name else _NAMED_DATA if version.folds_fast is False else _NEWER_DATA
    wrong = [f"{name} {cells[name]!r}" for name in _TYPES if cells[name] not in known]
    if wrong:
        return Dropped("type", f"the library knows no {', '.join(wrong)}")
    compute, no_call = cells["compute_type"], ""
    if by_name:
        if compute in _FAST and version.folds_fast is False:
            no_call = f"calls of compute type {compute} have no key that a row has, before rocm-libraries PR 6557"
        elif compute not in _COMPUTES:
            compute = "f32_r"
    elif compute not in _DATA_COMPUTES:
        return Dropped("compute-type", f"ROCm 6.4 drops entries of compute type {compute!r}")
    if any((value or 0) <= 0 for value in sizes.values()):
        no_call = no_call or "no call has a size of 0 or less"
    types = [cells[name] for name in _TYPES]
    if version.number is None and not by_name and fnuz_only(arch):
        types = [FNUZ.get(x, x) for x in types]  # the older reader has one name, and its devices one family
    trans = ["N" if cells[name] == "N" else "T" for name in ("transA", "transB")]
    words = (*trans, *(str(sizes[name]) for name in _NUMBERS), *types, compute)
    return Taken(",".join(words), index, cells, no_call)
