"""What hipBLASLt takes from a line of a tuning file: its key with the types as read, its index, or why not.

Released versions have one of two readers; ``hipblaslt_rows`` is one to come.  ROCm 6.4 takes every line of exactly 37
values by their places.  From 7.0 on (library version 1500) a line that contains ``transA`` names the columns of the
line after it, whatever that is; eleven columns are collected in one order, the first of each name that is next.  Both
remove blanks in front of a line and nowhere else, take any transpose but ``N`` for T, and numbers as far as they are
numbers (``4096.0``, ``101917abc``).

The reader by name takes a compute type that it does not know for ``f32_r``; since rocm-libraries PR 6557 (after version
1.2.2) the fast types have that key too.  The older reader takes the compute type for a data type.

Of several lines of one key the newer library takes the first whose index its build has; where that solution cannot run
the call it takes its own choice, and no later line.

Compared with libhipblaslt 1.2.2 (ROCm 7.2.4) over a virtual GPU in ``tests/conformance/test_hipblaslt_files.py`` and,
as recorded, in ``tests/analyzers/overrides/test_hipblaslt_reader.py``.
Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp`` (6.4, 7.0),
ROCm/rocm-libraries ``projects/hipblaslt``, the same file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logparse.formats.fp8 import FNUZ, fnuz_only
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS
from logparse.formats.reading import whole

WANTED = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
INDEX = "solution_index"
BLANKS = " \t\n\r\f\v"
FIRST = "Git Version: "
COUNTED = ("batch_count", "m", "n", "k", INDEX)
NUMBERS = ("batch_count", "m", "n", "k")
TYPES = ("a_type", "b_type", "c_type")
_INT = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+)", re.ASCII)

_DATA = frozenset({"f16_r", "bf16_r", "f32_r", "f64_r", "i8_r", "i32_r", "f8_r", "bf8_r"})
NAMED_DATA = _DATA | frozenset(FNUZ.values())
NEWER_DATA = NAMED_DATA | {"f6_r", "bf6_r", "f4_r"}
COMPUTES = frozenset({"f32_r", "f64_r", "i32_r", "xf32_r"})
FAST = frozenset({"f32_f16_r", "f32_bf16_r"})
_DATA_COMPUTES = frozenset({"f16_r", "f32_r", "f64_r", "i32_r"})


@dataclass(frozen=True)
class Version:
    """Which reader a library has; ``number`` as ``hipblasLtGetVersion`` returns it, None where it is unknown."""

    number: int | None

    @property
    def by_name(self) -> bool | None:
        return None if self.number is None else self.number >= 1500

    @property
    def by_row(self) -> bool | None:
        """Whether it validates each row (``hipblaslt_rows``), as the changelog of 1.5 announces."""
        return None if self.number is None else self.number >= 100_500

    @property
    def folds_fast(self) -> bool | None:
        """Whether the fast compute types have the key of ``f32_r``."""
        return None if self.number is None else self.number > 100_202


@dataclass(frozen=True)
class Taken:
    """A line as the library keeps it: a call of this key gets this solution.

    ``no_call`` is why calls of this library have no such key.  ``whole``: only calls whose whole problem is the row's.
    """

    key: str
    index: int
    cells: Mapping[str, str]
    no_call: str = ""
    whole: bool = False


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
    return whole(match[1], bits) if match else None


def _parsed(cells: Mapping[str, str], version: Version, by_name: bool, arch: str | None) -> Taken | Dropped:
    sizes = {name: number(cells[name]) for name in NUMBERS}
    bad = [name for name, value in sizes.items() if value is None]
    if bad:
        return Dropped("number", f"{', '.join(bad)} is no number")
    index = number(cells[INDEX], 32)
    if index is None or index <= 0:
        return Dropped("index", f"solution index {cells[INDEX]!r}: the library takes numbers from 1 to 2147483647 only")
    known = _DATA if not by_name else NAMED_DATA if version.folds_fast is False else NEWER_DATA
    wrong = [f"{name} {cells[name]!r}" for name in TYPES if cells[name] not in known]
    if wrong:
        return Dropped("type", f"the library knows no {', '.join(wrong)}")
    compute, no_call = cells["compute_type"], ""
    if by_name:
        if compute not in COMPUTES and not (compute in FAST and not version.folds_fast):
            compute = "f32_r"
    elif compute not in _DATA_COMPUTES:
        return Dropped("compute-type", f"ROCm 6.4 drops entries of compute type {compute!r}")
    if any((value or 0) <= 0 for value in sizes.values()):
        no_call = "no call has a size of 0 or less"
    types = [cells[name] for name in TYPES]
    if version.number is None and not by_name and fnuz_only(arch):
        types = [FNUZ.get(x, x) for x in types]  # the older reader has one name, and its devices one family
    trans = ["N" if cells[name] == "N" else "T" for name in ("transA", "transB")]
    words = (*trans, *(str(sizes[name]) for name in NUMBERS), *types, compute)
    return Taken(",".join(words), index, cells, no_call)
