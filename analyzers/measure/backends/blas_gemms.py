"""GEMMs as cuBLASLt and hipBLASLt take them: hipBLASLt's interface is a copy of cuBLASLt's, with the same numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

from analyzers.measure.backend import UnsupportedError
from analyzers.measure.device.operands import matrices
from logparse.model import GemmProblem, Problem

TYPES = {"f32_r": 0, "xf32_r": 0, "f64_r": 1, "f16_r": 2, "bf16_r": 14, "f8_r": 28, "bf8_r": 29}
"""cudaDataType_t and hipDataType (library_types.h)."""
EPILOGUES = {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}
"""cublasLtEpilogue_t (cublasLt.h) and hipblasLtEpilogue_t (hipblaslt.h)."""


def epilogue(gemm: GemmProblem) -> str:
    """The library's word for the epilogue; what is not known of it is taken for absent."""
    return replace(gemm, activation=gemm.activation or "none", bias=bool(gemm.bias)).epilogue or "DEFAULT"


def scalar(gemm: GemmProblem, *, one: bool) -> int:
    """The address of 1 or 0 in the compute type, which outlives every call."""
    return ctypes.addressof(_number(gemm.compute_type, one))


@cache
def _number(compute_type: str | None, one: bool) -> Any:
    if compute_type == "f16_r":
        return ctypes.c_uint16(0x3C00 if one else 0)  # 1.0 in half precision
    return (ctypes.c_double if compute_type == "f64_r" else ctypes.c_float)(1 if one else 0)


def scale_type(gemm: GemmProblem) -> int:
    """cudaDataType_t and hipDataType of alpha and beta."""
    return {"f64_r": 1, "f16_r": 2}.get(gemm.compute_type or "", 0)


def supported_gemm(
    problem: Problem,
    types: Collection[str],
    compute_types: Collection[str],
    scales: Collection[str | None],
    epilogues: Collection[str] = EPILOGUES,
    *,
    alpha_vector: bool = False,
) -> GemmProblem:
    """The problem, where a library of these type words runs it; ``alpha_vector``: whether it takes one.

    Raises UnsupportedError, also for a grouped GEMM.
    """
    if not isinstance(problem, GemmProblem):
        raise UnsupportedError(f"a {problem.kind}")
    if problem.members:
        raise UnsupportedError("a grouped GEMM")
    if epilogue(problem) not in epilogues:
        raise UnsupportedError(f"epilogue {problem.epilogue}")
    used = (problem.scale_a, problem.scale_b, problem.scale_c, problem.scale_d)
    if any(x not in scales for x in used) or (problem.scale_alpha_vector and not alpha_vector):
        raise UnsupportedError("scaled operands")
    if problem.swizzle_a or problem.swizzle_b:
        raise UnsupportedError("swizzled operands")
    if (problem.compute_type or "f32_r") not in compute_types:
        raise UnsupportedError(f"compute type {problem.compute_type}")
    if any(matrix.dtype not in types for matrix in matrices(problem).values()):
        raise UnsupportedError("a type that the library does not have")
    return problem
