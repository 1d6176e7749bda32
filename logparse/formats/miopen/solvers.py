"""MIOpen's algorithms, and which solver belongs to which (ROCm/MIOpen ``src/solver.cpp``, the registry).

A find-db item names the solver and the algorithm of its direction; both are needed to write one.
"""

from __future__ import annotations

import re

from logparse.model import Direction

FAMILIES = ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")
_DIRECTIONS = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}


def algorithm_name(family: str, direction: str) -> str:
    """``algorithm_name("GEMM", "W")`` is ``miopenConvolutionBwdWeightsAlgoGEMM``."""
    return f"miopenConvolution{_DIRECTIONS[direction]}Algo{family}"


ALGORITHMS: dict[str, str] = {
    algorithm_name(family, direction): direction
    for direction in "FBW"
    for family in FAMILIES
    if (family, direction) != ("FFT", "W")
} | {"miopenTransposeBwdDataAlgoGEMM": "B"}
"""Algorithm string → direction of the records that may hold it; MIOpen throws on any other."""

_FAMILY_OF = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"Gemm(?:Fwd|Bwd|Wrw)|gemm$", "GEMM"),
        (r"fft$", "FFT"),
        (r"Conv(?:Bin)?Wino|ConvMPBidirectWinograd", "Winograd"),
        (r"ConvAsmImplicitGemm|ConvHipImplicitGemm|ConvMlirIgemm|ConvCkIgemm", "ImplicitGEMM"),
        (r"ConvAsm|ConvOcl|ConvDirect|ConvHipDirect", "Direct"),
    )
)


def known_algorithm(solver: str) -> str | None:
    """The algorithm family of a solver by its name, None where the name tells none."""
    return next((family for pattern, family in _FAMILY_OF if pattern.match(solver)), None)


TUNABLE = re.compile(
    r"Conv(?:Asm(?:1x1U|3x3U|BwdWrW|ImplicitGemmGTC)|BinWinogradRxSf|HipImplicitGemm|Mlir|Ck|OclBwdWrW2<|OclDirectFwd)"
)
"""Solvers that have parameters in the perf-db: without a row there they run at default parameters."""

ID_OF_CODE = {0: "GEMM", 1: "Direct", 2: "FFT", 3: "Winograd", 5: "ImplicitGEMM"}
"""``miopenConvolution*Algorithm_t``: the numbers that the driver and the log print (equal in all three directions)."""

_DIRECTION_OF: tuple[tuple[re.Pattern[str], Direction], ...] = (
    (re.compile(r"Wr[wW]"), "W"),
    (re.compile(r"Bwd(?!WrW)|BwdData"), "B"),
    (re.compile(r"(?:Gemm|Conv\w*)(?:Fwd|Forward)"), "F"),
)
_BOTH_WAYS = re.compile(r"ConvOclDirectFwd")
"""Solvers that serve backward data too, in spite of their name."""


def direction_of_solver(solver: str) -> Direction | None:
    """The direction that a solver's name tells, None where it serves several (Winograd, ConvAsm1x1U …)."""
    if _BOTH_WAYS.match(solver):
        return None
    return next((direction for pattern, direction in _DIRECTION_OF if pattern.search(solver)), None)
