"""The nouns that formats produce and analyzers use; of this package, the module imports nothing.

Names are the libraries' own: GEMM fields are named as hipblaslt-bench's flags, data types of GEMMs are its type texts
(``f16_r``, ``bf16_r``, ``f8_r`` …), data types of convolutions are MIOpen's (``FP16``, ``BF16`` …).  ``None`` in any
field means *the format does not state it*.  Sizes are counts of elements; names of times contain their unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Literal, TypeAlias, TypeVar

Trans = Literal["N", "T", "C"]
Direction = Literal["F", "B", "W", "B+W"]  # B+W: one operator ran both, its kernels are not distinguishable
Kind = Literal["gemm", "grouped", "conv", "operator"]
Status = Literal["ok", "failed", "skipped", "unsupported", "wrong", "timeout", "out_of_memory", "no_time"]
TRIED: frozenset[Status] = frozenset({"ok", "failed", "unsupported", "wrong", "timeout", "out_of_memory"})
"""Statuses of solutions that were tried: those that are left out and those without a time show nothing."""
Beta = Literal["zero", "nonzero"]

REAL_8BIT = frozenset({"f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "i8_r", "u8_r"})
NARROW = REAL_8BIT | {"f6_r", "bf6_r", "f4_r"}
"""Types that a matmul may scale: an unlogged scale pointer matters only for these."""

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
"""Bytes of one element, for GEMM and convolution types."""

_FOLDED = {"f8_fnuz_r": "f8_r", "bf8_fnuz_r": "bf8_r", "xf32_r": "f32_r"}


# --------------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True, kw_only=True)
class Member:
    """One GEMM of a grouped GEMM: its sizes, leading dimensions and batch strides (elements)."""

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
    """A column-major BLAS call D = act(alpha · op(A) · op(B) + beta · C + bias), op(A) m×k, op(B) k×n, D m×n.

    ``members`` holds the sizes of a grouped GEMM (then m, n, k, ld*, stride_* are None).  The values given are kept as
    they are; ``normal`` is the same call in normal form, and ``text`` and ``shape`` are made from that.
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
    members: tuple[Member, ...] = ()

    @property
    def kind(self) -> Kind:
        return "grouped" if self.members else "gemm"

    @property
    def gemms(self) -> tuple[GemmProblem, ...]:
        """The GEMMs of a grouped GEMM, each a problem of its own; of any other problem itself."""
        return tuple(replace(self, members=(), **vars(member)) for member in self.members) or (self,)

    @cached_property
    def irrelevant(self) -> frozenset[str]:
        """Names of the fields that cannot matter for this call; they are None in normal form and ``-`` in text.

        An absent scale or swizzle is among them, unless the type needs one: Trace lines and TunableOp keys never print
        it, bench lines always do, and both must give the same text.
        """
        out: set[str] = set(self._scales_that_cannot_matter())
        if self.batch_count == 1:
            out.add("batch_mode")
        if self.beta == "zero":
            out |= {"c_type", "ldc", "stride_c", "scale_c"}
        if self.bias is False:
            out |= {"bias_type", "bias_source"}
        if self.aux is False:
            out.add("aux_type")
        if not self.swizzle_a:
            out.add("swizzle_a")
        if not self.swizzle_b:
            out.add("swizzle_b")
        if self.members:
            out |= {"m", "n", "k", "lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d"}
        return frozenset(out)

    def _scales_that_cannot_matter(self) -> Iterator[str]:
        for name, type, scale in (
            ("scale_a", self.a_type, self.scale_a),
            ("scale_b", self.b_type, self.scale_b),
            ("scale_c", self.c_type, self.scale_c),
            ("scale_d", self.d_type, self.scale_d),
        ):
            if type not in NARROW and scale in (None, "none"):
                yield name

    @property
    def normal(self) -> GemmProblem:
        """The same call in normal form: C ≡ T for real types, strides 0 at batch 1, irrelevant fields dropped."""
        return self._normalised or self  # caching `self` would be a reference cycle

    @cached_property
    def _normalised(self) -> GemmProblem | None:
        """The normal form; None where this is it."""
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
        other = object.__new__(GemmProblem)  # made for each distinct line: ``replace`` takes five times as long
        vars(other).update(mine | change)  # with ``irrelevant``, which is the same for both
        return other

    @cached_property
    def text(self) -> str:
        """The canonical key: every field in fixed order, ``?`` where unknown, ``-`` where it cannot matter."""
        text = f"{self.kind} {self.normal._words}"
        if self.members:
            text += " members=" + ",".join(member.text for member in self.members)
        return text

    @property
    def _words(self) -> str:
        mine, irrelevant = vars(self), self.irrelevant
        cells: list[object] = []  # made for each distinct line of a log: one loop, no calls
        for name in GEMM_FIELDS:
            value = mine[name]
            if value is None:
                value = "-" if name in irrelevant else "?"
            elif value is True or value is False:
                value = int(value)
            cells.append(value)
        return _GEMM_TEXT % tuple(cells)

    @cached_property
    def shape(self) -> str | None:
        """The coarse key that every format can form, fp8 variants folded; None where a size is unknown."""
        if self.members:
            return self.text
        parts = (self.m, self.n, self.k, self.batch_count, self.a_type)
        if any(part is None for part in parts):
            return None
        return f"gemm {self.m}x{self.n}x{self.k}x{self.batch_count} {_FOLDED.get(str(self.a_type), self.a_type)}"

    @property
    def epilogue(self) -> str | None:
        """The libraries' epilogue name (DEFAULT, RELU_BIAS, DGELU_BGRAD …), derived; None where it is not known."""
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
        """2·m·n·k·batch (8 for complex), summed over the members of a grouped GEMM; the epilogue is not counted."""
        per = 8 if self.a_type in COMPLEX else 2
        if self.members:
            return sum(per * x.m * x.n * x.k for x in self.members) * (self.batch_count or 1)
        if self.m is None or self.n is None or self.k is None or self.batch_count is None:
            return None
        return per * self.m * self.n * self.k * self.batch_count

    @property
    def bytes(self) -> float | None:
        """Least bytes to move: A, B and D once, C too unless beta is zero, summed over the members of a grouped GEMM;
        None where a size or type is unknown.

        An operand of stride 0 is one matrix for the whole batch.
        """
        if self.members:
            each = [one.bytes for one in self.gemms]
            return None if None in each else sum(x or 0.0 for x in each)
        if None in (self.m, self.n, self.k, self.batch_count, self.a_type):
            return None
        a, b, d = (TYPE_BYTES.get(x or str(self.a_type), 0.0) for x in (self.a_type, self.b_type, self.d_type))
        c = 0.0 if self.beta != "nonzero" else TYPE_BYTES.get(self.c_type or str(self.d_type), 0.0)
        m, n, k, batch = int(self.m or 0), int(self.n or 0), int(self.k or 0), int(self.batch_count or 0)
        strides = (self.stride_a, self.stride_b, self.stride_c)
        of_a, of_b, of_c = (min(batch, 1) if stride == 0 else batch for stride in strides)
        return of_a * m * k * a + of_b * k * n * b + m * n * (of_c * c + batch * d)

    @property
    def label(self) -> str:
        """A short name for tables: ``TN 4096×512×1024 bf16_r GELU_BIAS``."""
        size = "+".join(f"{x.m}×{x.n}×{x.k}" for x in self.members) or f"{self.m}×{self.n}×{self.k}"
        batch = f" b{self.batch_count}" if self.batch_count not in (None, 1) else ""
        epilogue = f" {self.epilogue}" if self.epilogue not in (None, "DEFAULT") else ""
        return f"{self.trans_a or '?'}{self.trans_b or '?'} {size}{batch} {self.a_type or '?'}{epilogue}"


_GEMM_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
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
)
GEMM_FIELDS: tuple[str, ...] = tuple(name for _, names in _GEMM_WORDS for name in names)
_GEMM_TEXT = " ".join(f"{word}=" + ",".join("%s" for _ in names) for word, names in _GEMM_WORDS)
_NO_STRIDES = {f"stride_{x}": 0 for x in "abcd"}
GEMM_LAYOUT: tuple[str, ...] = (
    *("trans_a", "trans_b", "lda", "ldb", "ldc", "ldd"),
    *("stride_a", "stride_b", "stride_c", "stride_d"),
)
"""Fields that must be known (or not matter) on both sides for a link of level ``layout``."""


@dataclass(frozen=True, kw_only=True)
class ConvProblem:
    """A convolution, always in the forward problem's terms (x is n×c×in, y is n×k×out), plus the direction that ran.

    2D problems have d = filter_d = stride_d = dilation_d = out_d = 1 and pad_d = 0.  ``out_*`` is what the file states,
    not what a formula gives: SAME padding and clamped sizes do not follow the formula.
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

    @property
    def kind(self) -> Kind:
        return "conv"

    @property
    def normal(self) -> ConvProblem:
        return self

    @cached_property
    def layer(self) -> str:
        """The key without the direction: F, B and W of one layer share it."""
        values = _OF_LAYER(vars(self))
        return _LAYER_TEXT % (tuple("?" if x is None else x for x in values) if None in values else values)

    @cached_property
    def text(self) -> str:
        return pass_of(self.direction, self.layer)

    @cached_property
    def shape(self) -> str | None:
        names = ("n", "c", "d", "h", "w", "k", "filter_d", "filter_h", "filter_w", "groups", "in_type")
        values = [getattr(self, name) for name in names]
        if any(value is None for value in values):
            return None
        return f"conv {self.direction} " + "x".join(str(v) for v in values[:-2]) + f" g{values[-2]} {values[-1]}"

    @property
    def flops(self) -> int | None:
        """2·n·k·prod(out)·(c/groups)·prod(filter), the same for F, B and W (twice that for ``B+W``)."""
        names = ("n", "k", "c", "out_d", "out_h", "out_w", "filter_d", "filter_h", "filter_w")
        product = 4 if self.direction == "B+W" else 2
        for name in names:
            value = getattr(self, name)
            if value is None:
                return None
            product *= value
        return product // (self.groups or 1)

    @property
    def bytes(self) -> float | None:
        """Least bytes to move: each of x, w and y once; None where a size or type is unknown."""
        return None if self.operand_bytes is None else sum(self.operand_bytes)

    @property
    def operand_bytes(self) -> tuple[float, float, float] | None:
        """Bytes of x, w and y; None where a size or type is unknown."""
        x = _product(self.n, self.c, self.d, self.h, self.w)
        w = _product(self.k, self.c, self.filter_d, self.filter_h, self.filter_w)
        y = _product(self.n, self.k, self.out_d, self.out_h, self.out_w)
        if x is None or w is None or y is None or self.in_type is None:
            return None
        size = [TYPE_BYTES.get(t or self.in_type, 0.0) for t in (self.in_type, self.weights_type, self.out_type)]
        return x * size[0], w / (self.groups or 1) * size[1], y * size[2]

    @cached_property
    def label(self) -> str:
        """A short name for tables: ``W 64×256×56×56 k256 3×3 s2 g32 FP16 NCHW``."""
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


_CONV_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
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
LAYER_FIELDS: tuple[str, ...] = tuple(name for _, names in _CONV_WORDS for name in names)
CONV_FIELDS: tuple[str, ...] = ("direction", *LAYER_FIELDS)
_OF_LAYER = itemgetter(*LAYER_FIELDS)
_LAYER_TEXT = " ".join(f"{word}=" + ",".join("%s" for _ in names) for word, names in _CONV_WORDS)
CONV_LAYOUT: tuple[str, ...] = ("in_layout", "weights_layout", "out_layout")


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator was given: PyTorch's name of its type (``?``: not recorded), sizes and strides."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.dtype}({','.join(map(str, self.sizes))}|{','.join(map(str, self.strides))})"


Argument: TypeAlias = "Operand | tuple[Operand, ...] | str"
"""A tensor, a list of tensors, or the text of any other value (empty: none was given)."""


@dataclass(frozen=True)
class OperatorProblem:
    """Any other operator of a framework, with all that it was given: ``aten::add_`` of two tensors and a number."""

    name: str
    inputs: tuple[Argument, ...]

    @property
    def kind(self) -> Kind:
        return "operator"

    @property
    def normal(self) -> OperatorProblem:
        return self

    @cached_property
    def text(self) -> str:
        return " ".join(("operator", self.name, *map(_argument_text, self.inputs)))

    @property
    def shape(self) -> None:
        return None

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """All tensors among the inputs, those of lists too, in order."""
        nested = (x if isinstance(x, tuple) else (x,) for x in self.inputs)
        return tuple(x for group in nested for x in group if isinstance(x, Operand))

    @property
    def flops(self) -> None:
        """Not known."""
        return None

    @property
    def bytes(self) -> float:
        """Bytes of the tensors that it was given (its results are not recorded)."""
        return sum((_product(*x.sizes) or 0) * _TENSOR_BYTES.get(x.dtype, 4.0) for x in self.tensors)

    @property
    def label(self) -> str:
        """A short name for tables: ``aten::add_ 64×256×56×56 bfloat16``."""
        largest = max(self.tensors, key=lambda x: _product(*x.sizes) or 0, default=None)
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


def _argument(text: str) -> Argument:
    if text.startswith("="):
        return text[1:]
    if text.startswith("["):
        return tuple(map(_operand, text[1:-1].split(";"))) if len(text) > 2 else ()
    return _operand(text)


def _operand(text: str) -> Operand:
    found = _OPERAND.fullmatch(text)
    if not found:
        raise ValueError(f"no operand: {text[:80]!r}")
    dtype, sizes, strides = found.groups()
    return Operand(dtype, *(tuple(map(int, x.split(","))) if x else () for x in (sizes, strides)))


_OPERAND = re.compile(r"([\w?]+)\(([-\d,]*)\|([-\d,]*)\)")

Problem: TypeAlias = GemmProblem | ConvProblem | OperatorProblem

_INT = re.compile(r"-?\d+\Z")
_BOOLS = frozenset({"gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a", "swizzle_b"})


def kind_of(text: str) -> str:
    """The kind (``gemm``, ``grouped``, ``conv``) of the problem whose ``text`` this is."""
    return text.partition(" ")[0]


def layer_of(text: str) -> tuple[str, str] | None:
    """Direction and layer of the convolution whose ``text`` this is; None for other problems."""
    kind, _, rest = text.partition(" ")
    direction, _, layer = rest.partition(" ")
    return (direction, layer) if kind == "conv" else None


def pass_of(direction: str, layer: str) -> str:
    """The ``text`` of the convolution of a layer in a direction."""
    return f"conv {direction} {layer}"


def problem_from_text(text: str) -> Problem:
    """The problem with this canonical ``text``.  Raises ValueError for any other text."""
    kind, *words = text.split(" ")
    if kind == "conv":
        values: dict[str, Any] = _CONV_DEFAULTS | {"direction": words[0]}
        for word in words[1:]:
            values |= _conv_values(word)
        return _of_fields(ConvProblem, values)
    if kind == "operator" and words:
        return OperatorProblem(words[0], tuple(map(_argument, words[1:])))
    if kind not in ("gemm", "grouped", "family"):  # older stores have families: products with some sizes left open
        raise ValueError(f"not the text of a problem: {text[:80]!r}")
    values = {}
    for word in words:
        values |= _members(word) if word.startswith("members=") else _gemm_values(word)
    return GemmProblem(**{name: value for name, value in values.items() if value != "*"})


T = TypeVar("T")
_CONV_DEFAULTS = {x.name: x.default for x in fields(ConvProblem)}


def _of_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """A frozen object from the values of all its fields, as copy and pickle make one: the constructor sets each of a
    problem's 35 fields by a call, which takes half of the time to read its text.
    """
    made = object.__new__(kind)
    vars(made).update(values)
    return made


_WORDS = 1 << 16
"""Words kept: those of hundreds of thousands of texts are few, and reading one takes longer than finding it."""


@lru_cache(maxsize=_WORDS)
def _conv_values(word: str) -> Mapping[str, int | str | None]:
    cells = _cells(word, _CONV_NAMES).items()
    return {name: int(cell) if cell and _INT.match(cell) else cell for name, cell in cells}


@lru_cache(maxsize=_WORDS)
def _gemm_values(word: str) -> Mapping[str, int | bool | str]:
    out: dict[str, int | bool | str] = {}
    for name, cell in _cells(word, _GEMM_NAMES).items():
        if cell is not None:
            number = _INT.match(cell)
            out[name] = bool(int(cell)) if name in _BOOLS and number else int(cell) if number else cell
    return out


def _members(word: str) -> Mapping[str, tuple[Member, ...]]:
    names = [f.name for f in fields(Member)]
    rows = [[None if c == "?" else int(c) for c in x.split("/")] for x in word[len("members=") :].split(",")]
    return {"members": tuple(Member(**dict(zip(names, row, strict=True))) for row in rows)}  # type: ignore[arg-type]


_CONV_NAMES, _GEMM_NAMES = dict(_CONV_WORDS), dict(_GEMM_WORDS)


def _cells(word: str, groups: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    name, eq, rest = word.partition("=")
    cells = rest.split(",")
    if not eq or name not in groups or len(cells) != len(groups[name]):
        raise ValueError(f"not a word of a problem's text: {word[:80]!r}")
    return {key: None if cell in ("?", "-") else cell for key, cell in zip(groups[name], cells, strict=True)}


def _product(*values: int | None) -> int | None:
    out = 1
    for value in values:
        if value is None:
            return None
        out *= value
    return out


# ------------------------------------------------------------------------------- what files state about problems


@dataclass(frozen=True)
class Solution:
    """A kernel or algorithm of a library that computes a problem: ``hipblaslt:477479``, ``miopen:GemmWrwUniversal`` …

    ``raw`` is the file's own spelling, ``algorithm`` MIOpen's algorithm string.  PyTorch's normal call is
    ``Solution("torch", "Default")``, whose text is ``Default``.
    """

    library: str
    id: str
    raw: str = field(default="", compare=False)
    algorithm: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        return "Default" if self.id == "Default" else f"{self.library}:{self.id}"


DEFAULT = Solution("torch", "Default", "Default")


def solution_from_text(text: str) -> Solution:
    """The solution with this canonical ``text``."""
    library, colon, id = text.partition(":")
    return Solution(library, id) if colon else Solution("torch", text)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a problem that a log records.

    ``category`` is the mask category (``trace``, ``bench``, ``profile`` …) or another library's word for it; ``count``
    is None where the format does not count; ``by_tool`` marks lines that a benchmark wrote, which count for nothing.
    Ingest adds clock and process; ``pid`` is the process where a block of lines states it.
    """

    problem: Problem
    category: str
    count: int | None = 1
    solution: Solution | None = None
    workspace_bytes: int | None = None
    by_tool: bool = False
    device: int | None = None
    pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A time of one solution for one problem, from a file or a replay, or the reason why there is no time.

    ``origin`` names the tool that measured, as its format declares (``formats.format.Origin``: ``find-db``,
    ``tunableop``, ``trace`` …); a comparison of times of different origins is always labelled as one.
    """

    problem: Problem
    solution: Solution
    origin: str
    status: Status = "ok"
    time_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    std_us: float | None = None
    samples_us: tuple[float, ...] = ()
    workspace_bytes: int | None = None
    error: str | None = None
    key_text: str | None = None


@dataclass(frozen=True)
class Fact:
    """Where a file or measurement was made: ``arch``, ``cu_count``, ``hipblaslt_revision`` … (see ``FACTS``)."""

    name: str
    value: str


FACTS: Mapping[str, str] = {
    "arch": "gcnArchName as the file gives it, or gfxNNN",
    "cu_count": "compute units (SMs on NVIDIA)",
    "device": "marketing name of the device",
    "gpus": "devices that one process sees",
    "kernels_of": "place and process of a file of rocprof, of which several hold the same kernels",
    "driver": "driver version",
    "hipblaslt_version": "major·100000 + minor·100 + patch, or M.m.p before ROCm 6.2",
    "hipblaslt_revision": "git revision of hipBLASLt",
    "rocblas_version": "rocBLAS version text",
    "miopen_version": "M.m.p",
    "miopen_tweak": "git hash part of the MIOpen build",
    "rocm_version": "ROCm version",
    "hip_version": "HIP version",
    "cuda_version": "CUDA version that PyTorch was built for",
    "pytorch_version": "x.y.z",
    "cublaslt_version": "cuBLASLt version",
    "backend": "HIP, OpenCL or CUDA",
    "pid": "process that wrote the file, where the file's name contains it",
}
"""Names of facts that more than one format gives.  A TunableOp validator is also kept raw as ``validator:KEY``."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A line that a library wrote and that is no call, its addresses normalised."""

    category: str
    text: str
    function: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SolutionName:
    """Names that a library build gives to a solution (bench output, extended profile)."""

    solution: Solution
    name: str | None = None
    kernel_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """GPU kernels of one name that an operator launched (traces).  ``problem`` None: the operator is no problem.

    ``operator`` is one that no math library computes, with its recorded inputs.  Statistics of the
    first rocprof have no extremes.
    """

    op: str
    kernel: str
    calls: int
    total_us: float
    min_us: float | None
    max_us: float | None
    device: int | None = None
    problem: Problem | None = None
    operator: OperatorProblem | None = None


@dataclass(frozen=True)
class Reject:
    """A stretch of a line that has a format's marker and cannot be read.

    ``offset`` is in bytes from the start of the line that the reader got (ingest adds the line's place in the file);
    length 0 means the whole line.
    """

    reason: str
    offset: int = 0
    length: int = 0


Record: TypeAlias = Call | Measurement | Fact | Message | SolutionName | Kernel | Reject


# ------------------------------------------------------------------------------------------------ what we conclude


@dataclass(frozen=True, kw_only=True)
class Override:
    """The instruction to use a solution for a problem on a target.

    ``target`` holds facts of the machine that will read it.  ``time_us`` and ``workspace_bytes`` are those of the
    measurement that supports it, ``key_text`` the library's own key where a file gave it.  ``parameters`` are the
    solver's tuned ones, verbatim (MIOpen's perf-db): without them a tunable solver is not the one that was measured.
    ``fallback`` is the next best measured solution, for a library that accepts a second where the first does not apply.
    """

    problem: Problem
    solution: Solution
    target: Mapping[str, str]
    time_us: float | None = None
    default_us: float | None = None
    workspace_bytes: int | None = None
    key_text: str | None = None
    parameters: str | None = None
    fallback: Override | None = None


Certainty = Literal["measured", "inferred"]


@dataclass(frozen=True, kw_only=True)
class Evidence(Mapping[str, object]):
    """The evidence of a finding: the fields that ranking and confidence read, and details that are only shown.

    As a mapping it holds what is shown: all ``details`` and the known fields, except ``certainty`` and ``now_us``,
    which are columns of their own.  Raises ValueError where a detail has the name of a field.
    """

    certainty: Certainty = "inferred"
    """``measured``: both ``now_us`` and the proposed time of a call are times of measured solutions."""
    now_us: float | None = None
    """Time of one call now, µs."""
    pick: str | None = None
    """Text of the solution that runs now."""
    best: str | None = None
    """Text of the solution that is proposed."""
    best_us: float | None = None
    """Time of ``best``, µs; where none is proposed, time of the fastest known solution, which is too slow."""
    noise_us: float | None = None
    """Difference between two times of the pick in one file, µs."""
    measured: str | None = None
    """Text of the measured problem, where it is not the finding's own."""
    source_id: str | None = None
    """Id of the source that the finding is about."""
    what_if_source: str | None = None
    """Id of the source with the times of ``pick`` and ``best``, where it is another."""
    origin: str | None = None
    level: str | None = None
    """Level of the link over which the measurement was taken."""
    arch: str | None = None
    cu_count: str | None = None
    file: str | None = None
    versions: Mapping[str, str] | None = None
    """Path of the source of the times, and the facts of the machine that wrote it."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Other values that the analyzer shows; nothing is computed from them."""

    def __post_init__(self) -> None:
        if not self.details.keys().isdisjoint(self.__dataclass_fields__.keys()):
            doubled = self.details.keys() & self.__dataclass_fields__.keys()
            raise ValueError(f"evidence has fields of these names: {', '.join(sorted(doubled))}")

    @cached_property
    def shown(self) -> Mapping[str, object]:
        """What this mapping holds, as a dict, of which copies are faster."""
        own = vars(self).items()
        return {name: x for name, x in own if x is not None and name not in _NOT_SHOWN} | dict(self.details)

    def __getitem__(self, name: str) -> object:
        return self.shown[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shown)

    def __len__(self) -> int:
        return len(self.shown)


_NOT_SHOWN = frozenset({"certainty", "now_us", "details"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an analyzer found about one problem (or, with ``problem`` None, about the run).

    ``saving_us`` is per run of the workload, with ``saving_low_us``/``saving_high_us`` where an interval is known;
    ``per_call_us`` is the loss of one call, with its own interval.  ``interval_from`` names what the interval is of,
    ``p`` is the p-value of a confirmation (``docs/findings.md``).  None means unknown, never zero.  ``reasons`` are the
    messages of findings about the same problem whose savings are contained in this one's.
    """

    analyzer: str
    message: str
    problem: Problem | None = None
    saving_us: float | None = None
    saving_low_us: float | None = None
    saving_high_us: float | None = None
    saving_share: float | None = None
    per_call_us: float | None = None
    per_call_low_us: float | None = None
    per_call_high_us: float | None = None
    interval_from: str | None = None
    p: float | None = None
    calls: int | None = None
    evidence: Evidence = field(default_factory=Evidence)
    override: Override | None = None
    advice: str | None = None
    reasons: tuple[str, ...] = ()

    @property
    def kind(self) -> str | None:
        return self.problem.kind if self.problem else None


R = TypeVar("R", Evidence, Finding)


def changed(record: R, **changes: object) -> R:
    """A finding, or its evidence, with other values, as ``dataclasses.replace`` makes it in ten times the time: every
    finding of a large store gets its place and its reasons.
    """
    values = vars(record) | changes
    values.pop("shown", None)  # made of the old values
    return _of_fields(type(record), values)
