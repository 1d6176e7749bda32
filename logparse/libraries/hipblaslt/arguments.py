"""The names and values with which hipblaslt-bench describes a GEMM, for example ``transA`` and ``batch_count``.

hipBLASLt's logs, profile records, YAML lists, result rows and tuning files use the same names.  Source: ROCm/hipBLASLt
``clients/benchmarks/client.cpp``, ``clients/include/hipblaslt_common.yaml``.  Source of the columns in result rows and
tuning files: ``argument_model.hpp`` and ``testing_matmul.hpp`` (5.5 to 2026).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.hipblaslt import enums
from logparse.model import GemmProblem, Member, Message, Problem

TYPES = ("a_type", "b_type", "c_type", "d_type")
_OTHER_TYPES = ("scale_type", "bias_type", "aux_type")
WORDS: Mapping[str, Collection[str]] = {
    **dict.fromkeys(("transA", "transB"), ("N", "T", "C")),
    **dict.fromkeys((*TYPES, *_OTHER_TYPES), enums.BENCH_TYPES),
    "compute_type": (*enums.PROFILE_COMPUTE_TYPES, *enums.PROFILE_COMPUTE_TYPES.values()),
    "activation_type": ("none", "relu", "gelu", "swish", "clamp", "sigmoid"),
    "bias_source": ("a", "b", "d"),
}
"""The allowed words of each hipblaslt-bench argument that takes a word from a fixed list."""
SWITCHES: Mapping[str, bool] = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
SCALE_WORDS: Mapping[str, str] = {
    **enums.SCALES,
    **{text: enums.SCALES[str(int(is_set))] for text, is_set in SWITCHES.items()},
}


ONLY_IN_BLOCKS = frozenset({"f4_r", "f6_r", "bf6_r"})
"""Data types whose matrices always have one scale factor for each block of elements.

Builds of hipBLASLt from 2026 wrongly log ``--scaleA 0`` for them (rocm-libraries issue 12024).  So a logged 0 means
that the scale is unknown.
"""
ALSO_IN_BLOCKS = frozenset({"f8_r", "bf8_r"})
"""Data types whose matrices may have one scale factor for each block of elements (MXFP8), or none at all.

Builds of hipBLASLt from 2026 log ``--scaleA 0 --scaleB 0`` in both cases.  So these two zeros mean that the scale is
unknown.  The types of gfx942 (``f8_fnuz_r``, ``bf8_fnuz_r``) are never scaled in blocks.
"""


def unlogged_scale(problem: Problem) -> bool:
    """Return True if a log line does not tell how an 8-bit, 6-bit or 4-bit product is scaled."""
    if not isinstance(problem, GemmProblem) or None not in (problem.scale_a, problem.scale_b):
        return False
    # Types of 6 and 4 bits always have a scale for each block of elements. Types of 8 bits may have scales for blocks.
    types = {problem.a_type, problem.b_type}
    return not ONLY_IN_BLOCKS.isdisjoint(types) or types <= ALSO_IN_BLOCKS


def no_scale(gemm: GemmProblem) -> Message:
    """Return a message for the user that the library's log does not tell how this product is scaled."""
    return Message(category="info", function="scale", text=f"the log states no scale of {gemm.label}")


def problem(
    values: Mapping[str, str | None], sizes: Mapping[str, Any], *, absent: bool | None, logged: bool = False
) -> GemmProblem:
    """Return the matrix product that the arguments of hipblaslt-bench describe.

    ``sizes`` holds the fields for its sizes, or the ``members`` of a grouped GEMM. ``logged``: True for a line of the
    library's log, which may lack a block scale (``ALSO_IN_BLOCKS``). A typed command and a tool's output state it.

    * If an argument has no value or an invalid value, its field is unknown (None).
    * If an argument is missing, its field is unknown too, except for switches, scales and the activation.
    * ``absent`` decides about a missing switch, scale or activation: with False it is not set, with None it is unknown.

    Raises ValueError if the text of a number is no number.
    """

    def switch(name: str) -> bool | None:
        return SWITCHES.get(values.get(name) or "", absent)

    def scale(name: str) -> str | None:
        given = SCALE_WORDS.get(values.get(name) or ("0" if absent is False else ""))
        return None if given == "none" and blocks and name in ("scaleA", "scaleB") else given

    operands = {values.get(f"{x}_type") for x in "ab"}
    zeros = all(SCALE_WORDS.get(values.get(f"scale{x}") or "") == "none" for x in "AB")
    blocks = not ONLY_IN_BLOCKS.isdisjoint(operands) or (logged and zeros and operands <= ALSO_IN_BLOCKS)
    bias, gradient = switch("bias_vector"), switch("gradient")
    activation = values.get("activation_type", None if absent is None else "")
    # ROCm 6.3 writes the flag without a value if there is no activation.
    activation = "none" if activation == "" else activation
    types = {name: x if (x := values.get(name)) in enums.BENCH_TYPES else None for name in (*TYPES, *_OTHER_TYPES)}
    compute = enums.PROFILE_COMPUTE_TYPES.get(values.get("compute_type") or "", values.get("compute_type"))
    trans = {f"trans_{x.lower()}": (values.get(f"trans{x}") or "").upper() for x in "AB"}
    fields: dict[str, Any] = {
        **{name: text if text in ("N", "T", "C") else None for name, text in trans.items()},
        "batch_count": int(values.get("batch_count") or 1),
        # Written since hipBLASLt 1.4.  Before, all batches are strided.
        "batch_mode": {"0": "strided", "1": "pointer"}.get(values.get("batch_mode") or "0"),
        "compute_type": compute if compute in enums.BENCH_COMPUTE_TYPES else None,
        **types,
        "activation": activation,
        "gradient": gradient,
        # An activation's derivative reads the matrix that the forward pass kept, even if the line does not state the
        # matrix.
        "aux": switch("use_e") or (gradient and activation in ("relu", "gelu")),
        "bias": bias,
        "bias_source": (values.get("bias_source") or (None if gradient is None else "d")) if bias else None,
        **{f"scale_{x.lower()}": scale(f"scale{x}") for x in "ABCD"},
        "scale_alpha_vector": switch("scaleAlpha_vector"),
        "swizzle_a": switch("swizzleA"),
        "swizzle_b": switch("swizzleB"),
        "beta": enums.beta_of(values.get("beta"), values.get("betai")),
        **{f"compute_input_{x.lower()}_type": _computed_as(values, types, x) for x in "AB"},
        "sm_count": int(values.get("sm_count_target") or 0),
    }
    return GemmProblem(**enums.default_types({**fields, **sizes}))


def _computed_as(values: Mapping[str, str | None], types: Mapping[str, str | None], side: str) -> str | None:
    """Return the data type in which operand A or B is multiplied.

    An argument of hipblaslt-bench may state it. Without the argument the operand is not converted, so the result is the
    operand's own type.
    """
    given = values.get(f"compute_input_type{side}")
    if given is None:
        return types[f"{side.lower()}_type"]
    return given if given in enums.BENCH_TYPES else None


def arguments(problem: GemmProblem, what: str) -> dict[str, str | bool]:
    """Return the arguments by which hipblaslt-bench would describe a matrix product, without its sizes.

    ``what`` names the output that needs the arguments, for error messages.  Raises EmissionError if a transpose, the
    batch count or a type is unknown.
    """
    p = problem.normal
    known = {"transA": p.trans_a, "transB": p.trans_b, "batch_count": p.batch_count}
    types = {**{name: getattr(p, name) for name in TYPES}, "c_type": p.c_type or p.d_type}
    # Without these values the arguments would describe another product.
    unknown = [name for name, value in {**known, **types, "compute_type": p.compute_type}.items() if value is None]
    if unknown:
        raise EmissionError(f"{what} for {problem.label} needs these values, which are unknown: {', '.join(unknown)}")
    # An unknown scale is written as none. But 4- and 6-bit products have no kernel without scales, so their unknown
    # scale is written as blocks of 32 (MX formats).
    scales = {x: getattr(p, f"scale_{x}") or "none" for x in "abcd"}
    if not ONLY_IN_BLOCKS.isdisjoint((p.a_type, p.b_type)):
        scales |= {x: getattr(p, f"scale_{x}") or "block32" for x in "ab"}
    # The arguments have the order in which hipBLASLt logs them.
    return {
        "alpha": "1.000000",
        "beta": "1.000000" if p.beta == "nonzero" else "0.000000",
        **{name: str(value) for name, value in known.items()},
        **({"batch_mode": "1"} if p.batch_mode == "pointer" else {}),
        **{f"scale{x.upper()}": enums.SCALE_CODES.get(scales[x], "0") for x in "abcd"},
        "swizzleA": bool(p.swizzle_a),
        "swizzleB": bool(p.swizzle_b),
        "scaleAlpha_vector": bool(p.scale_alpha_vector),
        "gradient": bool(p.gradient),
        "use_e": bool(p.aux),
        "bias_vector": bool(p.bias),
        "bias_source": p.bias_source or "d",
        **types,
        **{name: value for name in _OTHER_TYPES if (value := getattr(p, name))},
        "compute_type": str(p.compute_type),
        **{
            f"compute_input_type{x.upper()}": str(given)
            for x in "ab"
            if (given := getattr(p, name := f"compute_input_{x}_type")) and name not in p.plain
        },
        "activation_type": p.activation or "none",
    }


def sizes(size: Member | GemmProblem, problem: GemmProblem, what: str) -> dict[str, int]:
    """Return m, n, k, leading dimensions and strides of a GEMM, as a hipblaslt-bench command states them.

    * ``size`` is the GEMM, or one member of the grouped GEMM ``problem``.
    * Unknown leading dimensions and strides are computed as for matrices without gaps.
    * With a single batch an unknown stride is 0.
    * Raises EmissionError if m, n or k is unknown.  ``what`` names the output for the error message.
    """
    if size.m is None or size.n is None or size.k is None:
        raise EmissionError(f"{what} for {problem.label} needs these values, which are unknown: m, n or k")
    shape = GemmProblem(trans_a=problem.trans_a, trans_b=problem.trans_b, m=size.m, n=size.n, k=size.k)
    ld = {f"ld{x}": getattr(size, f"ld{x}") for x in "abcd"}
    # At β = 0 the library does not read C, but it checks C's layout.
    ld["ldc"] = ld["ldd"] if ld["ldc"] is None else ld["ldc"]
    ld = enums.tight_leading_dimensions(shape) | {name: value for name, value in ld.items() if value is not None}
    strides = {f"stride_{x}": getattr(size, f"stride_{x}") for x in "abcd"}
    tight = dict.fromkeys(strides, 0) if problem.batch_count == 1 else tight_strides(shape, ld)
    known = {name: value for name, value in strides.items() if value is not None}
    return {"m": size.m, "n": size.n, "k": size.k, **ld, **tight, **known}


_NUMBERS = ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "batch_count", *(f"stride_{x}" for x in "abcd"))
_COLUMNS: Mapping[str, str] = {
    **{name.lower(): name for name in ("transA", "transB", "scaleA", "scaleB", "scaleC", "scaleD", "beta")},
    **{name: name for name in (*TYPES, "bias_type", "compute_type", "activation_type", "bias_vector")},
    "swizzle_a": "swizzleA",
    "swizzle_b": "swizzleB",
}
"""For each column of hipblaslt-bench's results, the argument of hipblaslt-bench with the same meaning.

The column ``aux_type`` is left out.  That column is printed even if there is no auxiliary matrix, and no version prints
the argument ``use_e``, which would tell.
"""


def problem_of_row(cells: Mapping[str, str]) -> GemmProblem | None:
    """Return the matrix product in one row of hipblaslt-bench's results.  None for a grouped GEMM.

    ``cells`` maps the names of the columns to texts.  Raises ValueError if a number cannot be read.
    """
    low = {name.lower(): value.strip() for name, value in cells.items()}
    # A row does not list the members of a grouped GEMM.
    if low.get("grouped_gemm", "0") not in ("0", "false"):
        return None
    sizes = {name: int(low[name]) for name in _NUMBERS if name in low}
    # Fields for which this version prints no column are unknown.
    values = {argument: low.get(name) for name, argument in _COLUMNS.items()}
    if "aux_type" not in low:  # Before 7.0 there is no swizzle.
        values |= {argument: values[argument] or "0" for argument in ("swizzleA", "swizzleB")}
    return problem(values, {"batch_count": None, "batch_mode": None, **sizes}, absent=None)


def tight_strides(shape: GemmProblem, ld: Mapping[str, int]) -> dict[str, int]:
    """Return the stride (in elements) from one matrix of a batch to the next, if there are no gaps in memory.

    The stride is the leading dimension times the number of columns.  Transposes and sizes must be known.
    """
    m, n, k = shape.m or 0, shape.n or 0, shape.k or 0
    columns = {"a": k if shape.trans_a == "N" else m, "b": n if shape.trans_b == "N" else k, "c": n, "d": n}
    return {f"stride_{x}": ld[f"ld{x}"] * count for x, count in columns.items()}
