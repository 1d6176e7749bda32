"""Problems: matrix products, convolutions and other operators that a library is asked to compute.

GEMM fields have the names of hipblaslt-bench's flags.  Data types of GEMMs have hipblaslt-bench's names (``f16_r``,
``bf16_r``, ``f8_r`` …).  Data types of convolutions have MIOpen's names (``FP16``, ``BF16`` …).  ``None`` in any field
means that the file does not state the value.  Sizes are numbers of elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

Trans = Literal["N", "T", "C"]
Direction = Literal["F", "B", "W", "B+W"]  # B+W: one operator ran both; its kernels cannot be told apart
Kind = Literal["gemm", "grouped", "conv", "operator"]
Beta = Literal["zero", "nonzero"]

REAL_8BIT = frozenset({"f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "i8_r", "u8_r"})
NARROW = REAL_8BIT | {"f6_r", "bf6_r", "f4_r"}
"""Data types of at most 8 bits, whose matrices are usually scaled.

If a log does not state a scale, the scale is unknown only for these types.
"""

COMPLEX = frozenset({"f32_c", "f64_c"})

TYPE_BYTES: Mapping[str, float] = {
    **dict.fromkeys(REAL_8BIT, 1.0),
    **dict.fromkeys(("f16_r", "bf16_r"), 2.0),
    **dict.fromkeys(("f32_r", "i32_r", "xf32_r"), 4.0),
    **dict.fromkeys(("f64_r", "f32_c"), 8.0),
    "f64_c": 16.0,
    "f6_r": 0.75,
    "bf6_r": 0.75,
    "f4_r": 0.5,
    **dict.fromkeys(("FP32", "INT32"), 4.0),
    **dict.fromkeys(("FP16", "BF16"), 2.0),
    **dict.fromkeys(("FP64", "INT64"), 8.0),
    **dict.fromkeys(("INT8", "FP8", "BF8"), 1.0),
}
"""Size of one element in bytes, by the data type of a GEMM or a convolution."""

_FOLDED = {"f8_fnuz_r": "f8_r", "bf8_fnuz_r": "bf8_r", "xf32_r": "f32_r"}

T = TypeVar("T")


def of_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make a frozen dataclass object from the values of all its fields, without calling its constructor.

    Python's copy and pickle do the same.
    """
    # The constructor makes a call for each of a problem's 38 fields, which takes half of the time to read a problem's
    # text.
    made = object.__new__(kind)
    vars(made).update(values)
    return made


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of the matrix products in a grouped GEMM: its sizes, leading dimensions and batch strides (elements)."""

    m: int
    n: int
    k: int
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    ldd: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    stride_c: int | None = None
    stride_d: int | None = None

    @property
    def text(self) -> str:
        return "/".join("?" if v is None else str(v) for v in (getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, kw_only=True)
class GemmProblem:
    """A matrix product D = act(alpha · op(A) · op(B) + beta · C + bias), as a column-major BLAS call.

    * op(A) is m×k, op(B) is k×n, and D is m×n.
    * A grouped GEMM has its sizes in ``members``, and its own fields for sizes have no value.
    * ``normal`` is the same product with equivalent values spelled alike, so that equal calls have equal fields.
      ``text`` and ``shape`` are made from it.
    """

    trans_a: Trans | None = None
    trans_b: Trans | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch_count: int | None = None
    batch_mode: Literal["strided", "pointer"] | None = None
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    ldd: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    stride_c: int | None = None
    stride_d: int | None = None
    a_type: str | None = None
    b_type: str | None = None
    c_type: str | None = None
    d_type: str | None = None
    compute_type: str | None = None
    scale_type: str | None = None
    activation: str | None = None
    gradient: bool | None = None
    aux: bool | None = None
    aux_type: str | None = None
    bias: bool | None = None
    bias_type: str | None = None
    bias_source: Literal["a", "b", "d"] | None = None
    scale_a: str | None = None  # none, scalar, row, block32 …
    scale_b: str | None = None
    scale_c: str | None = None
    scale_d: str | None = None
    scale_alpha_vector: bool | None = None
    swizzle_a: bool | None = None
    swizzle_b: bool | None = None
    beta: Beta | None = None
    # Type to which A is converted for the product; if it is A's own type, A is not converted.
    compute_input_a_type: str | None = None
    compute_input_b_type: str | None = None
    sm_count: int | None = None  # compute units that the library is told to plan for; 0: the whole device
    members: tuple[Member, ...] = ()

    @property
    def kind(self) -> Kind:
        return "grouped" if self.members else "gemm"

    @property
    def gemms(self) -> tuple[GemmProblem, ...]:
        """The single matrix products that a grouped GEMM computes.

        For any other product the result contains only the product itself.
        """
        return tuple(replace(self, members=(), **vars(member)) for member in self.members) or (self,)

    @cached_property
    def irrelevant(self) -> frozenset[str]:
        """Names of the fields that make no difference for this matrix product.

        For example, the type of C does not matter if beta is zero.
        """
        # Products that differ only in such fields are the same. So ``normal`` sets these fields to None, and ``text``
        # shows them as ``-``.
        out: set[str] = set()
        if self.batch_count == 1:
            out.add("batch_mode")
        if self.beta == "zero":
            out |= {"c_type", "ldc", "stride_c", "scale_c"}
        if self.bias is False:
            out |= {"bias_type", "bias_source"}
        if self.aux is False:
            out.add("aux_type")
        mine = vars(self)
        out |= {name for name, own in _CONVERTED if mine[name] is None and mine[own] is None}
        if self.members:
            out |= {"m", "n", "k", "lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d"}
        return frozenset(out)

    @cached_property
    def plain(self) -> frozenset[str]:
        """Names of the fields that have their usual value, so that the product's text shows only ``-`` for them.

        For example, ``sm_count`` is usually 0: the kernel may use all compute units.
        """
        values = vars(self)
        # No scale is usual for a matrix whose type is not narrow.
        out = {f"scale_{x}" for x in "abcd" if values[f"scale_{x}"] == "none" and values[f"{x}_type"] not in NARROW}
        # Usually the matrix has no special layout.
        out |= {name for name in ("swizzle_a", "swizzle_b") if values[name] is False}
        for x in "ab":
            own = values[f"{x}_type"]
            # Usually the matrix is multiplied in its own type.
            if own is not None and values[f"compute_input_{x}_type"] == own:
                out.add(f"compute_input_{x}_type")
        if values["sm_count"] == 0:
            out.add("sm_count")
        return frozenset(out)

    @property
    def normal(self) -> GemmProblem:
        """The same product with equivalent values spelled alike, so that equal calls have equal fields."""
        # A conjugate transpose becomes a transpose for real types, strides become 0 for a batch of one, and fields that
        # make no difference become None.
        return self._normalised or self  # if this problem cached itself, that would be a reference cycle

    @cached_property
    def _normalised(self) -> GemmProblem | None:
        """The same matrix product with equivalent values spelled alike, or None if nothing has to be changed.

        For example, the transpose C of a real matrix becomes T.
        """
        change: dict[str, Any] = {}
        if self.trans_a == "C" and self.a_type not in COMPLEX:
            change["trans_a"] = "T"
        if self.trans_b == "C" and self.b_type not in COMPLEX:
            change["trans_b"] = "T"
        if self.batch_count == 1 and not self.members:
            change |= _NO_STRIDES
        change |= dict.fromkeys(self.irrelevant)
        mine = vars(self)
        change = {name: value for name, value in change.items() if mine[name] != value}
        if not change:
            return None
        return of_fields(GemmProblem, mine | change)  # keeps the cached ``irrelevant``, which is the same for both

    @cached_property
    def text(self) -> str:
        """A text that identifies the product, with all of its fields in a fixed order.

        * ``?`` is an unknown value.
        * ``-`` is the usual value, or a value that makes no difference.
        """
        mine, irrelevant, plain = vars(self.normal), self.irrelevant, self.plain
        cells: list[object] = []  # This runs for each distinct line of a log.  So it is one loop without calls.
        for name in GEMM_FIELDS:
            value = mine[name]
            if value is None:
                value = "-" if name in irrelevant else "?"
            elif name in plain:
                value = "-"
            elif value is True or value is False:
                value = int(value)
            cells.append(value)
        *usual, input_a, input_b, sm_count = cells
        # The words ``input=`` and ``sms=`` came later, so a text has them only for an unusual value.
        last = f" input={input_a},{input_b}" if input_a != "-" or input_b != "-" else ""
        last += f" sms={sm_count}" if sm_count != "-" else ""
        last += " members=" + ",".join(member.text for member in self.members) if self.members else ""
        return f"{self.kind} {_GEMM_TEXT % tuple(usual)}{last}"

    @cached_property
    def shape(self) -> str | None:
        """A short text with the few fields that every file format states: sizes, batch and type.

        All variants of fp8 have the same name in it.  If a size is unknown, there is no such text (None).
        """
        if self.members:
            return self.text
        parts = (self.m, self.n, self.k, self.batch_count, self.a_type)
        if any(part is None for part in parts):
            return None
        return f"gemm {self.m}x{self.n}x{self.k}x{self.batch_count} {_FOLDED.get(str(self.a_type), self.a_type)}"

    @property
    def epilogue(self) -> str | None:
        """The name that libraries give to the operations after the product: DEFAULT, RELU_BIAS, DGELU_BGRAD …

        Unknown (None) if it is not known whether there is an activation or a bias.
        """
        if self.activation is None or self.bias is None:
            return None
        act = "" if self.activation == "none" else self.activation.upper()
        if self.gradient:
            grad = {"a": "BGRADA", "b": "BGRADB"}.get(self.bias_source or "d", "BGRAD") if self.bias else ""
            return "_".join(filter(None, ("D" + act if act else "", grad))) or "DEFAULT"
        words = (act, "AUX" if self.aux else "", "BIAS" if self.bias else "")
        return "_".join(filter(None, words)) or "DEFAULT"

    @property
    def flops(self) -> int | None:
        """Number of floating point operations: 2·m·n·k·batch, or 8·m·n·k·batch for complex types.

        For a grouped GEMM it is the sum over the members.  The epilogue is not included.  Unknown (None) if a size is
        unknown.
        """
        per = 8 if self.a_type in COMPLEX else 2
        if self.members:
            return sum(per * x.m * x.n * x.k for x in self.members) * (self.batch_count or 1)
        if self.m is None or self.n is None or self.k is None or self.batch_count is None:
            return None
        return per * self.m * self.n * self.k * self.batch_count

    @property
    def least_flops(self) -> int | None:
        """The same as ``flops``."""
        return self.flops

    @property
    def bytes(self) -> float | None:
        """The least number of bytes to move: A, B and D once each, and C once if beta is not zero.

        Unknown (None) if a size or the type of A is unknown.
        """
        # For a grouped GEMM it is the sum over the members.
        if self.members:
            each = [one.bytes for one in self.gemms]
            return None if None in each else sum(x or 0.0 for x in each)
        if None in (self.m, self.n, self.k, self.batch_count, self.a_type):
            return None
        a, b, d = (TYPE_BYTES.get(x or str(self.a_type), 0.0) for x in (self.a_type, self.b_type, self.d_type))
        c = 0.0 if self.beta != "nonzero" else TYPE_BYTES.get(self.c_type or str(self.d_type), 0.0)
        m, n, k, batch = int(self.m or 0), int(self.n or 0), int(self.k or 0), int(self.batch_count or 0)
        strides = (self.stride_a, self.stride_b, self.stride_c)
        # An operand of stride 0 is one matrix for the whole batch.
        of_a, of_b, of_c = (min(batch, 1) if stride == 0 else batch for stride in strides)
        return of_a * m * k * a + of_b * k * n * b + m * n * (of_c * c + batch * d)

    @property
    def label(self) -> str:
        """A short name of the product for tables, for example ``TN 4096×512×1024 bf16_r GELU_BIAS``.

        The name contains ``β≠0`` if C is added to the product.
        """
        size = "+".join(f"{x.m}×{x.n}×{x.k}" for x in self.members) or f"{self.m}×{self.n}×{self.k}"
        batch = f" b{self.batch_count}" if self.batch_count not in (None, 1) else ""
        epilogue = f" {self.epilogue}" if self.epilogue not in (None, "DEFAULT") else ""
        added = " β≠0" if self.beta == "nonzero" else ""
        kind = f"{self.a_type or '?'}{epilogue}{added}"
        return f"{self.trans_a or '?'}{self.trans_b or '?'} {size}{batch} {kind}{self._unusual}"

    @property
    def converted(self) -> tuple[str, ...]:
        """The types to which A and B are converted before they are multiplied.  Empty if no type changes."""
        both = ((self.compute_input_a_type, self.a_type), (self.compute_input_b_type, self.b_type))
        return tuple(dict.fromkeys(to for to, own in both if to is not None and to != own))

    @property
    def _unusual(self) -> str:
        """Words for unusual properties of the product, for example ``swizzled A`` or ``compute xf32_r``.

        Only special kernels can compute such a product.  The words are a part of its name in tables (``label``).
        """
        swizzled = "".join(x.upper() for x in "ab" if getattr(self, f"swizzle_{x}"))
        scales = sorted({x for x in (self.scale_a, self.scale_b) if x not in (None, "none", "scalar", "row")})
        words = [f"swizzled {swizzled}"] * bool(swizzled) + [f"{'/'.join(scales)} scales"] * bool(scales)
        words += [f"as {'/'.join(self.converted)}"] * bool(self.converted) + [f"{self.sm_count} SMs"] * bool(
            self.sm_count
        )
        usual = _USUAL_COMPUTE.get(self.a_type or "", ("f32_r",))
        words += [f"compute {self.compute_type}"] * (self.compute_type not in (None, *usual))
        return "".join(f" {word}" for word in words)


_USUAL_COMPUTE = {
    "f64_r": ("f64_r",), "i8_r": ("i32_r",), "f32_c": ("f32_c", "f32_r"), "f64_c": ("f64_c", "f64_r")
}  # fmt: skip
"""The compute types that a product usually has, by the type of A.  For all other types it is ``f32_r``."""
GEMM_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("trans", ("trans_a", "trans_b")),
    ("mnk", ("m", "n", "k")),
    ("batch", ("batch_count", "batch_mode")),
    ("ld", ("lda", "ldb", "ldc", "ldd")),
    ("stride", ("stride_a", "stride_b", "stride_c", "stride_d")),
    ("type", ("a_type", "b_type", "c_type", "d_type")),
    ("compute", ("compute_type", "scale_type")),
    ("activation", ("activation", "gradient")),
    ("aux", ("aux", "aux_type")),
    ("bias", ("bias", "bias_type", "bias_source")),
    ("scale", ("scale_a", "scale_b", "scale_c", "scale_d", "scale_alpha_vector")),
    ("swizzle", ("swizzle_a", "swizzle_b")),
    ("beta", ("beta",)),
    ("input", ("compute_input_a_type", "compute_input_b_type")),
    ("sms", ("sm_count",)),
)
GEMM_LATER = frozenset({"input", "sms"})
"""Words in the text of a product that are written only if their field is unknown or has an unusual value.

A later version of logparse added them.  Texts from before lack them, which means the usual values.
"""
GEMM_FIELDS: tuple[str, ...] = tuple(name for _, names in GEMM_WORDS for name in names)
GEMM_FLAGS = frozenset({"gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a", "swizzle_b"})
_GEMM_TEXT = " ".join(f"{word}=" + ",".join("%s" for _ in x) for word, x in GEMM_WORDS if word not in GEMM_LATER)
_CONVERTED = (("compute_input_a_type", "a_type"), ("compute_input_b_type", "b_type"))
"""The fields for the types to which A and B are converted, each with the field for the operand's own type.

If both are unknown, the text has one ``?`` for both.
"""
_NO_STRIDES = {f"stride_{x}": 0 for x in "abcd"}
GEMM_LAYOUT: tuple[str, ...] = (
    *("trans_a", "trans_b", "lda", "ldb", "ldc", "ldd"),
    *("stride_a", "stride_b", "stride_c", "stride_d"),
)
"""Fields that describe how the matrices are stored in memory.

Two products are known to have the same layout only if these fields are known in both (or make no difference).
"""


def with_plain(values: Mapping[str, Any], *, scaled: bool = False) -> dict[str, Any]:
    """Return the fields of a matrix product with the usual value for each missing one.

    This is right for a library that does only what its caller requests.  The usual values are: no swizzle, operands in
    their own types, all compute units, and no scales.  If ``scaled`` is True, the library may scale matrices of narrow
    types (``NARROW``).  So the scale of a matrix of a narrow or unknown type stays unknown.
    """
    given = {name: value for name, value in values.items() if value is not None}
    types = {x: given.get(f"{x}_type") for x in "abcd"}
    plain: dict[str, Any] = {"swizzle_a": False, "swizzle_b": False, "sm_count": 0}
    plain |= {f"compute_input_{x}_type": types[x] for x in "ab"}
    plain |= {f"scale_{x}": "none" for x in "abcd" if not scaled or (types[x] is not None and types[x] not in NARROW)}
    return {**values, **plain, **given}


@dataclass(frozen=True, kw_only=True)
class ConvProblem:
    """A convolution or one of its gradients, described by the sizes of the forward pass.

    The input x is n×c×in, and the output y is n×k×out.  ``direction`` states what ran: the forward pass (F), the
    gradient of the input (B) or of the weights (W), or both gradients in one operator (B+W).

    In 2D problems d, filter_d, stride_d, dilation_d and out_d are 1, and pad_d is 0.  ``out_*`` comes from the file and
    is not computed, because SAME padding and clamped sizes do not follow the formula.
    """

    direction: Direction
    spatial: Literal[2, 3] = 2
    n: int | None = None
    c: int | None = None
    d: int | None = 1
    h: int | None = None
    w: int | None = None
    k: int | None = None
    filter_d: int | None = 1
    filter_h: int | None = None
    filter_w: int | None = None
    pad_d: int | None = 0
    pad_h: int | None = None
    pad_w: int | None = None
    stride_d: int | None = 1
    stride_h: int | None = None
    stride_w: int | None = None
    dilation_d: int | None = 1
    dilation_h: int | None = None
    dilation_w: int | None = None
    out_d: int | None = 1
    out_h: int | None = None
    out_w: int | None = None
    groups: int | None = None
    in_type: str | None = None
    weights_type: str | None = None
    out_type: str | None = None
    in_layout: str | None = None
    weights_layout: str | None = None
    out_layout: str | None = None
    in_cast: str | None = "none"
    weights_cast: str | None = "none"
    out_cast: str | None = "none"
    bias: int | None = None
    mode: Literal["convolution", "transposed"] | None = None

    kind: ClassVar[Kind] = "conv"

    @property
    def normal(self) -> ConvProblem:
        return self

    @cached_property
    def layer(self) -> str:
        """The text of the convolution without its direction.

        The forward pass and both gradients of one layer have the same text, so the text finds the three of them.
        """
        values = _OF_LAYER(vars(self))
        return _LAYER_TEXT % (tuple("?" if x is None else x for x in values) if None in values else values)

    @cached_property
    def text(self) -> str:
        return f"conv {self.direction} {self.layer}"

    @cached_property
    def shape(self) -> str | None:
        names = ("n", "c", "d", "h", "w", "k", "filter_d", "filter_h", "filter_w", "groups", "in_type")
        values = [getattr(self, name) for name in names]
        if any(value is None for value in values):
            return None
        return f"conv {self.direction} " + "x".join(str(v) for v in values[:-2]) + f" g{values[-2]} {values[-1]}"

    @property
    def least_flops(self) -> float | None:
        """Number of operations that no algorithm can save: ``flops`` divided by the number of taps of the filter.

        Unknown (None) if a size is unknown.
        """
        # Winograd's algorithm and the FFT need fewer operations than ``flops``. They still multiply once for each pair
        # of input and output channel and each output, which is one tap.
        taps = _product(self.filter_d, self.filter_h, self.filter_w)
        return None if self.flops is None or not taps else self.flops / taps

    @property
    def flops(self) -> int | None:
        """Number of operations of the convolution: 2·n·k·prod(out)·(c/groups)·prod(filter).

        It is the same in every direction (F, B and W), and twice as much for ``B+W``.  None if a size is unknown.
        """
        of_filter = (self.c, self.filter_d, self.filter_h, self.filter_w)
        product = _product(self.n, self.k, self.out_d, self.out_h, self.out_w, *of_filter)
        return None if product is None else (4 if self.direction == "B+W" else 2) * product // (self.groups or 1)

    @property
    def bytes(self) -> float | None:
        """The least number of bytes to move: input, weights and output once each.

        Unknown (None) if a size or type is unknown.
        """
        return None if self.operand_bytes is None else sum(self.operand_bytes)

    @property
    def largest_tensor(self) -> int | None:
        """Number of elements of the largest tensor: input, weights or output.  None if a size is unknown."""
        elements = self._elements
        return None if elements is None else max(elements)

    @property
    def operand_bytes(self) -> tuple[float, float, float] | None:
        """Sizes of input, weights and output in bytes.  None if a size or the input type is unknown."""
        elements = self._elements
        if elements is None or self.in_type is None:
            return None
        x, w, y = elements
        size = [TYPE_BYTES.get(t or self.in_type, 0.0) for t in (self.in_type, self.weights_type, self.out_type)]
        return x * size[0], w * size[1], y * size[2]

    @property
    def _elements(self) -> tuple[int, int, int] | None:
        """Numbers of elements of input, weights and output.  None if a size is unknown."""
        x = _product(self.n, self.c, self.d, self.h, self.w)
        w = _product(self.k, self.c, self.filter_d, self.filter_h, self.filter_w)
        y = _product(self.n, self.k, self.out_d, self.out_h, self.out_w)
        return None if x is None or w is None or y is None else (x, w // (self.groups or 1), y)

    @cached_property
    def label(self) -> str:
        """A short name for tables, for example ``W 64×256×56×56 k256 3×3 s2 g32 FP16 NCHW``."""
        three = self.spatial == 3
        spatial = [self.d, self.h, self.w][0 if three else 1 :]
        size = [self.filter_d, self.filter_h, self.filter_w][0 if three else 1 :]
        stride = f" s{self.stride_h}" if self.stride_h not in (None, 1) else ""
        groups = f" g{self.groups}" if self.groups not in (None, 1) else ""
        shape = "×".join(map(str, [self.n, self.c, *spatial]))
        return (
            f"{self.direction} {shape} k{self.k} {'×'.join(map(str, size))}{stride}{groups}"
            f" {self.in_type or '?'} {self.in_layout or '?'}"
        )


CONV_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("spatial", ("spatial",)),
    ("in", ("n", "c", "d", "h", "w")),
    ("k", ("k",)),
    ("filter", ("filter_d", "filter_h", "filter_w")),
    ("pad", ("pad_d", "pad_h", "pad_w")),
    ("stride", ("stride_d", "stride_h", "stride_w")),
    ("dilation", ("dilation_d", "dilation_h", "dilation_w")),
    ("out", ("out_d", "out_h", "out_w")),
    ("groups", ("groups",)),
    ("type", ("in_type", "weights_type", "out_type")),
    ("layout", ("in_layout", "weights_layout", "out_layout")),
    ("cast", ("in_cast", "weights_cast", "out_cast")),
    ("bias", ("bias",)),
    ("mode", ("mode",)),
)
LAYER_FIELDS: tuple[str, ...] = tuple(name for _, names in CONV_WORDS for name in names)
CONV_FIELDS: tuple[str, ...] = ("direction", *LAYER_FIELDS)
_OF_LAYER = itemgetter(*LAYER_FIELDS)
_LAYER_TEXT = " ".join(f"{word}=" + ",".join("%s" for _ in names) for word, names in CONV_WORDS)
CONV_LAYOUT: tuple[str, ...] = ("in_layout", "weights_layout", "out_layout")


@dataclass(frozen=True)
class Operand:
    """An input tensor of an operator: PyTorch's name of its type, its sizes and its strides.

    The type is ``?`` if it was not recorded.
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.dtype}({','.join(map(str, self.sizes))}|{','.join(map(str, self.strides))})"


Argument: TypeAlias = "Operand | tuple[Operand, ...] | str"
"""One argument of an operator: a tensor, a list of tensors, or any other value as text.

The text is empty if no value was given.
"""


@dataclass(frozen=True)
class OperatorProblem:
    """An operator of a framework with all of its inputs, for example ``aten::add_`` of two tensors and a number.

    Matrix products and convolutions have classes of their own.
    """

    name: str
    inputs: tuple[Argument, ...]

    kind: ClassVar[Kind] = "operator"
    shape: ClassVar[None] = None
    flops: ClassVar[None] = None
    least_flops: ClassVar[None] = None

    @property
    def normal(self) -> OperatorProblem:
        return self

    @cached_property
    def text(self) -> str:
        return " ".join(("operator", self.name, *map(_argument_text, self.inputs)))

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """All tensors among the inputs, in order, including tensors within lists."""
        nested = (x if isinstance(x, tuple) else (x,) for x in self.inputs)
        return tuple(x for group in nested for x in group if isinstance(x, Operand))

    @property
    def bytes(self) -> float:
        """Total size of the operator's input tensors in bytes.  The sizes of its results are not known."""
        return sum((math.prod(x.sizes)) * _TENSOR_BYTES.get(x.dtype, 4.0) for x in self.tensors)

    @property
    def label(self) -> str:
        """A short name for tables, for example ``aten::add_ 64×256×56×56 bfloat16``."""
        largest = max(self.tensors, key=lambda x: math.prod(x.sizes), default=None)
        return self.name if largest is None else f"{self.name} {'×'.join(map(str, largest.sizes))} {largest.dtype}"


_TENSOR_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1.0),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 1.0),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2.0),
    **dict.fromkeys(("float64", "int64", "complex64"), 8.0),
    "complex128": 16.0,
}


def _argument_text(value: Argument) -> str:
    if isinstance(value, Operand):
        return value.text
    return f"[{';'.join(x.text for x in value)}]" if isinstance(value, tuple) else f"={value}"


def _product(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return math.prod(known) if len(known) == len(values) else None


Problem: TypeAlias = GemmProblem | ConvProblem | OperatorProblem
