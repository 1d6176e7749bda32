"""cuBLAS's own log: every call of its API with its arguments.

Produced by ``CUBLAS_LOGINFO_DBG=1 CUBLAS_LOGDEST_DBG=cublas.log`` (or ``stdout``, ``stderr``); ``api_log`` has the
grammar of a block.  The classic products are calls: ``cublasSgemm_v2``, ``cublasGemmEx``,
``cublasGemmStridedBatchedEx`` …, with and without ``_64``.  ``cublasLtMatmul`` is in cuBLASLt's log alone.

α and β are pointers, so β is unknown.  C is also the result: D has its type, leading dimension and stride.  A product
in float computes in TF32 where the handle's ``MathMode`` allows it (cuBLAS documentation, ``cublasMath_t``).
Seen of cuBLAS 13.1 with PyTorch 2.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logparse.formats.format import BlockFormat
from logparse.formats.hipblaslt.enums import compute_type, data_type
from logparse.formats.nvidia.api_log import ApiLog, Block, Reader
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import Call, Fact, GemmProblem, Record, Trans

CATEGORY = "cublas"
_GEMM = regex(r"cublas([SDCZH]?)[gG]emm(?:3m)?(StridedBatched|Batched)?(Ex)?(?:_v2)?(?:_64)?\Z")
_TYPES: Mapping[str, str] = {"S": "f32_r", "D": "f64_r", "H": "f16_r", "C": "f32_c", "Z": "f64_c"}
_COMPUTE: Mapping[str, str] = {"S": "f32_r", "D": "f64_r", "H": "f16_r", "C": "f32_r", "Z": "f64_r"}
_OPERATIONS: Mapping[str, Trans] = {"CUBLAS_OP_N": "N", "CUBLAS_OP_T": "T", "CUBLAS_OP_C": "C"}
_SCALE: Mapping[str, str] = {"f64_r": "f64_r", "f16_r": "f16_r", "i32_r": "i32_r"}
"""Scale type by compute type; that of a float compute type is float (complex, where the matrices are)."""


def read(block: Block) -> Call | None:
    """The product of a block.  Raises ValueError where an argument lacks or is no number."""
    match = _GEMM.match(block.function)
    if match is None:
        return None
    if block.repeated:
        raise ValueError("two calls in one another")
    letter, batching, _ = match.groups()
    given = {name: value.partition("(")[0] for name, value in block.values.items()}
    missing = [name for name in ("transa", "transb", "m", "n", "k", "lda", "ldb", "ldc") if name not in given]
    if missing:
        raise ValueError(f"no {missing[0]}")
    values: dict[str, Any] = {name: int(given[name]) for name in ("m", "n", "k", "lda", "ldb", "ldc")}
    values |= {f"trans_{x}": _OPERATIONS.get(given[f"trans{x}"]) for x in "ab"}
    values |= {f"{x}_type": data_type(given.get(f"{x.upper()}type", "")[5:]) or _TYPES.get(letter) for x in "abc"}
    values |= {"ldd": values["ldc"], "d_type": values["c_type"], "batch_count": 1}
    if batching is not None:
        values["batch_count"] = int(given.get("batchCount", ""))
        values["batch_mode"] = "pointer" if batching == "Batched" else "strided"
    if batching == "StridedBatched":
        values |= {f"stride_{x}": int(given.get(f"stride{x.upper()}", "")) for x in "abc"}
        values["stride_d"] = values["stride_c"]
    compute = _compute(letter, given.get("computeType", ""), values["a_type"], block.math_mode)
    complex_ = str(values["a_type"]).endswith("_c")
    scale = _SCALE.get(compute or "", "f32_r") if compute else None
    problem = GemmProblem(
        compute_type=compute, scale_type=scale.replace("_r", "_c") if scale and complex_ else scale, activation="none",
        bias=False, gradient=False, aux=False, scale_alpha_vector=False, **values,
    )  # fmt: skip
    return Call(problem=problem, category=CATEGORY, device=block.gpu, pid=block.pid)


def _compute(letter: str, text: str, a_type: str | None, math_mode: str | None) -> str | None:
    if text:  # a data type up to CUDA 10
        known = compute_type(text.removeprefix("CUBLAS_")) or data_type(text.removeprefix("CUDA_"))
    else:
        known = _COMPUTE.get(letter)
    tf32 = math_mode is not None and "TF32" in math_mode and a_type in ("f32_r", "f32_c")
    return "xf32_r" if tf32 and known == "f32_r" else known


def _facts(version: str) -> Iterable[Record]:
    return (Fact("cublas_version", version), Fact("backend", "CUDA"))


_LOG = ApiLog(
    category=CATEGORY,
    opening=regex(
        r"(?P<level>[IWE])! cuBLAS \(v(?P<version>[\d.]+)\) function (?:\w+ )?(?P<function>\w+)\(.*\) called:\s*\Z"
    ),
    last=" COMPILED WITH",
    is_call=lambda function: _GEMM.match(function) is not None,
    read=read,
    facts=_facts,
)
_MARKERS = (b"cuBLAS (v",)  # begins with pairs of letters that are rare elsewhere: fast to search

FORMAT = BlockFormat(
    name="cublas-log",
    about="cuBLAS's log of its API (CUBLAS_LOGINFO_DBG=1)",
    markers=_MARKERS,
    begin=ranked(_MARKERS, lambda: Reader(_LOG)),
)
