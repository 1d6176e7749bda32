"""The columns of a hipblaslt-bench result row, which are also those of a tuning file's row.

Source: ROCm/hipBLASLt ``clients/include/argument_model.hpp`` and ``clients/include/testing_matmul.hpp`` (5.5 to 2026).
A column that a version does not print leaves its field None: no version prints the scale type, gradient, use_e or the
bias source, and before 6.3 none prints the types of A, B and C.  ``aux_type`` is printed whether or not there is an aux
matrix, so without ``use_e`` it has no meaning and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.formats.hipblaslt import arguments
from logparse.model import GemmProblem

_NUMBERS = ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "batch_count", *(f"stride_{x}" for x in "abcd"))
_ARGUMENTS: Mapping[str, str] = {
    **{name.lower(): name for name in ("transA", "transB", "scaleA", "scaleB", "scaleC", "scaleD", "beta")},
    **{name: name for name in (*arguments.TYPES, "bias_type", "compute_type", "activation_type", "bias_vector")},
    "swizzle_a": "swizzleA",
    "swizzle_b": "swizzleB",
}
"""The columns that are read, in lower case, and the arguments of the same meaning."""

TUNING_COLUMNS: tuple[str, ...] = (
    *("transA", "transB", "grouped_gemm", "batch_count", "m", "n", "k", "alpha", "lda", "stride_a", "beta"),
    *("ldb", "stride_b", "ldc", "stride_c", "ldd", "stride_d", "a_type", "b_type", "c_type", "d_type", "compute_type"),
    *("scaleA", "scaleB", "scaleC", "scaleD", "amaxD", "activation_type", "bias_vector", "bias_type"),
    *("rotating_buffer", "hipblaslt-Gflops", "hipblaslt-GB/s", "us", "solution_index", "gcnArchName", "CUs"),
)
"""The 37 columns of a ROCm 6.4 tuning row, named as hipblaslt-bench names them from 7.0 on."""


def problem(cells: Mapping[str, str]) -> GemmProblem | None:
    """The GEMM of one row (column name to text).  None for a grouped GEMM: a row does not hold its members.

    Raises ValueError where a text is no number.
    """
    low = {name.lower(): value.strip() for name, value in cells.items()}
    if low.get("grouped_gemm", "0") not in ("0", "false"):
        return None
    sizes = {name: int(low[name]) for name in _NUMBERS if name in low}
    values = {argument: low.get(name) for name, argument in _ARGUMENTS.items()}
    return arguments.problem(values, {"batch_count": None, "batch_mode": None, **sizes}, absent=None)


def row(names: tuple[str, ...], line: str) -> dict[str, str] | None:
    """Names and values of one row matched by count, None where the counts differ."""
    values = [value.strip() for value in line.split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None
