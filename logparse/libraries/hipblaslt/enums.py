"""Tables of the names that hipBLASLt (and cuBLASLt) give to data types, epilogues and scales.

Sources: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/utility.cpp`` (texts of prefixed lines),
``clients/include/argument_model.hpp`` (bench words), ``clients/include/hipblaslt_arguments.hpp`` (codes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from logparse.model import NARROW, Beta, GemmProblem

BENCH_TYPES = frozenset(
    {"f64_r", "f32_r", "xf32_r", "f16_r", "bf16_r", "i32_r", "i8_r", "u8_r", "f32_c", "f64_c"}
    | {"f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "f6_r", "bf6_r", "f4_r"}
)
"""Data types that hipblaslt-bench knows, in its spelling."""

BENCH_COMPUTE_TYPES = frozenset(
    {"f16_r", "f32_r", "xf32_r", "f64_r", "i32_r", "f32_f16_r", "f32_bf16_r"}
    | {"f32_f8_r", "f32_bf8_r", "f32_f8bf8_r", "f32_bf8f8_r"}
)

SHORT_TYPES: Mapping[str, str] = {
    "s": "f32_r",
    "d": "f64_r",
    "h": "f16_r",
    "i8": "i8_r",
    "i": "i32_r",
    "c": "f32_c",
    "z": "f64_c",
}
"""The data type for each short name that hipblaslt-bench accepts, such as ``h`` (``string_to_hip_datatype``)."""

SHORT_COMPUTE_TYPES: Mapping[str, str] = {
    "s": "f32_r",
    "x": "xf32_r",
    "d": "f64_r",
    "i": "i32_r",
    "c": "f32_r",
    "f32_c": "f32_r",
    "z": "f64_r",
    "f64_c": "f64_r",
}
"""The compute type for each short name that hipblaslt-bench accepts, such as ``s``.

Source: its function ``string_to_hipblas_computetype``, which knows complex types since 2026.
"""

DATA_TYPES: Mapping[str, str] = {
    "R_16F": "f16_r",
    "R_16BF": "bf16_r",
    "R_32F": "f32_r",
    "R_64F": "f64_r",
    "R_8I": "i8_r",
    "R_8U": "u8_r",
    "R_32I": "i32_r",
    # Bench lines write f8_r for OCP and FNUZ, because the arch decides.  So both texts become f8_r here.
    "R_8F_E4M3": "f8_r",
    "R_8F_E5M2": "bf8_r",
    "R_8F_E4M3_FNUZ": "f8_r",
    "R_8F_E5M2_FNUZ": "bf8_r",
    "R_6F_E2M3": "f6_r",
    "R_6F_E3M2": "bf6_r",
    "R_4F_E2M1": "f4_r",
    "C_32F": "f32_c",
    "C_64F": "f64_c",
}
"""The data type for each name in log lines with a prefix, for example ``R_16BF``.

hipBLASLt prints ``Invalid`` for every other type, and for R_32I too.  Such a type is unknown.
"""

COMPUTE_TYPES: Mapping[str, str] = {
    "16F": "f16_r",
    "32F": "f32_r",
    "32XF": "xf32_r",
    "64F": "f64_r",
    "32I": "i32_r",
    "32F_16F": "f32_f16_r",
    "32F_16BF": "f32_bf16_r",
    "32F_8F_FNUZ": "f32_f8_r",
    "32F_8BF_FNUZ": "f32_bf8_r",
    "32F_8F8BF_FNUZ": "f32_f8bf8_r",
    "32F_8BF8F_FNUZ": "f32_bf8f8_r",
    # cuBLASLt's names of the fast modes
    "32F_FAST_16F": "f32_f16_r",
    "32F_FAST_16BF": "f32_bf16_r",
    "32F_FAST_TF32": "xf32_r",
}
"""The compute type for each name in log lines, without ``COMPUTE_``.

hipblaslt-bench has no word for pedantic variants.  They get the compute type of the variant without ``_PEDANTIC``.
"""

PROFILE_COMPUTE_TYPES: Mapping[str, str] = {
    "c_f32_fast_f16_r": "f32_f16_r",
    "c_f32_fast_bf16_r": "f32_bf16_r",
    **{f"c_{word}": word for word in BENCH_COMPUTE_TYPES},
}
"""The compute type for each name in profile records and in YAML files for hipblaslt-bench, for example ``c_f32_r``."""


def data_type(text: str | None) -> str | None:
    return DATA_TYPES.get(text or "")


def compute_type(text: str | None) -> str | None:
    return COMPUTE_TYPES.get((text or "").removeprefix("COMPUTE_").removesuffix("_PEDANTIC"))


class Epilogue(NamedTuple):
    """The operations after a matrix product that a name in a log line stands for, for example ``RELU_BIAS``.

    The fields have the same names and meanings as in ``GemmProblem``.
    """

    activation: str
    bias: bool = False
    aux: bool = False
    gradient: bool = False
    bias_source: Literal["a", "b", "d"] | None = None


def _forward(word: str, *, aux: bool = False) -> dict[str, Epilogue]:
    """Explain the names of epilogues with one activation in the forward pass, for example ``RELU`` and ``RELU_BIAS``.

    With ``aux`` the names such as ``RELU_AUX`` are included: they also write a matrix for the backward pass.
    """
    act = word.lower()
    out = {word: Epilogue(act), f"{word}_BIAS": Epilogue(act, True, bias_source="d")}
    if aux:
        out[f"{word}_AUX"] = Epilogue(act, aux=True)
        out[f"{word}_AUX_BIAS"] = Epilogue(act, True, True, bias_source="d")
    return out


EPILOGUES: Mapping[str, Epilogue] = {
    "DEFAULT": Epilogue("none"),
    "BIAS": Epilogue("none", True, bias_source="d"),
    **_forward("RELU", aux=True),
    **_forward("GELU", aux=True),
    **_forward("SWISH"),
    **_forward("SIGMOID"),
    **_forward("CLAMP", aux=True),
    # The derivative of an activation reads the matrix that the forward pass kept, so these epilogues have aux.
    "DRELU": Epilogue("relu", aux=True, gradient=True),
    "DRELU_BGRAD": Epilogue("relu", True, True, True, "d"),
    "DGELU": Epilogue("gelu", aux=True, gradient=True),
    "DGELU_BGRAD": Epilogue("gelu", True, True, True, "d"),
    "BGRADA": Epilogue("none", True, False, True, "a"),
    "BGRADB": Epilogue("none", True, False, True, "b"),
}
"""The meaning of each epilogue name, without ``EPILOGUE_`` and ``_EXT``."""


def epilogue(text: str | None) -> Epilogue | None:
    """Return which operations follow a matrix product, from a name in a log line, such as ``RELU_BIAS``.

    Returns None if the library printed no known name.
    """
    name = (text or "").removeprefix("ROCBLASLT_").removeprefix("EPILOGUE_").replace("_EXT", "")
    return EPILOGUES.get(name)


SCALES: Mapping[str, str] = {
    "0": "none",
    "1": "scalar",
    "s": "scalar",
    "2": "row",
    "v": "row",
    "3": "block32",
    "4": "block16_e8m0",
    "5": "block32_e4m3",
    "6": "block16_e4m3",
    "7": "block32_e5m3",
    "8": "block16_e5m3",
    "1001": "block32_preswizzled",
}
"""The kind of scaling for each value of ``--scaleA`` or ``--scaleB``.

ROCm 6.3 writes the letters ``s`` and ``v``, later versions write numbers.  A vector scales the rows of op(A).
"""

SCALE_CODES: Mapping[str, str] = {word: code for code, word in SCALES.items() if code.isdigit()}


def default_types(values: dict[str, Any]) -> dict[str, Any]:
    """Add the types of the bias and the auxiliary matrix that hipBLASLt uses if a call does not set them.

    Source: hipBLASLt API reference, ``HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE`` and ``..._EPILOGUE_AUX_DATA_TYPE``.
    """
    d_type = values.get("d_type")
    # If D has 16 bits or more, the default is the type of D. For a narrower D it depends on the other types, so the
    # types stay unknown.
    if d_type is not None and d_type not in NARROW:
        for name in ("bias", "aux"):
            if values.get(name) and values.get(f"{name}_type") is None:
                values[f"{name}_type"] = d_type
    return values


def beta_of(*texts: str | None) -> Beta | None:
    """Tell whether the scalar β of a matrix product is "zero" or "nonzero".

    ``texts`` are its real part and perhaps its imaginary part.  Returns None if no text or no number is given.
    """
    try:
        # The library prints six decimals, so a β below 5e-7 is read as zero.
        parts = [float(text) for text in texts if text is not None]
    except ValueError:
        return None
    return None if not parts else "nonzero" if any(parts) else "zero"


def tight_leading_dimensions(problem: GemmProblem) -> dict[str, int]:
    """Return the leading dimensions of matrices without gaps, which are also hipblaslt-bench's defaults.

    The transposes must be known.  Returns an empty dictionary if m, n or k is unknown.
    """
    if problem.m is None or problem.n is None or problem.k is None:
        return {}
    a = problem.m if problem.trans_a == "N" else problem.k
    b = problem.k if problem.trans_b == "N" else problem.n
    return {"lda": a, "ldb": b, "ldc": problem.m, "ldd": problem.m}
