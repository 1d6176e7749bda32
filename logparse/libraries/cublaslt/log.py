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
mode, the scale is one factor.  A layout has ``order=ORDER_ROW`` if the matrix is stored row by row, not column by
column (``in_columns``).  The third bracket of the prefix is the thread.  The layer is ``Hint``, not ``Hints`` as in
hipBLASLt's log.  One line is written per heuristic query (``heuristicResults=[66]``: the ids of the returned
algorithms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logparse.libraries.cublaslt.names import ATTRIBUTES
from logparse.libraries.kinds.patterns import regex
from logparse.model import COMPLEX, Solution, Trans

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


class OrderError(ValueError):
    """Raised if no product of matrices that are stored column by column computes the call of a log line."""


def in_columns(layouts: Mapping[str, Mapping[str, str]], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the matrix product that computes the same with matrices that are stored column by column.

    * ``layouts``: the layouts of A, B, C and D in a Trace line.
    * ``fields``: the fields of ``GemmProblem`` that follow if the order of the layouts is ignored.

    A matrix X with ``order=ORDER_ROW`` is the transposed matrix Xᵀ in the usual order, with the same leading dimension.

    | stored row by row | product |
    |---|---|
    | A or B | the operand's ``trans`` changes from N to T or from T to N |
    | C and D | Dᵀ = op(B)ᵀ · op(A)ᵀ: A and B change places, m and n too, and each ``trans`` changes once more |

    Raises OrderError for any other order, and for a call that has no such product.
    """
    by_row = {x: _is_by_row(layout) for x, layout in layouts.items()}
    if by_row["c"] != by_row["d"]:
        raise OrderError(f"C and D have different memory orders, {_NO_NAME}")
    if by_row["d"] and any(fields.get(x) for x in ("bias", "gradient", "scale_alpha_vector")):
        # Such a vector has a value for each row of D, which is a column of Dᵀ.
        raise OrderError(f"D has order=ORDER_ROW and a vector (bias or alpha), {_NO_NAME}")
    out = dict(fields)
    for x in "ab":
        if by_row[x] != by_row["d"]:
            out[f"trans_{x}"] = _transpose(out[f"trans_{x}"], out[f"{x}_type"])
    if by_row["d"]:
        out |= {y: out[x] for pair in _SWAPPED for x, y in (pair, pair[::-1]) if x in out}
    return out


_NO_NAME = "and logparse has no name for such a product"
_SWAPPED = (
    *(("m", "n"), ("trans_a", "trans_b"), ("a_type", "b_type")),
    *(("lda", "ldb"), ("stride_a", "stride_b"), ("scale_a", "scale_b")),
)
"""Fields that change places in the transposed product."""


def _is_by_row(layout: Mapping[str, str]) -> bool:
    order = layout.get("order", "ORDER_COL")
    if order not in ("ORDER_COL", "ORDER_ROW"):
        raise OrderError(f"a matrix has order={order}, {_NO_NAME}")
    return order == "ORDER_ROW"


def _transpose(trans: Trans | None, dtype: str | None) -> Trans | None:
    if trans == "C" and (dtype is None or dtype in COMPLEX):
        raise OrderError(f"an operand is conjugated but not transposed, {_NO_NAME}")
    return None if trans is None else "T" if trans == "N" else "N"


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
