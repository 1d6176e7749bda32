"""Read and write the keys by which TunableOp looks up a matrix product: ``op_sig,param_sig``.

Every results row and every untuned row begins with a key.  Examples::

    GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096
    GemmAndBiasTunableOp_Half_NN,nn_768_2048_3072                                (before PyTorch 2.7: no leading dims)
    GemmStridedBatchedTunableOp_float_TN,tn_512_512_64_B_48_ld_64_64_512
    GemmTunableOp_c10::complex<float>_TN,cn_80_48_64_ld_64_64_80                 (c: conjugate; op_sig has T)
    ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,tn_64_128_2048_ld_2048_2048_64_rw_1_bias_None

The key describes the column-major BLAS call.  hipBLASLt gets the same M, N, K and leading dimensions, so
nothing is swapped.  The key does not hold alpha, beta, the activation (of GemmAndBias) or the batch strides, so several
problems share one key.

Source: pytorch/pytorch aten/src/ATen/cuda/tunable/{GemmCommon.h,TunableGemm.h,TunableOp.h}, torch 2.3 to 2.15.

logparse sets a field of the problem only if the key guarantees its value:

* C has the leading dimension and the type of D.  There is no gradient epilogue and no aux output.
* Gemm: no bias, no activation, batch count 1.
* GemmAndBias: a bias of the data's type.  Beta is 0, because the op's parameters have no beta.
* ScaledGemm: beta 0, no activation.
* Scaling ``_rw_1``: row-wise on both operands.
* Scaling ``_rw_0``: any other scaling.  For FNUZ types this is one factor per operand, because only gfx950 has block
  scales (pytorch/pytorch aten/src/ATen/native/cuda/ScaledBlas.cpp).  For other types it is unknown.

The compute type follows from the type in the op signature:

=====================================  ==============================================================
type                                   compute type
=====================================  ==============================================================
BFloat16, 8-bit and 4-bit floats       f32_r
double                                 f64_r
tf32                                   xf32_r
float, key with leading dimensions     f32_r
float, key without leading dimensions  unknown, because older PyTorch wrote ``float`` for tf32 too
Half                                   unknown, because a CUDA build may accumulate in half precision
=====================================  ==============================================================

The opt-in field ``BLAS_PARAMS`` adds beta, strides, compute type and activation; see :func:`with_blas_params`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.kinds.fp8 import FNUZ, on_arch
from logparse.libraries.kinds.patterns import regex
from logparse.model import COMPLEX, NARROW, GemmProblem, Problem, with_plain

OP_TEXT = r"(?:ScaledGemm|Gemm(?:StridedBatched|AndBias)?)TunableOp_"
OP = regex(OP_TEXT)
"""Pattern of the beginning of a TunableOp key, for example ``GemmTunableOp_``."""

_BIASES = ("Half", "BFloat16", "Float", "Double")
_OP_COMPUTE = {"f64_r": "f64_r", **dict.fromkeys(("f32_r", "bf16_r", *NARROW), "f32_r")}
_OP_TYPES: Mapping[str, tuple[str, str | None]] = {
    **{
        x.cpp if x.blas in COMPLEX else x.cpp.removeprefix("c10::"): (x.blas, _OP_COMPUTE.get(x.blas))
        for x in TORCH_TYPES
        if x.blas not in ("i8_r", "i32_r")
    },
    "tf32": ("f32_r", "xf32_r"),
    "bfx9": ("f32_r", "bf16x9"),
}
"""The data type and compute type for each of PyTorch's names in the first part of a key, for example ``BFloat16``.

The compute type is left empty if the key does not guarantee it.
"""

_OP_NAMES: Mapping[str, str] = {data: name for name, (data, _) in _OP_TYPES.items() if name not in ("tf32", "bfx9")}
_BIAS_TYPES: Mapping[str, str] = {x.scalar: x.blas for x in TORCH_TYPES if x.scalar in _BIASES}
"""The data type for each of PyTorch's names that follow ``_bias_`` in a key.

Here the name is ``Float`` with a capital F, but in the first part of the key it is ``float``.
"""

_SCALINGS: Mapping[str, str] = {"0": "scalar", "1": "row", "2": "block16", "3": "block32"}
"""The kind of scaling for each of ATen's numbers (``ScalingType`` in BlasBackend.h).

The block scalings of width 128 are missing, because ``GemmProblem`` has no name for them.  They stay unknown.
"""

_SCALE_TYPES: Mapping[str, str] = {"f64_r": "f64_r", "bf16_r": "f32_r", "f32_r": "f32_r"}

_FNUZ_TYPES = frozenset(FNUZ.values())
_TYPE = "|".join(sorted(map(re.escape, _OP_TYPES), key=len, reverse=True))
_PLAIN = regex(rf"(Gemm|GemmStridedBatched|GemmAndBias)TunableOp_({_TYPE})_([NT])([NT])\Z")
_SCALED = regex(rf"(ScaledGemm)TunableOp_({_TYPE})_({_TYPE})_({_TYPE})_([NT])([NT])\Z")
_SIZE = r"(\d{1,19})"  # 64-bit sizes.  Python's int raises above some thousand digits.
_PARAMS = regex(
    rf"([ntc])([ntc])_{_SIZE}_{_SIZE}_{_SIZE}(?:_B_{_SIZE})?(?:_ld_{_SIZE}_{_SIZE}_{_SIZE})?(?P<tail>_.*)?\Z", re.DOTALL
)
_ROCM_TAIL = regex(r"_rw_([01])_bias_(\w+?)(?:_swz_(\d{1,9})_(\d{1,9}))?\Z")
_CUDA_TAIL = regex(r"_a_\w+_b_\w+_c_\w+_as_\w+_bs_\w+_ast_(\d{1,9})_bst_(\d{1,9})_dscale_([01])_fast_[01]_bias_(\w+)\Z")
_BF16X9_TAIL = "_compute_bf16x9_r"
_SIZES = ("m", "n", "k", "batch_count", "lda", "ldb", "ldc")


class SignatureError(ValueError):
    """Raised if a text is not a key of a matrix product in TunableOp's files.

    ``part`` is 0 if the part before the comma is wrong, and 1 if the part after the comma is wrong.
    """

    def __init__(self, part: int, message: str) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True)
class Dialect:
    """Describes how one version of PyTorch writes the keys of matrix products in TunableOp's files.

    * ``leading_dims`` is True if keys hold leading dimensions (2.7 and later).
    * ``tf32`` is True if ``tf32`` is a type of its own (2.8 and later).
    * ``swizzle`` is True if the key of a scaled product may end in ``_swz_`` (2.15 and later).
    * ``scaled`` is True if logparse can write keys of scaled products.  For CUDA builds it cannot: before 2.15 they
      have no such keys, and from 2.15 on their keys look different.
    """

    leading_dims: bool
    tf32: bool
    swizzle: bool = False
    scaled: bool = True


def problem(op_sig: str, param_sig: str) -> GemmProblem:
    """Return the matrix product that a TunableOp key describes.  Raise SignatureError if the text is not a key.

    ``op_sig`` is the part of the key before the comma, and ``param_sig`` is the part after the comma.
    """
    op = _PLAIN.match(op_sig) or _SCALED.match(op_sig)
    if op is None:
        raise SignatureError(0, f"the text is not an op signature of TunableOp: {op_sig[:80]!r}")
    if "_*" in param_sig:
        raise SignatureError(
            1,
            (
                "the row's key contains a wildcard (*). PyTorch uses such a row only if its fallback to rows with "
                "wildcards is on (PyTorch 2.15 and later, off by default)"
            ),
        )
    params = _PARAMS.match(param_sig)
    if params is None:
        raise SignatureError(1, f"the text is not a parameter signature of TunableOp: {param_sig[:80]!r}")
    family, *types, op_a, op_b = op.groups()
    trans_a, trans_b = params[1].upper(), params[2].upper()
    if (op_a, op_b) != (trans_a.replace("C", "T"), trans_b.replace("C", "T")):
        raise SignatureError(
            1, f"the layout {params[1]}{params[2]} of the parameters differs from {op_a}{op_b} of the op"
        )
    if (family == "GemmStridedBatched") != (params[6] is not None):
        raise SignatureError(1, f"_B_ does not fit {family}TunableOp")
    sizes = dict(zip(_SIZES, params.groups()[2:9], strict=True))
    values: dict[str, Any] = {name: int(v) for name, v in sizes.items() if v is not None}
    values |= {"trans_a": trans_a, "trans_b": trans_b, "ldd": values.get("ldc"), "gradient": False, "aux": False}
    values |= _family_fields(family, types, params[7] is not None)
    values |= _tail_fields(family, params["tail"] or "")
    if "scale_a" in values and values["scale_a"] is None and {values["a_type"], values["b_type"]} <= _FNUZ_TYPES:
        values |= {"scale_a": "scalar", "scale_b": "scalar"}
    if family != "GemmStridedBatched":
        values["batch_count"] = 1
    return GemmProblem(**with_plain(values, scaled=family == "ScaledGemm"))


def _family_fields(family: str, types: list[str], leading_dims: bool) -> dict[str, Any]:
    a_type, compute = _OP_TYPES[types[0]]
    if types[0] == "float" and not leading_dims:
        compute = None
    out: dict[str, Any] = {"a_type": a_type, "compute_type": compute, "scale_type": _SCALE_TYPES.get(a_type)}
    if family == "ScaledGemm":
        b_type, d_type = _OP_TYPES[types[1]][0], _OP_TYPES[types[2]][0]
        out |= {"b_type": b_type, "c_type": d_type, "d_type": d_type, "beta": "zero", "activation": "none"}
        return out | {"scale_type": "f32_r"}
    out |= dict.fromkeys(("b_type", "c_type", "d_type"), a_type)
    out["scale_alpha_vector"] = False  # Alpha is a host scalar.
    if family == "GemmAndBias":
        return out | {"bias": True, "bias_type": a_type, "beta": "zero"}
    if family == "GemmStridedBatched":
        out["batch_mode"] = "strided"
    return out | {"bias": False, "activation": "none"}


def _tail_fields(family: str, tail: str) -> dict[str, Any]:
    if not tail:
        return {}
    if family != "ScaledGemm":
        if tail == _BF16X9_TAIL:
            return {"compute_type": "bf16x9"}
        raise SignatureError(1, f"the row's key ends with values that no known PyTorch writes: {tail[:80]!r}")
    if match := _ROCM_TAIL.match(tail):
        row_wise, bias, *swizzle = match.groups()
        scale = "row" if row_wise == "1" else None
        # A key holds a swizzle only if the call sets one.  PyTorch before 2.15 has no swizzle.
        swizzled = {f"swizzle_{x}": text not in (None, "0") for x, text in zip("ab", swizzle, strict=True)}
        out: dict[str, Any] = {"scale_a": scale, "scale_b": scale, **swizzled}
    elif match := _CUDA_TAIL.match(tail):
        scale_a, scale_b, has_scale_d, bias = match.groups()
        out = {"scale_a": _SCALINGS.get(scale_a), "scale_b": _SCALINGS.get(scale_b)}
        out["scale_d"] = None if has_scale_d == "1" else "none"
    else:
        raise SignatureError(1, f"unknown end of a parameter signature: {tail[:80]!r}")
    if bias == "None":
        return out | {"bias": False}
    if bias not in _BIAS_TYPES:
        raise SignatureError(1, f"unknown bias type {bias!r}")
    return out | {"bias": True, "bias_type": _BIAS_TYPES[bias]}


# ------------------------------------------------------------------------------------------------ the BLAS_PARAMS field

_YAML_PAIR = regex(r"(\w+): (\([^)]*\)|[^,}]*?)\s*(?=[,}])")


def with_blas_params(known: GemmProblem, field: str) -> GemmProblem:
    """Complete a matrix product by the text that PyTorch logs after its key.

    The text has the form ``BLAS_PARAMS: - { function: matmul, … }``. Some values in it mean nothing and are not used:

    * The strides of calls without a batch are always 0.
    * The bias type of calls without a bias repeats the compute type.
    * The data types of complex products are one size too small.
    * The compute type of complex products is wrong, too.
    * ``xf32_r`` is no scale type.
    """
    given = dict(_YAML_PAIR.findall(field))
    values: dict[str, Any] = {}
    if "beta" in given:
        values["beta"] = "nonzero" if re.search(r"[1-9]", given["beta"]) else "zero"
    if "activation" in given:
        values["activation"] = given["activation"].lower()
    if known.batch_count != 1:
        strides = {f"stride_{x}": given.get(f"stride_{x}", "") for x in "abcd"}
        values |= {name: int(text) for name, text in strides.items() if text.isdecimal()}
    if known.compute_type is None and known.a_type not in COMPLEX and given.get("compute_type"):
        values["compute_type"] = given["compute_type"]
        if values["compute_type"] == "f32_r":
            values["scale_type"] = "f32_r"
    return replace(known, **values)


# ------------------------------------------------------------------------------------------------ problem to key


def version(text: str) -> tuple[int, int] | None:
    """Parse a version: ``2.9.1`` gives (2, 9).  Returns None if the text does not begin with a version."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def torch_version(facts: Mapping[str, str]) -> tuple[int, int] | None:
    """Return PyTorch's version on the target machine as (major, minor), or None if it is unknown.

    It comes from the line ``Validator,PT_VERSION,…`` of a results file or from the fact ``pytorch_version``.
    """
    return version(facts.get("validator:PT_VERSION") or facts.get("pytorch_version") or "")


def refuse_untunable(facts: Mapping[str, str]) -> None:
    """Raise EmissionError if TunableOp on the target machine cannot choose any kernel other than PyTorch's default.

    The error states the reason from :func:`why_untunable`.
    """
    if why := why_untunable(facts):
        raise EmissionError(why)


def why_untunable(facts: Mapping[str, str]) -> str | None:
    """Explain why TunableOp on the target machine can choose only PyTorch's default kernel. None if it has a choice.

    CUDA builds before PyTorch 2.14 offer only ``Default``.
    """
    torch = torch_version(facts)
    if facts.get("backend") != "CUDA" or torch is None or torch >= (2, 14):
        return None
    return (
        f"in PyTorch {torch[0]}.{torch[1]} for CUDA, TunableOp has only the candidate Default; it offers "
        "cuBLASLt's solutions from 2.14 on"
    )


def dialect(facts: Mapping[str, str]) -> Dialect | None:
    """Find out how the PyTorch of a given machine describes matrix products in its TunableOp results files.

    For example, PyTorch before 2.7 omits leading dimensions.  Returns None if this is unknown.
    """
    torch = torch_version(facts)
    # A results file of the machine shows this better than the version, because ROCm's own builds contain features of
    # later versions.
    leading_dims = {"ld": True, "no-ld": False}.get(facts.get("tunableop_keys", ""))
    if leading_dims is None:
        if torch is None:
            return None
        leading_dims = torch >= (2, 7)
    return Dialect(
        leading_dims=leading_dims,
        tf32=leading_dims and (torch is None or torch >= (2, 8)),
        swizzle=torch is not None and torch >= (2, 15),
        scaled=facts.get("backend") != "CUDA",
    )


def key(gemm: Problem, facts: Mapping[str, str]) -> str | None:
    """Return the text by which PyTorch's TunableOp finds a matrix product on the target machine: ``op_sig,param_sig``.

    Returns None if PyTorch has no key for such a product, or if a field (see :func:`missing`) or its spelling is
    unknown.
    """
    how = dialect(facts)
    if how is None or missing(gemm, how) or not isinstance(gemm, GemmProblem):
        return None
    # The text depends on PyTorch's version and the GPU architecture.
    letters = f"{gemm.trans_a}{gemm.trans_b}"
    sizes = {name: str(_field(gemm, name)) for name in _SIZES}
    params = f"{letters.lower()}_{sizes['m']}_{sizes['n']}_{sizes['k']}"
    batched = gemm.batch_count != 1
    if batched:
        params += f"_B_{sizes['batch_count']}"
    if how.leading_dims:
        params += f"_ld_{sizes['lda']}_{sizes['ldb']}_{sizes['ldc']}"
    if _is_scaled(gemm):
        types = (on_arch(x, facts.get("arch")) for x in (gemm.a_type, gemm.b_type, gemm.d_type))
        op = "ScaledGemmTunableOp_" + "_".join(_OP_NAMES[str(x)] for x in types)
        params += _scaled_tail(gemm, how) if how.leading_dims else ""
    else:
        tf32 = how.tf32 and gemm.compute_type == "xf32_r"
        family = "GemmStridedBatched" if batched else "GemmAndBias" if gemm.bias else "Gemm"
        op = f"{family}TunableOp_{'tf32' if tf32 else _OP_NAMES[str(gemm.a_type)]}"
    return f"{op}_{letters.replace('C', 'T')},{params}"


def missing(gemm: Problem, how: Dialect) -> tuple[str, ...]:
    """Return the fields of a product that its TunableOp key needs but that are unknown.

    Returns ``("kind",)`` for a call that TunableOp does not handle.
    """
    if not isinstance(gemm, GemmProblem) or not has_op(gemm) or (_is_scaled(gemm) and not how.scaled):
        return ("kind",)
    names = ["trans_a", "trans_b", "m", "n", "k", "batch_count", "a_type", "b_type", "d_type", "bias"]
    if how.leading_dims:
        names += ["lda", "ldb", "ldc"]
        if how.tf32 and gemm.a_type == "f32_r":
            names.append("compute_type")
        if _is_scaled(gemm):
            names += ["scale_a", "scale_b"]
            names += ["bias_type"] if gemm.bias else []
    return tuple(name for name in names if _field(gemm, name) is None)


def has_op(gemm: GemmProblem) -> bool:
    """Return True if TunableOp can tune this matrix product.

    The result is False only if a known field makes it impossible.  Unknown fields are assumed to fit.
    """
    if gemm.members or gemm.gradient or gemm.aux or gemm.batch_mode == "pointer":
        return False
    types = {t for t in (gemm.a_type, gemm.b_type, gemm.d_type) if t is not None}
    if not types <= set(_OP_NAMES):
        return False
    if _is_scaled(gemm):
        one_scaling = (gemm.scale_a == "row") == (gemm.scale_b == "row")
        return gemm.batch_count in (None, 1) and gemm.beta != "nonzero" and one_scaling
    # PyTorch 2.15 states bf16x9 in two places of a key, and no real key of this kind is known.
    if len(types) > 1 or gemm.compute_type == "bf16x9":
        return False
    if gemm.bias:
        return gemm.batch_count in (None, 1) and gemm.beta != "nonzero" and gemm.bias_type in (None, gemm.a_type)
    return gemm.bias is None or gemm.activation in (None, "none")


def _field(gemm: GemmProblem, name: str) -> object:
    # PyTorch's C is D.  A problem in normal form with beta 0 has no ldc.
    return gemm.ldd if name == "ldc" and gemm.ldc is None else getattr(gemm, name)


def _is_scaled(gemm: GemmProblem) -> bool:
    return str(gemm.a_type) in ("f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "f4_r")


def _scaled_tail(gemm: GemmProblem, how: Dialect) -> str:
    bias = {data: name for name, data in _BIAS_TYPES.items()}[str(gemm.bias_type)] if gemm.bias else "None"
    tail = f"_rw_{int(gemm.scale_a == 'row')}_bias_{bias}"
    # An unknown swizzle is taken as no swizzle, because only a call that asks for a swizzle has one.
    if not (how.swizzle and (gemm.swizzle_a or gemm.swizzle_b)):
        return tail
    return f"{tail}_swz_{int(bool(gemm.swizzle_a))}_{int(bool(gemm.swizzle_b))}"
