"""Results of Tensile's benchmark client: how fast each kernel ran each size, and which won.

::

    GFlops, SizeI, SizeJ, SizeK, SizeL, LDD, LDC, LDA, LDB, TotalFlops, WinnerGFlops, WinnerTimeUS, WinnerIdx,
        WinnerName, Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_…, Cijk_Ailk_Bljk_HHS_BH_MT64x64x16_…              (one line)
    0, 4096, 512, 1, 1024, 4096, 4096, 4096, 1024, 4294967296, 61234.5, 70.1396, 0, Cijk_…, 61234.5, 48211.9

Written by Tensile and by hipBLASLt's TensileLite: ``00_Final.csv`` of a step and, in ``2_BenchmarkData``,
``Cijk_Ailk_Bljk_HHS_BH_00.csv``, with the winner's columns ``…_CSVWinner.csv`` (``CSVExportWinner: 1``).  The first
column holds the number of the problem whatever its name.  Columns are found by name; those behind the sizes that bear
a kernel's name hold its GFlop/s.  From that and the flops comes the time; the winner's own time is used where given.
-1 is a kernel that failed validation or cannot run the size, an empty cell one that was not tried.

Transposes and types are part of a kernel's name (``Alik``: A is transposed; ``HHS``: input, output, compute), or of the
file's where the columns have short names.  Size I is m, J is n, then the batch, the last one k.  β, bias and activation
are arguments that the file does not state.  Kernels are ``tensile:NAME``: the numbers of a library's solutions are
given when the library is built.  Under ``GFlopsPerCU`` only the winner's time is known.
Source: ROCm/Tensile Tensile/Source/client/source/ResultFileReporter.cpp, Tensile/SolutionStructs.py (names),
Tensile/Common.py (``HPATypes``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logparse.formats.format import FileFormat, Head, Origin, Outcome, Source
from logparse.formats.patterns import regex
from logparse.model import COMPLEX, Fact, GemmProblem, Measurement, Record, Reject, Solution, Status

ORIGIN = "tensile"

_HEADER = regex(rb"(?:\xef\xbb\xbf)?GFlops(?:PerCU)?, ?SizeI, ?SizeJ, ?SizeK\b")
_NAME = regex(
    r"C(?P<c>[a-z]{2,3})_A(?P<a>[a-z]{2,3})(?P<conj_a>C?)_B(?P<b>[a-z]{2,3})(?P<conj_b>C?)_(?P<types>[A-Za-z0-9]+)"
)
_KERNEL = regex(r"C[a-z]{2,3}_A[a-z]{2,3}C?_B[a-z]{2,3}C?_|(?:.*_)?MT\d+x\d+")
_TYPES: Mapping[str, str] = {
    "S": "f32_r",
    "D": "f64_r",
    "C": "f32_c",
    "Z": "f64_c",
    "H": "f16_r",
    "B": "bf16_r",
    "I8": "i8_r",
    "I": "i32_r",
    "F8": "f8_r",
    "B8": "bf8_r",
    "F8N": "f8_fnuz_r",
    "B8N": "bf8_fnuz_r",
}
_INPUTS = {
    **{word: (word, word) for word in ("H", "B", "S", "I8", "F8", "B8", "F8N", "B8N")},
    "F8B8": ("F8", "B8"),
    "B8F8": ("B8", "F8"),
    "F8B8N": ("F8N", "B8N"),
    "B8F8N": ("B8N", "F8N"),
}
_TRIPLES = {
    f"{inputs}{output}{compute}": (*_INPUTS[inputs], output, compute)
    for inputs in _INPUTS
    for output in _TYPES
    for compute in ("S", "I")
}
"""Words of input, output and compute type; other names begin with one letter that is the type of all."""


def recognise(head: Head) -> bool:
    """A first line with the performance unit and the sizes."""
    return _HEADER.match(head.data) is not None


def read(source: Source) -> Iterator[Outcome]:
    """The header as a fact, each row as the measurements of its kernels."""
    columns: list[str] = []
    for line in source.lines():
        text = line.text.removeprefix("\ufeff").strip()
        if not text:
            yield Outcome("blank")
        elif not columns:
            columns = [name.strip() for name in text.split(",")]
            yield Outcome("fact", [Fact("performance_unit", columns[0])])
        else:
            cells = [cell.strip() for cell in text.split(",")]
            try:
                if len(cells) != len(columns):
                    raise ValueError(f"{len(cells)} values for {len(columns)} columns")
                records: list[Record] = [*_row(columns, cells, source.name)]
            except ValueError as error:
                yield Outcome("reject", [Reject(f"Tensile's results: {error}", 0, len(text.encode()))], at=line.offset)
            else:
                yield Outcome("measurement", records, at=line.offset)


def _row(columns: Sequence[str], cells: Sequence[str], file_name: str) -> Iterator[Measurement]:
    row = dict(zip(columns, cells, strict=True))
    kernels = [(name, cell) for name, cell in zip(columns[4:], cells[4:], strict=True) if _KERNEL.match(name) and cell]
    winner = row.get("WinnerName", "")
    problem = _problem(
        row, next((x for x in (winner, *(name for name, _ in kernels), file_name) if _NAME.match(x)), "")
    )
    best_us = _positive(row.get("WinnerTimeUS"))
    flops = _positive(row.get("TotalFlops")) or problem.flops
    if winner and winner not in dict(kernels):
        kernels.append((winner, row.get("WinnerGFlops", "")))
    for name, cell in kernels:
        speed = _positive(cell) if columns[0] == "GFlops" else None
        time_us = flops / speed / 1e3 if speed and flops else None
        if name == winner and best_us:
            time_us = best_us
        status: Status = "ok" if time_us else "failed" if cell.startswith("-") else "no_time"
        yield Measurement(
            problem=problem,
            solution=Solution("tensile", name),
            origin=ORIGIN,
            status=status,
            time_us=None if time_us is None else round(time_us, 4),
            error="failed validation, or cannot run this size" if status == "failed" else None,
        )


def _positive(text: str | None) -> float | None:
    """A number above 0; None for an empty cell and for what stands for no time.  Raises ValueError."""
    value = float(text or "nan")
    return value if value > 0 and math.isfinite(value) else None


def _problem(row: Mapping[str, str], name: str) -> GemmProblem:
    """The problem of a row by the name of a kernel (empty: transposes and types stay unknown).  Raises ValueError."""
    found = _NAME.match(name)
    batched = found is None or len(found["c"]) == 3
    if batched and "SizeL" not in row:
        raise ValueError("no SizeL: which of its sizes is the batch is not known")
    m, n, third = (int(row.get(f"Size{x}", "no column")) for x in "IJK")
    values: dict[str, Any] = {"m": m, "n": n, "k": int(row["SizeL"]) if batched else third}
    values["batch_count"] = third if batched else 1
    leading = {name.lower(): row.get(name, "") for name in ("LDA", "LDB", "LDC", "LDD")}
    values |= {name: int(text) for name, text in leading.items() if text.isdecimal()}
    if min(m, n, values["k"], values["batch_count"]) < 0:
        raise ValueError("a size below 0")
    if values["batch_count"] > 1:
        values["batch_mode"] = "pointer" if found and "_GB" in name else "strided"
    return GemmProblem(**values, **_of_name(found))


def fields_of_kernel(name: str) -> dict[str, Any]:
    """Transposes and types of a problem that a kernel computes, by its name; empty for any other text."""
    return _of_name(_NAME.match(name))


def _of_name(found: re.Match[str] | None) -> dict[str, Any]:
    """Transposes and types of a kernel, by its name."""
    if found is None:
        return {}
    triple = _TRIPLES.get(found["types"])
    if triple is not None:
        a, b, d, compute = (_TYPES[word] for word in triple)
    else:  # ``SB``, ``HBH``: one type, then what the kernel can do
        word = re.match(r"I8|F8N?|B8N?|[SDCZHB]", found["types"])
        a = b = d = _TYPES[word[0]] if word else None  # type: ignore[assignment]
        compute = "f32_r" if found["types"].endswith("H") and a in ("f16_r", "bf16_r") else a
    trans_a = "N" if found["a"][0] == "i" else "C" if found["conj_a"] and a in COMPLEX else "T"
    trans_b = "T" if found["b"][0] == "j" else "N"
    if trans_b == "T" and found["conj_b"] and b in COMPLEX:
        trans_b = "C"
    types = {"a_type": a, "b_type": b, "c_type": d, "d_type": d, "compute_type": compute}
    return {"trans_a": trans_a, "trans_b": trans_b, **types}


FORMAT = FileFormat(
    name="tensile-results",
    about="results of Tensile's benchmark client: 00_Final.csv, Cijk_…_CSVWinner.csv",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=True),),
)
