"""Read and write the names that TunableOp has for kernels.

::

    Default                                  PyTorch's normal call
    Gemm_Hipblaslt_477479                    2.7 and later: hipBLASLt's solution index
    Gemm_Hipblaslt_TN_12683                  up to 2.6: the same, with the layout of the op
    Gemm_Rocblas_-9                          rocBLAS's solution index, negative ones included
    Gemm_Cublaslt_id_66_tile_209_stages_35_splitk_1_red_0_swizzle_0_custom_4_inner_0_cluster_3      CUDA, 2.14

An index is valid only for one build of the library and one gfx architecture. Source: pytorch/pytorch
aten/src/ATen/cuda/tunable/{GemmHipblaslt.h,GemmRocblas.h,GemmCublaslt.h}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logparse.libraries.cublaslt.names import algorithm_text, algorithm_values
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.tunableop.signature import torch_version
from logparse.model import COMPLEX, DEFAULT, NARROW, GemmProblem, Problem, Solution

_HIPBLASLT = regex(r"Gemm_Hipblaslt_(?:[NT]{2}_)?(\d{1,18})\Z")
_ROCBLAS = regex(r"Gemm_Rocblas_(-?\d{1,18})\Z")
_CUBLASLT = regex(
    r"Gemm_Cublaslt_id_(?P<id>\d{1,9})_tile_(?P<tile>\d{1,9})_stages_(?P<stages>\d{1,9})"
    r"_splitk_(?P<splitk>-?\d{1,9})_red_(?P<reduction>\d{1,9})"
    r"_swizzle_(?P<swizzle>\d{1,9})_custom_(?P<custom>\d{1,9})(?:_inner_(?P<inner>\d{1,9})_cluster_(?P<cluster>\d{1,9}))?\Z"
)


def solution(name: str) -> Solution:
    """Parse TunableOp's name of a kernel, for example ``Gemm_Hipblaslt_477479``.

    PyTorch loads any name.  So a name of unknown form becomes a kernel of the library ``torch``.
    """
    if name == "Default":
        return DEFAULT
    if match := _HIPBLASLT.match(name):
        return Solution("hipblaslt", str(int(match[1])), raw=name)
    if match := _ROCBLAS.match(name):
        return Solution("rocblas", str(int(match[1])), raw=name)
    if match := _CUBLASLT.match(name):
        values = {key: int(value) for key, value in match.groupdict().items() if value is not None}
        return Solution("cublaslt", algorithm_text(values), raw=name)
    return Solution("torch", name, raw=name)


def name(given: Solution, problem: Problem, facts: Mapping[str, str]) -> str:
    """Return TunableOp's name of a kernel, for example ``Gemm_Rocblas_-9``, in the PyTorch of the target machine.

    Raises ValueError if that PyTorch has no name for the kernel.
    """
    torch = torch_version(facts)
    if given.text == "Default":
        return "Default"
    if torch is None:
        raise ValueError("PyTorch's version is unknown")
    reason = why_no_candidate(given, problem)
    if reason or not isinstance(problem, GemmProblem):
        raise ValueError(reason)
    if given.library == "hipblaslt":
        letters = f"{problem.trans_a}{problem.trans_b}_".replace("C", "T")
        return f"Gemm_Hipblaslt_{letters if torch < (2, 7) else ''}{int(given.id)}"
    if given.library == "rocblas":
        return f"Gemm_Rocblas_{int(given.id)}"
    if torch < (2, 14):
        raise ValueError("PyTorch accepts cuBLASLt solutions only from version 2.14 on")
    words = {"reduction": "red"}
    return "Gemm_Cublaslt_" + "_".join(f"{words.get(n, n)}_{v}" for n, v in algorithm_values(given.id).items())


def why_no_candidate(given: Solution, problem: Problem) -> str | None:
    """Explain why no version of TunableOp tries this kernel for this product.  Return None if a version may try it.

    For example, TunableOp tries no hipBLASLt kernel for complex types.
    """
    if not isinstance(problem, GemmProblem):
        return "not a GEMM"
    if given.text == "Default":
        return None
    if given.library not in ("hipblaslt", "rocblas", "cublaslt"):
        return f"TunableOp does not know the solution {given.text}"
    if given.library != "cublaslt" and not re.fullmatch(r"-?\d+", given.id):
        return f"{given.text} is not a solution index"
    if given.library == "hipblaslt" and problem.a_type in COMPLEX:
        return "TunableOp tries no hipBLASLt solutions for products of complex types"
    if given.library == "rocblas" and (problem.bias or problem.a_type in NARROW):
        return (
            "TunableOp tries no rocBLAS solutions for products with a bias or with scales (ops GemmAndBias and Scaled)"
        )
    return None


def hipblaslt_index(given: Solution, rocblas_version: str) -> int | None:
    """Return the number that hipBLASLt itself has for one of its kernels, if rocBLAS lists the kernel.

    Returns None if this is unknown.  Source: ROCm/rocm-libraries
    projects/rocblas/library/src/{tensile_host,hipblaslt_host}.cpp.
    """
    # In rocBLAS 5 (ROCm 7) a positive number r means hipBLASLt's kernel r - 1. rocBLAS 4 also gives positive numbers to
    # its own kernels, so its numbers are not translated.
    major = re.match(r"(\d+)\.", rocblas_version)
    if given.library != "rocblas" or major is None or int(major[1]) < 5 or int(given.id) <= 0:
        return None
    return int(given.id) - 1
