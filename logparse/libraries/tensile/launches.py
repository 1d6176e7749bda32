"""Launches of Tensile's kernels with their arguments.  They show which kernel ran for each matrix product of rocBLAS.

::

    Kernel Cijk_Alik_Bjlk_BBS_BH_MT128x256x32_MI16x16x16x1_SN_1LDSB0_…_GSU1_GSUASB_…
     l(256, 1, 1) x g(1, 1, 1) = (256, 1, 1)
    [0..7] tensor2dSizeA: 00 30 00 00 00 00 00 00 (12288)
    [52..55] beta: 00 00 00 00 (0)
    [56..59] strideD1: 60 00 00 00 (96)
    [88..91] size_0: 60 00 00 00 (96)

``TENSILE_DB=0x40`` prints them on standard output, some 30 lines per launch.  Use it for the few steps that prove an
override, not for a whole job.  rocBLAS's own log names the kernel that ran only with bit 0x10 of ``ROCBLAS_LAYER`` (see
``rocblas/logs.py``).  Without that bit, only these launches prove that an override file works.

Sizes are M, N, batch and K.  Stride 1 is a leading dimension, stride 2 a batch stride.  Transposes and types are part
of the name (``Alik``: A is transposed; ``HHS``: input, output, compute).  If K is split (``_GSU4_``), the product's
strides are a workspace's, ``strideW_D1``.  The launch of the kernel that adds up the slices follows (``…_PostGSU…``)
and has the strides of D and C.  Kernels of hipBLASLt (``_UserArgs``) are messages, because hipBLASLt's log names its
kernels.  The kernel of a call is stored as ``tensile:NAME``, where NAME is the kernel's name.  rocBLAS's number of the
kernel is not printed. Source: ROCm/Tensile Tensile/Source/lib/source/KernelArguments.cpp, hip/HipSolutionAdapter.cpp,
Tensile/Common.py (``HPATypes``), SolutionStructs.py (names); rocBLAS 5.2's output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logparse.libraries.kinds.format import BlockFormat, Line, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.model import COMPLEX, Call, GemmProblem, Message, Record, Solution, with_plain

CATEGORY = "tensile"

_BEGIN = "Kernel C"
_KERNEL = regex(r"Kernel (?P<name>C[a-z]{2,3}_\w+)\Z")
_GRID = regex(r" l\(\d+, \d+, \d+\) x g\(\d+, \d+, \d+\) = \(\d+, \d+, \d+\)\Z")
_ARGUMENT = regex(r"\[\d+\.\.\d+\] (?P<name>\w+):(?: [0-9a-f]{2})+ \((?P<value>[^()]*)\)\Z")
_SIZES = ("size_0", "size_1", "size_2", "size_3")
_STRIDES = tuple(f"stride{x}{axis}" for x in "ABCD" for axis in "12")
_OUTPUTS = frozenset(("strideD1", "strideD2", "strideC1", "strideC2"))
_PRODUCT = frozenset((*_SIZES, *_STRIDES, "beta")) - _OUTPUTS
_ADDS_UP, _OF_HIPBLASLT = "_PostGSU", "_UserArgs"
_NAME = regex(r"C[a-z]{2,3}_A(?P<a>[a-z]{2,3})(?P<conj_a>C?)_B(?P<b>[a-z]{2,3})(?P<conj_b>C?)_(?P<types>[A-Za-z0-9]+)")
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
_TRIPLE = regex(r"(I8|F8N?|B8N?|[HBS])(I8|F8N?|B8N?|[SDCZHBI])([SI])\Z")
"""Pattern of three data types in a kernel's name: input, output and compute type, for example ``BBS``.

A name that does not match has one type for all three.
"""
_ONE_TYPE = regex(r"I8|F8N?|B8N?|[SDCZHB]")


class _Reader:
    """Reads what Tensile (the kernel library of rocBLAS and hipBLASLt) prints about each kernel that it launches."""

    def __init__(self) -> None:
        self._name, self._complete = "", False
        self._arguments: dict[str, str] = {}
        # A product that is split along K takes two kernels, and the second one adds up the slices. The product of the
        # first kernel is kept here until the second one follows.
        self._split: tuple[str, dict[str, str]] | None = None

    @property
    def awake(self) -> bool:
        return bool(self._name)

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r\n")
        kernel = _KERNEL.match(text)
        if kernel:
            name = kernel["name"]
            self._split = self._split if _ADDS_UP in name else None
            self._name, self._arguments, self._complete = name, {}, _OF_HIPBLASLT in name
            return Outcome("message")
        argument = _ARGUMENT.match(text) if self._name else None
        if argument is None:
            ours = bool(self._name and _GRID.match(text))
            self._name = self._name if ours else ""
            return Outcome("message") if ours else None
        self._arguments[argument["name"]] = argument["value"]
        call = None if self._complete else self._call()
        return Outcome("message") if call is None else Outcome("call", [call])

    def close(self) -> Iterable[Record]:
        """Yield a message if the log ends before all arguments of a kernel launch."""
        if self._name and not self._complete:
            yield Message(category=CATEGORY, text=f"Kernel {self._name} (its arguments are cut off)")
        self._name = ""

    def _call(self) -> Call | None:
        """Return the matrix product that a kernel launch computes, or None as long as arguments are missing.

        If a second kernel adds up partial results, its launch must have been read, too.
        """
        arguments = self._arguments
        adds_up = _ADDS_UP in self._name
        # A launch is logged in several lines, one for each argument.
        if not arguments.keys() >= (_OUTPUTS if adds_up else _PRODUCT):
            return None
        self._complete = True
        if adds_up:
            split, self._split = self._split, None
            return _call(split[0], split[1] | {x: arguments[x] for x in _OUTPUTS}) if split else None
        if not arguments.keys() >= _OUTPUTS:
            self._split = self._name, arguments
            return None
        return _call(self._name, arguments)


def _of_name(name: str) -> dict[str, Any]:
    """Return what the name of a kernel shows about its GEMM: the data types, and whether A and B are transposed."""
    found = _NAME.match(name)
    if found is None:
        return {}
    triple = _TRIPLE.match(found["types"])
    if triple:
        a, d, compute = (_TYPES[word] for word in triple.groups())
    else:  # ``SB``, ``HBH``: one type, then the kernel's abilities
        word = _ONE_TYPE.match(found["types"])
        if word is None:
            return {}
        a = d = _TYPES[word[0]]
        compute = "f32_r" if found["types"].endswith("H") and a in ("f16_r", "bf16_r") else a
    conjugated = "C" if a in COMPLEX else "T"
    trans_a = "N" if found["a"][0] == "i" else conjugated if found["conj_a"] else "T"
    trans_b = "N" if found["b"][0] != "j" else conjugated if found["conj_b"] else "T"
    types = {"a_type": a, "b_type": a, "c_type": d, "d_type": d, "compute_type": compute}
    return {"trans_a": trans_a, "trans_b": trans_b, **types}


def _call(name: str, arguments: Mapping[str, str]) -> Call | None:
    """Return the matrix product that a logged kernel launch computed, from the kernel's name and arguments.

    Returns None if an argument is not the number that it must be.
    """
    try:
        m, n, batch, k = (int(arguments[x]) for x in _SIZES)
        strides = {x: int(arguments[x]) for x in _STRIDES}
        beta = float(arguments["beta"])
    except ValueError:
        return None
    fields: dict[str, Any] = {f"ld{x}": strides[f"stride{x.upper()}1"] for x in "abcd"}
    if batch > 1:
        fields |= {f"stride_{x}": strides[f"stride{x.upper()}2"] for x in "abcd"} | {"batch_mode": "strided"}
    fields |= {"m": m, "n": n, "k": k, "batch_count": batch, "beta": "nonzero" if beta else "zero"}
    plain: dict[str, Any] = {"activation": "none", "gradient": False, "aux": False, "bias": False}
    problem = GemmProblem(**with_plain({**_of_name(name), **fields, **plain, "scale_alpha_vector": False}))
    return Call(problem=problem, category=CATEGORY, count=1, solution=Solution("tensile", name))


FORMAT = BlockFormat(
    name="tensile-launches",
    about="Tensile's log: the kernels that rocBLAS ran for matrix products, with their arguments (TENSILE_DB=0x40)",
    markers=(_BEGIN.encode(),),
    begin=make_rank_readers((_BEGIN.encode(),), _Reader),
    order="the lines with arguments follow the line that names their kernel",
    seen="rocBLAS 5.2 (conformance suite)",
    example="Kernel Cijk_Alik_Bjlk_BBS_BH_MT128x256x32_…",
    gives="kernels of products",
    how=(
        "`TENSILE_DB=0x40`, with which Tensile prints the kernel of each matrix product and its arguments on "
        "standard output"
    ),
)
