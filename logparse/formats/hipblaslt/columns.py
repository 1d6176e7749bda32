"""The columns of a hipblaslt-bench result row, which are also those of a tuning file's row.

Source: ROCm/hipBLASLt ``clients/include/argument_model.hpp`` and ``clients/include/testing_matmul.hpp`` (5.5 to 2026).
A column that a version does not print leaves its field None: no version prints the scale type, gradient, use_e or the
bias source, and before 6.3 none prints the types of A, B and C.  ``aux_type`` is printed whether or not there is an aux
matrix, so without ``use_e`` it has no meaning and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logparse.formats.hipblaslt.enums import BENCH_COMPUTE_TYPES, BENCH_TYPES, SCALES, beta_of
from logparse.model import GemmProblem

_NUMBERS: Mapping[str, str] = {
    **{name: name for name in ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "batch_count")},
    **{f"stride_{x}": f"stride_{x}" for x in "abcd"},
}
_TYPES = ("a_type", "b_type", "c_type", "d_type", "bias_type")
_SCALES = {"scalea": "scale_a", "scaleb": "scale_b", "scalec": "scale_c", "scaled": "scale_d"}
_FLAGS = {"bias_vector": "bias", "swizzle_a": "swizzle_a", "swizzle_b": "swizzle_b"}

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
    out: dict[str, Any] = {ours: int(low[name]) for name, ours in _NUMBERS.items() if name in low}
    for side in "ab":
        trans = low.get(f"trans{side}", "").upper()
        out[f"trans_{side}"] = trans if trans in ("N", "T", "C") else None
    out |= {name: low[name] for name in _TYPES if low.get(name) in BENCH_TYPES}  # else "non-supported type"
    out["compute_type"] = low["compute_type"] if low.get("compute_type") in BENCH_COMPUTE_TYPES else None
    out["activation"] = low.get("activation_type")
    out |= {ours: SCALES.get(low[name]) for name, ours in _SCALES.items() if name in low}
    out |= {ours: {"0": False, "1": True}.get(low[name]) for name, ours in _FLAGS.items() if name in low}
    out["beta"] = beta_of(low.get("beta"))
    return GemmProblem(**out)


def row(names: tuple[str, ...], line: str) -> dict[str, str] | None:
    """Names and values of one row matched by count, None where the counts differ."""
    values = [value.strip() for value in line.split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None
