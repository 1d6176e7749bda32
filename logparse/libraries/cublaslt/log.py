"""Read cuBLASLt's log, which has the form of hipBLASLt's log except for some names.

``CUBLASLT_LOG_MASK=31 CUBLASLT_LOG_FILE=cublaslt_%i.log`` produces the log.  One Trace line (shortened)::

    [2026-11-21 05:15:08][cublasLt][588][Trace][cublasLtMatmul] A=0X7FE1C0600000 Adesc=[type=R_16BF rows=2304 cols=768
    ld=2304] B=… computeDesc=[computeType=COMPUTE_32F scaleType=R_32F epilogue=EPILOGUE_BIAS biasPointer=0x7fdf89432800]
    algo=[algoId=66 tile=MATMUL_TILE_192x192 stages=MATMUL_STAGES_64xAUTO customOption=4
    clusterShape=CLUSTER_SHAPE_2x1x1] workSpace=0X7FDF89433A00 workSpaceSizeInBytes=1048576 beta=0 outOfPlace=0
    stream=0X0

The classic calls of cuBLAS (``cublasSgemm``, ``cublasGemmEx`` …) are most of PyTorch's products.  They reach cuBLASLt
through functions whose name has three letters: the type of A and B, the type of the scale, and the type of C and D.
Examples: ``cublasLtSSSMatmul`` (float), ``cublasLtHSHMatmul`` (half, scaled in float), ``cublasLtTSTMatmul``
(bfloat16), ``cublasLtDDDMatmul``, ``cublasLtCCCMatmul``.  Their Trace lines have the same grammar, with
``smCountTarget`` in the descriptor.

An attribute at its default is not printed: no ``transa`` means OP_N, no ``epilogue`` means EPILOGUE_DEFAULT.  8-bit
operands have ``aScalePointer=0x7f61e3e9d800 aScaleMode=OUTER_VEC_32F`` in the descriptor.  If there is a pointer but no
mode, the scale is one factor.  The third bracket of the prefix is the thread.  The layer is ``Hint``, not ``Hints`` as
in hipBLASLt's log.  One line is written per heuristic query (``heuristicResults=[66]``: the ids of the returned
algorithms).
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.cublaslt.names import ATTRIBUTES
from logparse.libraries.kinds.patterns import regex
from logparse.model import Solution

MATMUL = regex(r"cublasLt(?:[A-Z]{3})?Matmul\Z")
"""Pattern of the functions whose Trace lines record a matrix product.

The functions are cuBLASLt's public function and the functions through which cuBLAS calls cuBLASLt.
"""

KEYS: Mapping[str, str] = {
    "batchCount": "batch_count",
    "stridedBatchOffset": "batch_stride",
    "transa": "transA",
    "transb": "transB",
    "biasDataType": "biasType",
    "auxDataType": "epilogueAuxDataType",
}
"""Translation of cuBLASLt's attribute names in a log line to hipBLASLt's names."""

DEFAULTS: Mapping[str, str] = {"transA": "OP_N", "transB": "OP_N", "epilogue": "EPILOGUE_DEFAULT"}
"""Attributes that cuBLASLt leaves out of a log line if they have their default value, with this value."""

_SCALE_MODES: Mapping[str, str] = {
    "SCALAR_32F": "scalar",
    "OUTER_VEC_32F": "row",
    "VEC32_UE8M0": "block32",
    "VEC16_UE4M3": "block16_e4m3",
    "VEC128_32F": "block128",
    "BLK128x128_32F": "block128x128",
}
"""logparse's words for how a matrix is scaled, by the text that cuBLASLt logs for it (``aScaleMode`` and the like).

The words are the same for hipBLASLt (``enums.SCALES``).  For blocks of 128, traces have the same words too.
"""


def scales(desc: Mapping[str, str]) -> dict[str, str | None]:
    """Return how the matrices A, B, C and D are scaled, according to a line of cuBLASLt's Trace log.

    If the line has a pointer to a matrix's scale but no mode, the scale is a single factor.
    """
    out: dict[str, str | None] = {}
    for x in "abcd":
        mode = desc.get(f"{x}ScaleMode", "SCALAR_32F")
        given = desc.get(f"{x}ScalePointer", "").strip("0xX") != ""
        out[f"scale_{x}"] = _SCALE_MODES.get(mode) if given else "none"
    return out


def solution(text: str | None) -> Solution | None:
    """Return the kernel that a Trace line of the log names in ``algo=[…]``: ``cublaslt:id=66,tile=192x192,…``.

    Returns None if the program let the library choose the kernel.
    """
    if not text or "=" not in text:
        return None
    values = dict(word.partition("=")[::2] for word in text.split())
    known = [f"{ours}={values[key].removeprefix(x)}" for ours, key, _, _, x in ATTRIBUTES if values.get(key)]
    # an attribute that the table does not know is kept, because it belongs to the identity of the solution
    unknown = [f"{key}={value}" for key, value in sorted(values.items()) if key not in {x[1] for x in ATTRIBUTES}]
    return Solution("cublaslt", ",".join([*known, *unknown]), raw=text)
