"""Where cuBLASLt's log differs from hipBLASLt's: a table, and the name that it gives to the algorithm.

Produced by ``CUBLASLT_LOG_MASK=31 CUBLASLT_LOG_FILE=cublaslt_%i.log``; one Trace line (shortened)::

    [2026-11-21 05:15:08][cublasLt][588][Trace][cublasLtMatmul] A=0X7FE1C0600000 Adesc=[type=R_16BF rows=2304 cols=768
    ld=2304] B=… computeDesc=[computeType=COMPUTE_32F scaleType=R_32F epilogue=EPILOGUE_BIAS biasPointer=0x7fdf89432800]
    algo=[algoId=66 tile=MATMUL_TILE_192x192 stages=MATMUL_STAGES_64xAUTO customOption=4
    clusterShape=CLUSTER_SHAPE_2x1x1] workSpace=0X7FDF89433A00 workSpaceSizeInBytes=1048576 beta=0 outOfPlace=0
    stream=0X0

The classic calls of cuBLAS (``cublasSgemm``, ``cublasGemmEx`` …: most of PyTorch's products) reach cuBLASLt through
functions that bear their types, of A and B, of the scale, and of C and D: ``cublasLtSSSMatmul`` (float),
``cublasLtHSHMatmul`` (half, scaled in float), ``cublasLtTSTMatmul`` (bfloat16), ``cublasLtDDDMatmul``,
``cublasLtCCCMatmul``.  Their Trace lines have the same grammar, with ``smCountTarget`` in the descriptor.

An attribute at its default is not printed: no ``transa`` means OP_N, no ``epilogue`` means EPILOGUE_DEFAULT.  8-bit
operands have ``aScalePointer=0x7f61e3e9d800 aScaleMode=OUTER_VEC_32F`` in the descriptor, or the pointer alone: one
factor.  The third bracket of the prefix is the thread, the layer is ``Hint`` where hipBLASLt has ``Hints``, and one
line is written per heuristic query (``heuristicResults=[66]``: the algorithm ids that it returned).
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.cublaslt.names import ATTRIBUTES
from logparse.libraries.kinds.patterns import regex
from logparse.model import Solution

MATMUL = regex(r"cublasLt(?:[A-Z]{3})?Matmul\Z")
"""The functions whose Trace lines are calls: the API's own, and those through which cuBLAS calls it."""

KEYS: Mapping[str, str] = {
    "batchCount": "batch_count",
    "stridedBatchOffset": "batch_stride",
    "transa": "transA",
    "transb": "transB",
    "biasDataType": "biasType",
    "auxDataType": "epilogueAuxDataType",
}
"""cuBLASLt's keys by hipBLASLt's name of the same thing."""

DEFAULTS: Mapping[str, str] = {"transA": "OP_N", "transB": "OP_N", "epilogue": "EPILOGUE_DEFAULT"}
"""What an attribute is that cuBLASLt does not print."""

_SCALE_MODES: Mapping[str, str] = {
    "SCALAR_32F": "scalar",
    "OUTER_VEC_32F": "row",
    "VEC32_UE8M0": "block32",
    "VEC16_UE4M3": "block16_e4m3",
    "VEC128_32F": "block128",
    "BLK128x128_32F": "block128x128",
}
"""``aScaleMode`` and its kin; the words of ``enums.SCALES``, and those of traces for blocks of 128."""


def scales(desc: Mapping[str, str]) -> dict[str, str | None]:
    """How the matrices are scaled, as far as the descriptor states it: one factor unless it names a mode."""
    out: dict[str, str | None] = {}
    for x in "abcd":
        mode = desc.get(f"{x}ScaleMode", "SCALAR_32F")
        given = desc.get(f"{x}ScalePointer", "").strip("0xX") != ""
        out[f"scale_{x}"] = _SCALE_MODES.get(mode) if given else "none"
    return out


def solution(text: str | None) -> Solution | None:
    """``cublaslt:id=66,tile=192x192,…`` from the ``algo=[…]`` group of a Trace line; None where algo was NULL."""
    if not text or "=" not in text:
        return None
    values = dict(word.partition("=")[::2] for word in text.split())
    known = [f"{ours}={values[key].removeprefix(x)}" for ours, key, _, _, x in ATTRIBUTES if values.get(key)]
    # An attribute that the table does not know is part of the identity all the same.
    unknown = [f"{key}={value}" for key, value in sorted(values.items()) if key not in {x[1] for x in ATTRIBUTES}]
    return Solution("cublaslt", ",".join([*known, *unknown]), raw=text)
