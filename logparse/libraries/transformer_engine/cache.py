"""TransformerEngine's cache of hipBLASLt kernels (ROCm).  ``TE_HIPBLASLT_ALGO_LOAD`` and ``…_SAVE`` name the file.

::

    dev_cap,m,n,k,trans_a,trans_b,type_a,type_b,type_d,bias_type,lda,ldb,ldd,epi,comp,scale,ws_min,ws_max,algo_id,aidx
    904,4096,8192,2048,T,N,bfloat16,bfloat16,bfloat16,-,2048,2048,4096,-,f32,float32,0,67108864,412345,3

Each build of TransformerEngine has one header.  A build reads a file only if the first line equals its own header
exactly.  The header contains no version.  Rows for devices that the machine lacks are skipped.  The other rows are read
in order.  A row is dropped if an earlier row has the same key and an overlapping range of workspaces.  If a cell holds
a word that the build does not know, TransformerEngine raises, and the job ends at its first product.  ``algo_id`` is
the number of a kernel, which is valid only for the hipBLASLt build that wrote the file.  TransformerEngine does not
check the build.  Source: ROCm/TransformerEngine ``transformer_engine/common/gemm/rocm_gemm.cu``, class
``GemmAlgoCache`` (``header_``, ``load_``, ``find_``), at 01d53074 (20 columns) and later with ``fp8_scale`` (21
columns).  The header of 22 columns is from files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import FOREIGN, Emission, LineFormat, Origin, Outcome, Writer
from logparse.libraries.kinds.fp8 import OCP, on_arch
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.table import Header, Row, TableFormat
from logparse.model import (
    NARROW,
    Fact,
    GemmProblem,
    Measurement,
    Message,
    Override,
    Problem,
    Record,
    Solution,
    with_plain,
)
from logparse.quoting import Shell
from logparse.target import Facts, arch

_FIRST = "dev_cap,m,n,k,trans_a,trans_b,type_a,type_b,type_d,bias_type"
_LAST = "ws_min,ws_max,algo_id,aidx"
HEADERS: Mapping[str, str] = {
    "20": f"{_FIRST},lda,ldb,ldd,epi,comp,scale,{_LAST}",
    "21": f"{_FIRST},lda,ldb,ldd,fp8_scale,epi,comp,scale,{_LAST}",
    "22": f"{_FIRST},aux_type,lda,ldb,ldd,scale_mode,epi,comp,scale_type,{_LAST}",
}
"""The header line of TransformerEngine's cache file for each number of columns.

The number depends on the build of TransformerEngine.
"""
COLUMNS = "transformer_engine_columns"
"""Name of the fact that states how many columns a build's cache file has: 20, 21 or 22."""
_RENAMED = {"fp8_scale": "scale_mode", "scale": "scale_type"}
_NUMBERS = ("dev_cap", "m", "n", "k", "lda", "ldb", "ldd", "scale_mode", "ws_min", "ws_max", "algo_id", "aidx")
KEY = (
    *("dev_cap", "m", "n", "k", "trans_a", "trans_b", "type_a", "type_b", "type_d", "bias_type", "aux_type"),
    *("lda", "ldb", "ldd", "scale_mode", "epi"),
)
_TYPES = {"float32": "f32_r", "float16": "f16_r", "bfloat16": "bf16_r", "float8e4m3": "f8_r", "float8e5m2": "bf8_r"}
_NAMES = {ours: theirs for theirs, ours in _TYPES.items()}
_EPILOGUES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "-": ("DEFAULT", {}),
    "bias": ("BIAS", {"bias": True}),
    "geluaux": ("GELU_AUX", {"activation": "gelu", "aux": True}),
    "geluauxbias": ("GELU_AUX_BIAS", {"activation": "gelu", "aux": True, "bias": True}),
    "dgelu": ("DGELU", {"activation": "gelu", "gradient": True, "aux": True}),
    "dgelubgrad": ("DGELU_BGRAD", {"activation": "gelu", "gradient": True, "aux": True, "bias": True}),
    "bgradb": ("BGRADB", {"gradient": True, "bias": True, "bias_source": "b"}),
}
"""For each epilogue name of TransformerEngine: hipBLASLt's name, and the fields of ``GemmProblem``."""
_PLAIN = {"activation": "none", "gradient": False, "aux": False, "bias": False}
ARCHES = {904: "gfx942", 905: "gfx950"}
_INTEGER = regex(r"[ \t-\r]*[+-]?[0-9]{1,18}[ \t-\r]*\Z")
_FROM_ANY = 1 << 40
"""Value of ``ws_max`` in the rows that logparse writes, in bytes.

A row is used for a call only if the call's workspace lies between ``ws_min`` and ``ws_max``.  This value is so large
that every workspace is below it.
"""


@dataclass(frozen=True)
class CacheRow:
    """One row of TransformerEngine's cache file of kernels.

    * ``line`` is its line number, counted from 1.
    * ``cells`` has all 22 columns.
    * ``complete`` is False if the row has fewer values than the file has columns.
    """

    line: int
    text: str
    # A file of an older build lacks some columns. Their cells hold the value that all calls of such a build have.
    cells: Mapping[str, str]
    complete: bool
    time_us: float | None = field(default=None, init=False)

    def number(self, name: str) -> int:
        """Return the integer in a column, or −1 if its text is no integer."""
        text = self.cells.get(name, "")
        return int(text) if _INTEGER.match(text) else -1

    @property
    def workspaces(self) -> tuple[int, int]:
        """The smallest and the largest workspace in bytes for which TransformerEngine uses this row of its cache file.

        A call with a smaller or larger workspace does not get the row's kernel.
        """
        return self.number("ws_min"), self.number("ws_max")

    @cached_property
    def wrong(self) -> str:
        """The values in the row that make TransformerEngine raise an error, because it cannot read them.

        The result is one text with the values and the names of their columns.  The text is empty if there are no such
        values.
        """
        bad = [name for name in _NUMBERS if not _INTEGER.match(self.cells.get(name, ""))]
        words = {
            **dict.fromkeys(("type_a", "type_b", "type_d", "scale_type"), _TYPES),
            **dict.fromkeys(("bias_type", "aux_type"), ("-", *_TYPES)),
            **dict.fromkeys(("trans_a", "trans_b"), "NT"),
            "epi": _EPILOGUES,
            "comp": ("f32",),
        }
        bad += [name for name, known in words.items() if (self.cells.get(name) or "?") not in known]
        return ", ".join(f"{name} {self.cells.get(name, '')[:20]!r}" for name in bad)

    @property
    def key(self) -> str:
        return "" if self.wrong else ",".join(self.cells[name] for name in KEY)

    @property
    def problem(self) -> GemmProblem | None:
        return None if self.wrong else _problem(self.cells)

    @property
    def solution(self) -> Solution | None:
        return None if self.wrong else Solution("hipblaslt", str(self.number("algo_id")), raw=self.cells["algo_id"])


def _problem(cells: Mapping[str, str]) -> GemmProblem:
    """Return the matrix product that a row of TransformerEngine's cache is for.

    C is the same matrix as D, because TransformerEngine passes D as C.  β stays unknown, because a row does not state
    it.
    """
    device = ARCHES.get(int(cells["dev_cap"]))
    types = {f"{x}_type": on_arch(_TYPES[cells[f"type_{x}"]], device) for x in "abd"}
    epilogue = {**_PLAIN, **_EPILOGUES[cells["epi"]][1]}
    scale = {"0": "scalar", "2": "block32"}.get(cells["scale_mode"])
    values: dict[str, Any] = {
        **{name: int(cells[name]) for name in ("m", "n", "k", "lda", "ldb", "ldd")},
        **types,
        **epilogue,
        "c_type": types["d_type"],
        "ldc": int(cells["ldd"]),
        "trans_a": cells["trans_a"],
        "trans_b": cells["trans_b"],
        "batch_count": 1,
        "compute_type": "f32_r",
        "scale_type": _TYPES[cells["scale_type"]],
        "bias_type": _TYPES.get(cells["bias_type"]) if epilogue["bias"] else None,
        "scale_alpha_vector": False,
        "aux_type": _TYPES.get(cells["aux_type"]),
        **{f"scale_{x}": scale if types[f"{x}_type"] in NARROW else "none" for x in "ab"},
    }
    return GemmProblem(**with_plain(values, scaled=True))


def device_cap(facts: Facts) -> int | None:
    """Return TransformerEngine's number of a GPU architecture, for example 904 for gfx942.

    It is HIP's major version · 100 + minor version, so the last digit of the architecture is not in it.  Returns None
    if the architecture is unknown.
    """
    name = (arch(facts) or "").removeprefix("gfx")
    return int(name[:-2]) * 100 + int(name[-2], 16) if len(name) > 2 and name[:-2].isdigit() else None


def key(problem: Problem, target: Facts) -> str | None:
    """Return the text by which TransformerEngine finds the row of its cache for a matrix product.

    The text consists of the values that ``find_`` compares, in the order of the columns.  The workspace is checked
    separately. The bias type is part of it only for 8-bit operands.  If such a call has no bias, its bias type is
    float32.

    Returns None in these cases:

    * TransformerEngine does not run such products (batched and grouped).
    * A field of the key or the target's GPU architecture is unknown.
    """
    if not isinstance(problem, GemmProblem) or problem.members or problem.batch_count != 1:
        return None
    p = problem.normal
    types = {f"type_{x}": _name(getattr(p, f"{x}_type")) for x in "abd"}
    narrow = p.a_type in NARROW or p.b_type in NARROW
    cells = {
        **{name: getattr(p, name) for name in ("m", "n", "k", "trans_a", "trans_b", "lda", "ldb", "ldd")},
        **types,
        "dev_cap": device_cap(target),
        "bias_type": _name(p.bias_type or ("f32_r" if not p.bias else None)) if narrow else "-",
        "aux_type": _name(p.aux_type) if p.aux else "-",
        "scale_mode": 2 if "block32" in (p.scale_a, p.scale_b) else 0,
        "epi": next((name for name, (theirs, _) in _EPILOGUES.items() if theirs == p.epilogue), None),
    }
    return None if None in cells.values() else ",".join(str(cells[name]) for name in KEY)


def _name(data_type: str | None) -> str | None:
    return _NAMES.get(OCP.get(data_type or "", data_type or ""))


# ------------------------------------------------------------------------------------------- what is there


def is_ours(header: Header) -> bool:
    """Return True if a file begins like TransformerEngine's cache, even if no known build has exactly its header.

    Lint then reports why no build reads the file.
    """
    return header.text.startswith("dev_cap,m,n,k,trans_a,trans_b,type_a")


def columns_of(header: str) -> list[str]:
    """Return the column names in the header of TransformerEngine's cache file.

    Renamed columns get the names that the newest header has for them.
    """
    return [_RENAMED.get(x, x) for x in header.strip("\ufeff\r\n ").split(",")]


def row_of(columns: Sequence[str], number: int, line: str) -> CacheRow | None:
    """Parse one line of TransformerEngine's cache file.  Return None for a blank line or a comment."""
    text = line.strip(" \t\n\r\f\v")
    if not text or text.startswith("#"):
        return None
    values = text.split(",")
    cells = {"aux_type": "-", "scale_mode": "0"} | dict(zip(columns, values, strict=False))
    return CacheRow(number, text, cells, len(values) >= len(columns))


class _Table:
    """Reads TransformerEngine's cache file, in which each row names the kernel for a product, without a time.

    The reader also collects the GPUs that the rows name.
    """

    def __init__(self, header: Header) -> None:
        self._header, self._columns = header, columns_of(header.text)
        self._devices: dict[str, None] = {}

    def open(self) -> Iterator[Outcome]:
        yield Outcome("fact", [Fact(COLUMNS, name) for name, text in HEADERS.items() if text == self._header.text])

    def take(self, row: Row) -> Sequence[Record]:
        found = row_of(self._columns, row.line, row.text)
        if found is None or found.wrong or not found.complete or found.problem is None or found.solution is None:
            wrong = found.wrong if found else ""
            raise ValueError(f"TransformerEngine's cache: {wrong or 'too few values'}")
        device = ARCHES.get(found.number("dev_cap"))
        if device:
            self._devices[device] = None
        return [
            Measurement(
                problem=found.problem, solution=found.solution, origin=_ORIGIN, status="no_time", key_text=found.key
            )
        ]

    def close(self) -> Iterator[Outcome]:
        yield Outcome("fact", [Fact("arch", device) for device in self._devices], lines=0)


PICKED = _ORIGIN = "transformer-engine-cache"
FORMAT = TableFormat(
    name=_ORIGIN,
    about="TransformerEngine's cache of hipBLASLt kernels (TE_HIPBLASLT_ALGO_SAVE)",
    ours=is_ours,
    begin=_Table,
    fit="any",
    comments=("#",),
    origins=(Origin(_ORIGIN, evidence=False),),
    seen="2024 and 2025 (source code only); one real file of 22 columns (no test)",
    example="904,4096,8192,2048,T,N,…",
    gives="choices without a time, facts",
)

_PHRASES = ("autotune results", "algo storage legend", "entry in algo cache", "cached algoId", "Use hipBLASLt algo [")


def read_line(text: str) -> Outcome:
    """Read a log line in which TransformerEngine reports something about its cache of chosen kernels.

    The text is stored unchanged, as a ``Message``.  Any other line is reported as not belonging to this format.
    """
    if not any(words in text for words in _PHRASES):
        return FOREIGN
    return Outcome("message", [Message(category="transformer-engine", text=text)])


LOG = LineFormat(
    name="transformer-engine-log",
    about="lines in which TransformerEngine reports on its cache of hipBLASLt kernels (TE_HIPBLASLT_LOG_TUNING=1)",
    markers=tuple(words.encode() for words in _PHRASES),
    start=rb"^(?:Loading autotune|Could not |Saving autotune|Incorrect algo|\[WARNING\] |\[INFO\] Use hipBLASLt)",
    read=read_line,
    seen="source code only",
    example="Incorrect algo storage legend. …",
    gives="messages",
)
FORMATS = (FORMAT, LOG)

# ------------------------------------------------------------------------------------------- writing


def accepts(override: Override) -> bool:
    """Return True if a TransformerEngine cache file can tell the target machine to use this kernel for this product.

    The kernel must be from hipBLASLt, and it must be known how many columns the machine's TransformerEngine expects in
    the file.
    """
    return override.solution.library == "hipblaslt" and COLUMNS in override.target


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """Write a cache file that tells TransformerEngine on the target machine which kernels to use for some products.

    Raises EmissionError if the fact ``transformer_engine_columns`` or a value of a row's key is unknown.
    """
    header = HEADERS.get(target.get(COLUMNS, ""))
    if header is None:
        known = ", ".join(HEADERS)
        raise EmissionError(
            "TransformerEngine's cache: builds of TransformerEngine differ in the columns of this file. Name the "
            f"columns of the target's build with --target {COLUMNS}=NAME. NAME is one of {known}"
        )
    lines = [header]
    for override in overrides:
        name = key(override.problem, target)
        if name is None:
            raise EmissionError(f"TransformerEngine on this target has no key for {override.problem.label}")
        cells = dict(zip(KEY, name.split(","), strict=True)) | {
            "comp": "f32",
            "scale_type": "float32",
            "ws_min": str(override.workspace_bytes or 0),
            "ws_max": str(_FROM_ANY),
            "algo_id": override.solution.id,
            "aidx": "0",
        }
        lines.append(",".join(cells[_RENAMED.get(x, x)] for x in header.split(",")))
    return (Emission("transformer_engine_cache.csv", "\n".join([*lines, ""]).encode(), _USE),) if overrides else ()


_USE = Shell("""\
export TE_HIPBLASLT_ALGO_LOAD={path}
# Verify: the job prints "Loading autotune results"; under TE_HIPBLASLT_LOG_TUNING=1 "Use hipBLASLt algo [0] …".\
""")

WRITER = Writer(
    _ORIGIN,
    "TransformerEngine's cache of hipBLASLt kernels, for TE_HIPBLASLT_ALGO_LOAD",
    accepts,
    key,
    write,
    file="cache CSV",
    read_when="`TE_HIPBLASLT_ALGO_LOAD` is set to the file",
)
