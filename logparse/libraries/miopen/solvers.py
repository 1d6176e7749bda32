"""MIOpen's algorithms and solvers, and which solver belongs to which algorithm.

An entry of MIOpen's solver database (find-db) names the solver and the algorithm of its direction.  Both are needed to
write an entry.  MIOpen gets new solvers with every version.  If a solver is not in this registry, its kind of algorithm
is guessed from the beginning of its name.  No rule rejects an entry because of such a guess.

Source: ROCm/rocm-libraries ``projects/miopen/src/solver.cpp`` (``SolverRegistrar``, commit 00a55ad9), and the registry
of the real MIOpen 3.5.1 (``tests/conformance/test_miopen_registry.py``).
"""

from __future__ import annotations

import re
from functools import lru_cache

from logparse.libraries.kinds.patterns import regex
from logparse.model import ConvProblem, Direction

FAMILIES = ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")
_DIRECTIONS = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}


def algorithm_name(family: str, direction: str) -> str:
    """Return MIOpen's name of an algorithm: ``miopenConvolutionBwdWeightsAlgoGEMM`` for ``("GEMM", "W")``."""
    return f"miopenConvolution{_DIRECTIONS[direction]}Algo{family}"


ALGORITHMS: dict[str, str] = {
    algorithm_name(family, direction): direction
    for direction in "FBW"
    for family in FAMILIES
    if (family, direction) != ("FFT", "W")
} | {"miopenTransposeBwdDataAlgoGEMM": "B"}
"""For each algorithm name, the direction (F, B or W) of the solver database's records in which it may occur.

MIOpen throws an exception on a name that is not in this table.
"""

_FAMILY_OF = tuple(
    (regex(rf"(?:Transposed)?(?:{pattern})"), family)
    for pattern, family in (
        (r"Gemm(?:Fwd|Bwd|Wrw)|gemm$", "GEMM"),
        (r"fft$", "FFT"),
        (r"Conv(?:Bin)?Wino|ConvMPBidirectWinograd", "Winograd"),
        (r"ConvAsmImplicitGemm|ConvHipImplicitGemm|ConvMlirIgemm|ConvCkIgemm", "ImplicitGEMM"),
        (r"ConvAsm|ConvOcl|ConvDirect|ConvHipDirect|ConvHipBwdWrW|ConvHipConv|ConvDepthwise", "Direct"),
    )
)


@lru_cache(maxsize=4096)  # Cached, because a find-db repeats a few hundred names in thousands of records.
def known_algorithm(solver: str) -> str | None:
    """Return the kind of algorithm that a solver uses, for example ``GEMM``, from the solver's name.

    Returns None if the name does not show it.
    """
    return next((family for pattern, family in _FAMILY_OF if pattern.match(solver)), None)


TUNABLE = regex(
    r"(?:Transposed)?Conv(?:Asm(?:1x1U|3x3U|BwdWrW|ImplicitGemmGTC)|BinWinogradRxSf|HipImplicitGemm|HipConv|Mlir|Ck"
    r"|MPBidirectWinograd_xdlops|DepthwiseFwd(?:2D)?$|DepthwiseDirect|OclBwdWrW2<|OclDirectFwd|HipDirectFwd)"
)
"""A regular expression for the solvers that have parameters in MIOpen's database of tuned parameters.

Without a row in the database they use their defaults.
"""

MOST_ELEMENTS = 2**31 - 1
_INT_INDICES = regex(
    r"ConvAsmImplicitGemmGTCDynamic(?:Fwd|Bwd|Wrw)XdlopsNHWC$|ConvHipImplicitGemm(?:3D)?GroupWrwXdlops$"
)
SPLIT_K = regex(r"ConvHipImplicitGemm(?:3D)?Group(?:Bwd|Wrw)Xdlops$")
"""A regular expression for solvers whose parameters end in ``+N``.

The sum is then split into N parts, which needs workspace of its own.
"""


def explain_overflow(solver: str, problem: ConvProblem) -> str | None:
    """Return a message if a solver may compute wrong results, because a tensor is too large for its 32-bit indices.

    * MIOpen before July 2026 runs such a solver, and its search (Find) does not notice the wrong results.
    * Later versions do not use the solver for such tensors, or use another instance of it.

    Returns None if the solver is safe.  Source: ROCm/rocm-libraries pull requests 9568, 9768, 10020 (ASM GTC) and 10043
    (``RequiresLargeTensorCKInstance``).
    """
    if not _INT_INDICES.match(solver) or problem.largest_tensor is None or problem.largest_tensor <= MOST_ELEMENTS:
        return None
    return (
        f"a tensor has {problem.largest_tensor:,} elements, which {solver} indexes with 32 bits: MIOpen before "
        "July 2026 returns wrong results, a newer version uses another solver"
    )


ID_OF_CODE = {0: "GEMM", 1: "Direct", 2: "FFT", 3: "Winograd", 5: "ImplicitGEMM"}
"""For each algorithm number in MIOpen's API, the kind of algorithm.

The driver and the log print the numbers of ``miopenConvolution*Algorithm_t``.  They are equal in all three directions.
"""

_DIRECTION_OF: tuple[tuple[re.Pattern[str], Direction], ...] = (
    (regex(r"Wr[wW]"), "W"),
    (regex(r"Bwd(?!WrW)|BwdData"), "B"),
    (regex(r"(?:Gemm|Conv\w*)(?:Fwd|Forward)"), "F"),
)
_BOTH_WAYS = regex(r"ConvOclDirectFwd|ConvHipDirectFwd|ConvDepthwiseFwd")
"""A regular expression for solvers that also compute the input gradient, although their names say forward.

Source: ``src/solver/conv/conv_ck_grouped_conv_fwd.cpp``.
"""


@lru_cache(maxsize=4096)
def direction_of_solver(solver: str) -> Direction | None:
    """Return the direction of a convolution for which a solver is made: F (forward), B (input gradient) or W (weights).

    The solver's name shows the direction. Returns None if the solver is for several directions (Winograd, ConvAsm1x1U
    …).
    """
    if _BOTH_WAYS.match(solver):
        return None
    return next((direction for pattern, direction in _DIRECTION_OF if pattern.search(solver)), None)


_REGISTRY = """
1 ConvAsm3x3U, 2 ConvAsm1x1U, 3 ConvAsm1x1UV2, 5 ConvAsm5x10u2v2f1, 6 ConvAsm5x10u2v2b1,
7 ConvAsm7x7c3h224w224k64u2v2p3q3f1, 8 ConvOclDirectFwd11x11, 9 ConvOclDirectFwdGen, 11 ConvOclDirectFwd,
13 ConvOclDirectFwd1x1, 14 ConvBinWinograd3x3U, 15 ConvBinWinogradRxS, 16 ConvAsmBwdWrW3x3, 17 ConvAsmBwdWrW1x1,
18 ConvOclBwdWrW2<1>, 19 ConvOclBwdWrW2<2>, 20 ConvOclBwdWrW2<4>, 21 ConvOclBwdWrW2<8>, 22 ConvOclBwdWrW2<16>,
23 ConvOclBwdWrW2NonTunable, 24 ConvOclBwdWrW53, 25 ConvOclBwdWrW1x1, 26 ConvHipImplicitGemmV4R1Fwd,
31 ConvHipImplicitGemmV4R1WrW, 33 gemm, 34 fft, 35 ConvWinograd3x3MultipassWrW<3-4>, 37 ConvBinWinogradRxSf3x2,
38 ConvWinograd3x3MultipassWrW<3-5>, 39 ConvWinograd3x3MultipassWrW<3-6>, 40 ConvWinograd3x3MultipassWrW<3-2>,
41 ConvWinograd3x3MultipassWrW<3-3>, 42 ConvWinograd3x3MultipassWrW<7-2>, 43 ConvWinograd3x3MultipassWrW<7-3>,
44 ConvWinograd3x3MultipassWrW<7-2-1-1>, 45 ConvWinograd3x3MultipassWrW<7-3-1-1>,
46 ConvWinograd3x3MultipassWrW<1-1-7-2>, 47 ConvWinograd3x3MultipassWrW<1-1-7-3>,
48 ConvWinograd3x3MultipassWrW<5-3>, 49 ConvWinograd3x3MultipassWrW<5-4>, 53 ConvBinWinogradRxSf2x3,
54 ConvHipImplicitGemmV4R4Fwd, 55 ConvHipImplicitGemmBwdDataV1R1, 56 ConvHipImplicitGemmBwdDataV4R1,
57 ConvHipImplicitGemmBwdDataV1R1Xdlops, 60 ConvHipImplicitGemmBwdDataV4R1Xdlops, 61 ConvHipImplicitGemmV4R4WrW,
62 ConvAsmImplicitGemmV4R1DynamicFwd, 63 ConvAsmImplicitGemmV4R1DynamicFwd_1x1, 64 ConvHipImplicitGemmForwardV4R4Xdlops,
65 ConvAsmImplicitGemmV4R1DynamicBwd, 66 ConvAsmImplicitGemmV4R1DynamicWrw, 67 ConvMPBidirectWinograd<2-3>,
68 ConvMPBidirectWinograd<3-3>, 69 ConvMPBidirectWinograd<4-3>, 70 ConvMPBidirectWinograd<5-3>,
71 ConvMPBidirectWinograd<6-3>, 72 ConvAsmImplicitGemmGTCDynamicWrwXdlops, 73 ConvHipImplicitGemmWrwV4R4Xdlops,
74 ConvAsmImplicitGemmGTCDynamicFwdXdlops, 75 ConvMPBidirectWinograd_xdlops<2-3>, 76 ConvMPBidirectWinograd_xdlops<3-3>,
77 ConvMPBidirectWinograd_xdlops<4-3>, 78 ConvMPBidirectWinograd_xdlops<5-3>, 79 ConvMPBidirectWinograd_xdlops<6-3>,
80 ConvHipImplicitGemmForwardV4R5Xdlops, 81 ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm,
82 ConvAsmImplicitGemmGTCDynamicBwdXdlops, 83 ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm, 84 ConvBinWinogradRxSf2x3g1,
85 ConvDirectNaiveConvFwd, 86 ConvDirectNaiveConvBwd, 87 ConvDirectNaiveConvWrw, 88 GemmFwd1x1_0_1,
89 GemmFwd1x1_0_1_int8, 90 GemmFwd1x1_0_2, 91 GemmFwdRest, 95 GemmBwd1x1_stride2, 96 GemmBwd1x1_stride1,
97 GemmBwdRest, 98 ConvMlirIgemmFwd, 99 ConvMlirIgemmBwd, 100 ConvMlirIgemmWrW, 101 GemmWrw1x1_stride1,
102 GemmWrwUniversal, 103 ConvMlirIgemmFwdXdlops, 104 ConvMlirIgemmBwdXdlops, 105 ConvMlirIgemmWrWXdlops,
107 ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC, 108 ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC,
110 ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC, 114 ConvCkIgemmFwdV6r1DlopsNchw,
127 ConvAsmImplicitGemmGTCDynamicFwdDlopsNCHWC, 128 ConvHipImplicitGemmFwdXdlops, 129 ConvHipImplicitGemmBwdXdlops,
137 ConvHipImplicitGemmGroupFwdXdlops, 138 ConvHipImplicitGemm3DGroupFwdXdlops, 139 ConvWinoFuryRxS<2-3>,
140 ConvHipImplicitGemm3DGroupWrwXdlops, 141 ConvHipImplicitGemm3DGroupBwdXdlops,
149 ConvHipImplicitGemmF16F8F16FwdXdlops, 150 ConvHipImplicitGemmF16F8F16BwdXdlops,
151 ConvHipImplicitGemmF16F8F16WrwXdlops, 155 ConvHipImplicitGemmGroupBwdXdlops, 156 ConvHipImplicitGemmGroupWrwXdlops,
180 ConvWinoRageRxS<2-3>,
185 ConvDepthwiseFwd2D, 186 TransposedConvBinWinograd3x3U, 187 TransposedConvBinWinogradRxS,
188 TransposedConvBinWinogradRxSf2x3g1, 189 TransposedConvWinoFuryRxS<2-3>, 190 TransposedConvWinoRageRxS<2-3>,
191 TransposedConvMPBidirectWinograd<2-3>, 192 TransposedConvMPBidirectWinograd<3-3>,
193 TransposedConvMPBidirectWinograd<4-3>, 194 TransposedConvMPBidirectWinograd<5-3>,
195 TransposedConvMPBidirectWinograd<6-3>, 196 TransposedConvWinograd3x3MultipassWrW<3-2>,
197 TransposedConvWinograd3x3MultipassWrW<3-3>, 198 TransposedConvWinograd3x3MultipassWrW<3-4>,
199 TransposedConvWinograd3x3MultipassWrW<3-5>, 200 TransposedConvWinograd3x3MultipassWrW<3-6>,
201 TransposedConvWinograd3x3MultipassWrW<7-2>, 202 TransposedConvWinograd3x3MultipassWrW<7-3>,
203 TransposedConvWinograd3x3MultipassWrW<1-1-7-2>, 204 TransposedConvWinograd3x3MultipassWrW<1-1-7-3>,
205 TransposedConvWinograd3x3MultipassWrW<7-2-1-1>, 206 TransposedConvWinograd3x3MultipassWrW<7-3-1-1>,
207 TransposedConvWinograd3x3MultipassWrW<5-3>, 208 TransposedConvWinograd3x3MultipassWrW<5-4>,
209 TransposedConvBinWinogradRxSf2x3, 210 TransposedConvBinWinogradRxSf3x2,
211 TransposedConvMPBidirectWinograd_xdlops<2-3>, 212 TransposedConvMPBidirectWinograd_xdlops<3-3>,
213 TransposedConvMPBidirectWinograd_xdlops<4-3>, 214 TransposedConvMPBidirectWinograd_xdlops<5-3>,
215 TransposedConvMPBidirectWinograd_xdlops<6-3>, 216 ConvDepthwiseFwd3D, 217 ConvHipDirectFwd
"""

SOLVERS: dict[int, str] = {int(number): name for number, name in map(str.split, _REGISTRY.split(","))}
"""The name of each solver by its id, which is its place in MIOpen's registry.

MIOpen appends new solvers at the end of the registry, and never reuses the number of a removed solver.  So a number
means the same solver in every version.  Solvers of other primitives (fusion, pooling …) and newer solvers are missing
here.
"""

# SOLVERS lacks ConvHipConv, because its number differs between the public versions.
_JUDGED = {*SOLVERS.values(), "ConvHipConv", "ConvHipDirectFwd11x11", "ConvHipBwdWrW53"}


def is_registered(solver: str) -> bool:
    """Return True if MIOpen has a convolution solver of exactly this name.

    The direction and the algorithm of such a solver are known too.
    """
    return solver in _JUDGED
