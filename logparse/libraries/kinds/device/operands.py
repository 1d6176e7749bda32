"""The input and output tensors on which kernels are timed, filled with random data, and the right results.

BLAS matrices are column-major and torch tensors are row-major.  So D = op(A)·op(B) is computed as Dᵀ = op(B)ᵀ·op(A)ᵀ:
``x`` (n×k) times ``y`` (k×m) gives ``d`` (n×m).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from logparse.libraries.kinds.backend import Conditions, UnsupportedError
from logparse.libraries.kinds.correctness import Tolerance, approximate, integer_choices, tolerance
from logparse.libraries.kinds.device.torch_device import Tensor, TorchDevice
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.model import ConvProblem, GemmProblem, Problem
from logparse.roofline import matrices as sizes_of

_FLOATS = [x for x in TORCH_TYPES if "float" in x.operand and not x.blas.startswith("f4")]
_DTYPES = {"xf32_r": "float32"} | {name: x.operand for x in _FLOATS for name in (x.blas, x.conv) if name}

_GELU_SLACK = 2e-3  # libraries approximate GELU, by tanh or worse
_STRIPE = 1 << 28
"""The number of elements of a result that are compared with the right result at a time.

All elements at once would need too much memory.  In double precision, the logits of one language model fill a third of
a GPU.
"""
_ALL = slice(None)


def dtype_of(device: TorchDevice, name: str | None) -> Any:
    """Return the torch dtype for a type's name in a library, for example ``bf16_r``.

    Raises UnsupportedError if torch has none.
    """
    if name is None or name not in _DTYPES:
        raise UnsupportedError(f"type {name or 'unknown'}")
    return getattr(device.torch, _DTYPES[name])


@dataclass(frozen=True)
class Matrix:
    """A column-major matrix in memory: its rows, columns, leading dimension and type.

    ``stride`` is the distance of two matrices of a batch, in elements.
    """

    rows: int
    cols: int
    ld: int
    stride: int
    dtype: str

    def elements(self, batch: int) -> int:
        """Return how many elements a batch of matrices spans in memory, including the gaps between them.

        ``batch`` is the number of matrices.  All of them have this size, leading dimension and stride.
        """
        return self.stride * (batch - 1) + self.ld * self.cols


def matrices(problem: GemmProblem) -> dict[str, Matrix]:
    """Return the sizes and types of a product's matrices by name: ``a``, ``b``, ``c`` and ``d``.

    Raises UnsupportedError if a size, transpose or type is not known, or if the product cannot be measured.
    """
    p = problem
    if p.members or p.m is None or p.n is None or p.k is None or p.batch_count is None:
        raise UnsupportedError(
            "the log does not state the sizes of the matrix product"
            if not p.members
            else "a grouped GEMM cannot be measured"
        )
    if p.trans_a is None or p.trans_b is None:
        raise UnsupportedError("it is not known which matrices of the product are transposed")
    if p.batch_mode == "pointer":
        raise UnsupportedError("a batch whose matrices are given by pointers cannot be measured")
    out = {}
    for name, sizes in sizes_of(p).items():
        rows, cols = (int(getattr(p, size)) for size in sizes)
        dtype = getattr(p, f"{name}_type") or p.d_type or p.a_type
        # An unknown leading dimension is taken as the number of rows. An unknown C gets the type and leading dimension
        # of D.
        ld = getattr(p, f"ld{name}") or (p.ldd if name == "c" and p.ldd else rows)
        stride = getattr(p, f"stride_{name}")
        if dtype is None:
            raise UnsupportedError("the log does not state the data types of the matrix product")
        if ld < rows:
            raise UnsupportedError(f"ld{name} {ld} is less than {rows} rows")
        out[name] = Matrix(rows, cols, ld, ld * cols if stride is None and p.batch_count > 1 else stride or 0, dtype)
    return out


@dataclass(frozen=True)
class Written:
    """A tensor that a kernel writes, with the functions by which its content is checked.

    * ``name``: its name.  It is empty for the main result.
    * ``memory``: the tensor itself, in the first copy of the inputs and outputs.
    * ``reference``: a function that returns the right values in higher precision, for a slice of the first dimension.
    * ``magnitudes``: a function that returns, for the same slice, the sums of the absolute values of the products.
    """

    name: str
    memory: Tensor
    reference: Callable[[slice], Tensor]
    magnitudes: Callable[[slice], Tensor]
    tolerance: Tolerance


class OperandSets:
    """The inputs, outputs and right result of a matrix product or convolution, in several copies (sets).

    A subclass defines ``_result`` and ``_inputs``, and ``_beside`` if a call writes more tensors than its result.
    """

    def __init__(self, device: TorchDevice, problem: GemmProblem | ConvProblem, conditions: Conditions) -> None:
        self._device, self.problem = device, problem
        # A kernel is timed on the sets in turn, so that the GPU's cache does not hold the data.
        self.sets, self.evict, self._seed = conditions.sets, conditions.evict, conditions.seed
        self._tolerance = tolerance(problem, tf32=conditions.tf32)
        self._remake: list[Callable[[int], None]] = []
        self._references: dict[str, Tensor] = {}

    def _inputs(self) -> Sequence[Sequence[Tensor]]:
        """Return the input tensors of the operation that is measured.  They will be filled with random data.

        Every input exists in several copies, so that repeated calls read other memory.  The result has one list per
        input, which contains these copies.
        """
        raise NotImplementedError

    def _result(self, part: slice = _ALL, *, magnitudes: bool = False) -> Tensor:
        """Compute the right result for the first copy of the inputs, in higher precision.

        * ``part`` selects a slice of the first dimension.
        * With ``magnitudes`` the absolute values of the products are added up, for the size of rounding errors.
        """
        raise NotImplementedError

    def _beside(self) -> Sequence[Written]:
        """Return the tensors that a kernel writes in addition to its main result."""
        return ()

    def _written(self, output: Tensor) -> list[Written]:
        magnitudes = partial(self._reference, magnitudes=True)
        return [Written("", output, self._reference, magnitudes, self._tolerance), *self._beside()]

    def fill(self, seed: int) -> None:
        """Fill all inputs with random numbers from a normal distribution.

        Each tensor has its own seed, so that a single tensor can be restored.
        """
        self._seed = seed
        self._references.clear()
        for index in range(self.sets):
            self._fill_set(index)

    def _fill_set(self, index: int) -> None:
        for number, memories in enumerate(self._inputs()):
            generator = self._device.torch.Generator(device=self._device.device)
            generator.manual_seed((self._seed * 64 + number) * 1_000_003 + index)
            random_normal(self._device, memories[index], generator)
        self._changed(index)

    def _fill_integers(self) -> None:
        """Fill the first copy of the inputs with the numbers -1, 0 and 1 only.

        Most of them are 0, so that every sum of products is exact in the output's type.
        """
        torch, choices = self._device.torch, integer_choices(self.problem)
        for number, memories in enumerate(self._inputs()):
            generator = torch.Generator(device=self._device.device).manual_seed(self._seed * 64 + number)
            where = {"generator": generator, "device": self._device.device}
            drawn = torch.randint(0, choices, memories[0].shape, dtype=torch.int32, **where)
            memories[0].copy_((drawn == 0).to(torch.float32) - (drawn == 1).to(torch.float32))
        self._changed(0)

    def error(self, output: Tensor) -> float:
        """Return the relative error of a kernel's result for the first copy of the inputs, ‖out − ref‖ / ‖ref‖.

        The reference ``ref`` has higher precision.  The error is NaN if an element is not finite.
        """
        torch, errors = self._device.torch, []
        for written in self._written(output):
            off = of = 0.0
            for part in _parts(written.memory):
                ref = written.reference(part)
                wide = written.memory[part].to(ref.dtype)
                if not bool(torch.isfinite(wide).all()):
                    return math.nan
                off += float(torch.linalg.vector_norm(wide - ref)) ** 2
                of += float(torch.linalg.vector_norm(ref)) ** 2
            errors.append(math.sqrt(off) / max(math.sqrt(of), 1e-30))
        # If the call writes several tensors, the largest error counts.
        return max(errors)

    def fault(self, run: Callable[[], Tensor]) -> str:
        """Check the result of a kernel (``run``), and describe what is wrong.  Returns an empty text if it is right."""
        # With random data each element may be wrong by as much as rounding explains.
        for written in self._written(run()):
            for part in _parts(written.memory):
                excess = self._excess(written, part)
                if not excess <= 1:
                    which = f" of {written.name}" if written.name else ""
                    return f"an element{which} differs {excess:.1f} times as much as rounding explains"
        if approximate(self.problem):
            return ""
        try:
            # With small integers every result is exact.
            self._fill_integers()
            output = run()
            wrong = self._inexact(output, self._result)
            wrong += sum(self._inexact(x.memory, x.reference) for x in self._beside())
        finally:
            self._fill_set(0)
        return f"{wrong} elements are wrong for integer inputs, whose sums are exact" if wrong else ""

    def _reference(self, part: slice, *, magnitudes: bool = False) -> Tensor:
        """Compute the correct result of the operation, against which a kernel's output is checked.

        ``part`` says which part of the output is wanted.  The result of the whole output is kept, and is computed again
        only after the inputs have changed.
        """
        if part != _ALL:
            return self._result(part, magnitudes=magnitudes)
        name = "magnitudes" if magnitudes else "result"
        if name not in self._references:
            self._references[name] = self._result(magnitudes=magnitudes)
        return self._references[name]

    def _excess(self, written: Written, part: slice) -> float:
        """Return the largest error in a part of an output, as a multiple of the error that rounding can explain.

        Above 1 the output is wrong.  The result is NaN if an element is not finite.
        """
        allowed, ref, size = written.tolerance, written.reference(part), written.magnitudes(part)
        scale = float(self._device.torch.linalg.vector_norm(ref)) / math.sqrt(max(1, ref.numel()))
        slack = _GELU_SLACK if approximate(self.problem) else 0.0
        of_products = slack if isinstance(self.problem, GemmProblem) and self.problem.gradient else 0.0
        limit = allowed.output * ref.abs() + allowed.partials * scale + allowed.products * size
        limit += slack * (1 + ref.abs()) + of_products * size  # an approximate derivative multiplies the products
        return float(((written.memory[part].to(ref.dtype) - ref).abs() / limit.clamp_min(1e-30)).max())

    def _inexact(self, output: Tensor, reference: Callable[[slice], Tensor]) -> int:
        """Count the wrong elements in a result that was computed from integers."""
        wrong = 0
        for part in _parts(output):
            right = reference(part).round()
            away = (output[part].to(right.dtype) - right).abs()
            # An element of a convolution may differ by less than 0.5, because a convolution's transforms may divide.
            good = away == 0 if isinstance(self.problem, GemmProblem) else away < 0.5
            wrong += int(good.numel() - good.sum())
        return wrong

    def derived(self, make: Callable[[int], Tensor]) -> list[Tensor]:
        """Prepare the inputs in another form for a kernel that needs it, for example in another memory layout.

        ``make(i)`` converts copy ``i`` of the inputs.  Returns one converted tensor for each copy.
        """
        held = [make(index) for index in range(self.sets)]
        # If the inputs get new data, the tensors are converted again.
        self._remake.append(lambda index: held[index].copy_(make(index)))
        return held

    def _changed(self, index: int) -> None:
        for remake in self._remake:
            remake(index)


class GemmOperands(OperandSets):
    """The inputs and outputs of a matrix product, in several copies (sets) that are used in turn.

    ``x``, ``y``, ``c``, ``d`` and ``bias`` are lists with one tensor per set, row-major as in torch.  ``memory`` holds
    all tensors whose addresses a library gets.  They are the tensors above and these:

    * ``aux`` is packed tightly, with the shape of D.
    * ``scale_a``, ``scale_b``, ``scale_c`` and ``scale_d`` are in single precision.  They have one factor, or one
      factor per row of op(A) or column of op(B).
    * ``scale_alpha`` has one factor per row of D.

    ``written`` are the names of the tensors that a call writes: d, and also aux for a forward epilogue or bias for a
    gradient.
    """

    def __init__(self, device: TorchDevice, problem: GemmProblem, conditions: Conditions) -> None:
        super().__init__(device, problem, conditions)
        self.problem: GemmProblem = problem
        self.matrices = matrices(problem)
        self.batch = problem.batch_count or 1
        torch = device.torch
        names = "abcd" if problem.beta == "nonzero" else "abd"
        self.memory: dict[str, list[Tensor]] = {name: [] for name in (*names, "bias")}
        beside = {"aux": problem.aux and not problem.gradient, "bias": problem.bias and problem.gradient}
        self.written = ("d", *(name for name, wrote in beside.items() if wrote))
        shapes = {name: (self.matrices[name].elements(self.batch), self.matrices[name].dtype) for name in names}
        shapes |= vectors(problem, self.batch)
        with device.memory_errors((problem.bytes or 0.0) * conditions.sets):
            for name, (elements, kind) in shapes.items():
                make = partial(torch.empty, elements, dtype=dtype_of(device, kind), device=device.device)
                self.memory[name] = [make() for _ in range(conditions.sets)]
            self.fill(conditions.seed)
        turned_b, turned_a = problem.trans_b != "N", problem.trans_a != "N"
        self.x = [self._view("b", i, turned_b) for i in range(conditions.sets)]
        self.y = [self._view("a", i, turned_a) for i in range(conditions.sets)]
        self.d = [self._view("d", i, False) for i in range(conditions.sets)]
        self.c = [self._view("c", i, False) for i in range(conditions.sets)] if "c" in names else []
        self.bias = self.memory["bias"]
        self.aux = [x.view(self.d[0].shape) for x in self.memory.get("aux", ())]

    def _view(self, name: str, index: int, turned: bool) -> Tensor:
        matrix, memory = self.matrices[name], self.memory[name][index]
        size, stride = (matrix.cols, matrix.rows), (matrix.ld, 1)
        if self.batch > 1:
            size, stride = (self.batch, *size), (matrix.stride, *stride)  # type: ignore[assignment]
        view = memory.as_strided(size, stride)
        return view.transpose(-1, -2) if turned else view

    def _inputs(self) -> Sequence[Sequence[Tensor]]:
        return [memories for name, memories in self.memory.items() if name not in self.written and memories]

    def poison(self) -> None:
        """Fill the outputs with NaN, so that elements that a kernel does not write are found.

        Only the first copy of the outputs is filled.  If the type has no NaN, 0 is written instead.
        """
        for name in self.written:
            self.memory[name][0].fill_(math.nan)

    def _result(self, part: slice = _ALL, *, magnitudes: bool = False) -> Tensor:
        torch, p, wide = self._device.torch, self.problem, partial(_wide, magnitudes=magnitudes)
        out = self._before_activation(wide, part)
        if p.gradient and p.activation == "gelu":
            return wide(torch.ops.aten.gelu_backward(out, self.aux[0][part].to(out.dtype), approximate="tanh"))
        if not magnitudes and p.activation == "relu":
            out = torch.relu(out)
        elif not magnitudes and p.activation == "gelu":
            out = torch.nn.functional.gelu(out, approximate="tanh")
        return out * wide(self.memory["scale_d"][0]) if "scale_d" in self.memory else out

    def _before_activation(self, wide: Callable[[Tensor], Tensor], part: slice = _ALL) -> Tensor:
        """Compute α·op(A)·op(B)·scales + β·C + bias: the result of a matrix product before the activation.

        The result is row-major.  ``part`` selects some of its rows, or some products of a batch.
        """
        # The memory of BLAS's column-major matrix D is the memory of its row-major transpose, so rows of the result are
        # columns of D.
        scales = {name: wide(held[0]) for name, held in self.memory.items() if name.startswith("scale_")}
        out = wide(self.x[0][part]) @ wide(self.y[0] if self.batch == 1 else self.y[0][part])
        out = out * scales["scale_a"] if "scale_a" in scales else out
        if "scale_b" in scales:
            per_row = self.batch == 1 and len(scales["scale_b"]) > 1
            out = out * scales["scale_b"][part if per_row else _ALL].unsqueeze(-1)
        out = out * scales["scale_alpha"] if "scale_alpha" in scales else out
        if self.c:
            out += wide(self.c[0][part]) * scales.get("scale_c", 1)
        return out + wide(self.bias[0]) if self.bias and "bias" not in self.written else out

    def _beside(self) -> Sequence[Written]:
        p, found = self.problem, []
        for name in self.written[1:]:
            # The bias gradient also sums over N.
            like = replace(p, d_type=vectors(p, self.batch)[name][1], k=(p.k or 0) + (p.n or 0))
            reference, magnitudes = (self._side(name, magnitudes=x).__getitem__ for x in (False, True))
            memory = self.aux[0] if name == "aux" else self.bias[0]
            found.append(Written(name, memory, reference, magnitudes, tolerance(like)))
        return found

    def _side(self, name: str, *, magnitudes: bool) -> Tensor:
        wide = partial(_wide, magnitudes=magnitudes)
        if name == "aux":
            return self._before_activation(wide)
        if self.problem.bias_source in ("a", "b"):
            return wide(self.y[0]).sum(0) if self.problem.bias_source == "a" else wide(self.x[0]).sum(1)
        return self._result(magnitudes=magnitudes).sum(0)

    def _fill_set(self, index: int) -> None:
        """Fill one copy of the inputs with random data.

        The scale factors are powers of two near 1.  Random normal factors would make most of a result vanish.
        """
        super()._fill_set(index)
        for memories in self._scales():
            memories[index].clamp_(-2, 2).round_().exp2_()

    def _fill_integers(self) -> None:
        super()._fill_integers()
        for memories in self._scales():
            memories[0].fill_(1)

    def _scales(self) -> Sequence[Sequence[Tensor]]:
        return [memories for name, memories in self.memory.items() if name.startswith("scale_")]


def vectors(problem: GemmProblem, batch: int) -> dict[str, tuple[int, str]]:
    """Return the vectors that a matrix product needs besides its matrices: bias, auxiliary matrix and scale factors.

    The result maps a vector's name to its number of elements and its type.  Raises UnsupportedError if one cannot be
    measured.
    """
    p, found = problem, {}
    m, n, out_type = p.m or 0, p.n or 0, p.d_type or p.a_type or ""
    if p.bias:
        if p.gradient and batch > 1:
            raise UnsupportedError("a batch of products that also computes the gradient of a bias cannot be measured")
        found["bias"] = (n if p.gradient and p.bias_source == "b" else m, p.bias_type or out_type)
    if p.aux or (p.gradient and p.activation not in (None, "none")):
        found["aux"] = (batch * m * n, p.aux_type or out_type)
    for name, rows in (("scale_a", m), ("scale_b", n), ("scale_c", 0), ("scale_d", 0)):
        word = getattr(p, name)
        if word not in (None, "none"):
            if word != "scalar" and not (word == "row" and rows):
                raise UnsupportedError(f"{name} {word}")
            found[name] = (1 if word == "scalar" else rows, "f32_r")
    if p.scale_alpha_vector:
        found["scale_alpha"] = (m, "f32_r")
    return found


class ConvOperands(OperandSets):
    """The inputs and outputs of a convolution, in several copies (sets) that are used in turn."""

    def __init__(self, device: TorchDevice, problem: ConvProblem, conditions: Conditions) -> None:
        super().__init__(device, problem, conditions)
        self.problem: ConvProblem = problem
        shapes = conv_shapes(problem)
        layouts = {"x": problem.in_layout, "w": problem.weights_layout, "dy": problem.out_layout}
        self.formats = {name: memory_format(device, layout, problem.spatial) for name, layout in layouts.items()}
        dtype = dtype_of(device, problem.in_type)
        torch = device.torch
        # Each of ``x``, ``w`` and ``dy`` is a list with one tensor per set, in the memory layouts of the problem. In
        # the forward direction (F), ``dy`` is the output y.
        self.tensors: dict[str, list[Tensor]] = {}
        with device.memory_errors((problem.bytes or 0.0) * conditions.sets):
            for name, shape in shapes.items():
                self.tensors[name] = [
                    torch.empty(shape, dtype=dtype, device=device.device, memory_format=self.formats[name])
                    for _ in range(conditions.sets)
                ]
            self.fill(conditions.seed)
        self.x, self.w, self.dy = (self.tensors[name] for name in ("x", "w", "dy"))
        self.output = {"F": "dy", "B": "x", "W": "w"}[problem.direction]

    def _inputs(self) -> Sequence[Sequence[Tensor]]:
        return list(self.tensors.values())

    def poison(self) -> None:
        """Fill the output with NaN, so that a check finds the elements that a kernel does not write."""
        # Only the first copy of the output is filled, which is safe because no direction of a convolution reads its
        # output.
        output = self.tensors[self.output][0]
        output.fill_(math.nan)
        # torch's functions allocate a new output. So a block of the same size is filled with NaN and freed at once,
        # because the allocator then gives them this block.
        self._device.torch.full_like(output, math.nan)

    def _result(self, part: slice = _ALL, *, magnitudes: bool = False) -> Tensor:
        """Compute the right result of a convolution for the first copy of the inputs.

        The computation is in single precision if the inputs have 16 bits, and in double precision otherwise.
        """
        torch = self._device.torch
        wide = torch.float32 if self.x[0].dtype in (torch.float16, torch.bfloat16) else torch.float64
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False):
            of_images = part if self.problem.direction != "W" else _ALL  # W sums over all images
            images = self.x[0][of_images], self.w[0], self.dy[0][of_images]
            x, w, dy = (t.to(wide).contiguous() for t in images)
            if magnitudes:
                x, w, dy = x.abs(), w.abs(), dy.abs()
            out = convolve(self._device, self.problem, x, w, dy)
        return out[part] if self.problem.direction == "W" else out


def random_normal(device: TorchDevice, memory: Tensor, generator: Any) -> None:
    """Fill a tensor with random numbers from a normal distribution.

    PyTorch cannot draw random numbers of 8-bit types.  These values are drawn in single precision and converted.
    """
    if memory.dtype.itemsize >= 2:
        memory.normal_(generator=generator)
    else:
        drawn = device.torch.randn(memory.shape, generator=generator, device=device.device)
        memory.copy_(drawn.to(memory.dtype))


def _wide(tensor: Tensor, *, magnitudes: bool) -> Tensor:
    return tensor.float().abs() if magnitudes else tensor.double()


def _parts(output: Tensor) -> list[slice]:
    """Divide a large output into slices that can be checked one by one, with at most ``_STRIPE`` elements each.

    The slices are of its first dimension. If the output is small, the result is one slice that covers everything.
    """
    rows, count = max(1, _STRIPE // max(1, output[0].numel())), len(output)
    return [_ALL] if rows >= count else [slice(at, at + rows) for at in range(0, count, rows)]


def memory_format(device: TorchDevice, layout: str | None, spatial: int) -> Any:
    """Return how PyTorch names a memory layout, for example ``channels_last`` for NHWC in two dimensions.

    Raises UnsupportedError for an unknown layout.
    """
    torch = device.torch
    if layout in ("NCHW", "NCDHW"):
        return torch.contiguous_format
    if layout in ("NHWC", "NDHWC"):
        return torch.channels_last if spatial == 2 else torch.channels_last_3d
    raise UnsupportedError(f"layout {layout or 'unknown'}")


def conv_of(problem: Problem, types: Container[str | None]) -> ConvProblem:
    """Check that ``problem`` is a convolution with known shapes and with one of the given types, and return it.

    Raises UnsupportedError if it is not.
    """
    if not isinstance(problem, ConvProblem):
        raise UnsupportedError(f"a {problem.kind}")
    conv_shapes(problem)
    if problem.in_type not in types:
        raise UnsupportedError(f"type {problem.in_type}")
    return problem


def conv_shapes(problem: ConvProblem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a convolution's tensors: input ``x``, weights ``w``, and output or its gradient ``dy``.

    Raises UnsupportedError if a size is unknown or wrong, or if such a convolution cannot be measured, for example
    because it is transposed.
    """
    p = problem
    if p.bias:
        raise UnsupportedError(
            "a convolution with a bias cannot be measured, because libraries add the bias in a separate call"
        )
    if p.direction == "B+W" or p.mode == "transposed" or {p.in_cast, p.weights_cast, p.out_cast} - {None, "none"}:
        raise UnsupportedError(
            "a convolution cannot be measured if it is transposed, if it computes two gradients in one call "
            "(B+W), or if it casts a tensor to another type"
        )
    if len({p.in_type, p.weights_type, p.out_type} - {None}) > 1:
        raise UnsupportedError("a convolution with mixed types cannot be measured")
    spatial = ("d", "h", "w")[3 - p.spatial :]
    sized = (f"{x}_{axis}" for x in ("filter", "pad", "stride", "dilation", "out") for axis in spatial)
    if any(getattr(p, name) is None for name in ("n", "c", "k", "groups", *spatial, *sized)):
        raise UnsupportedError("a size of the convolution is not known")
    for axis in spatial:
        size, window = getattr(p, axis), (getattr(p, f"filter_{axis}") - 1) * getattr(p, f"dilation_{axis}") + 1
        fits = (size + 2 * getattr(p, f"pad_{axis}") - window) // getattr(p, f"stride_{axis}") + 1
        if fits != getattr(p, f"out_{axis}"):
            raise UnsupportedError(
                f"the output size out_{axis} is {getattr(p, f'out_{axis}')}, but input size, filter, padding, stride "
                f"and dilation give {fits}"
            )
    heads = {"x": (p.n, p.c), "w": (p.k, (p.c or 0) // (p.groups or 1)), "dy": (p.n, p.k)}
    prefixes = {"x": "", "w": "filter_", "dy": "out_"}
    return {
        name: (*(int(size or 0) for size in heads[name]), *(int(getattr(p, f"{prefix}{axis}")) for axis in spatial))
        for name, prefix in prefixes.items()
    }


def geometry(problem: ConvProblem) -> tuple[list[int], list[int], list[int]]:
    axes = ("d", "h", "w")[3 - problem.spatial :]
    return tuple([int(getattr(problem, f"{x}_{a}")) for a in axes] for x in ("stride", "pad", "dilation"))  # type: ignore[return-value]


def strides(shape: Sequence[int], layout: str | None) -> list[int]:
    """Return the strides of a tensor, in elements.

    ``shape`` is (N, C, spatial…).  ``layout`` is the order in memory, for example ``NHWC``.
    """
    order = list(range(len(shape)))
    if layout in ("NHWC", "NDHWC"):
        order = [0, *order[2:], 1]
    out, step = [0] * len(shape), 1
    for axis in reversed(order):
        out[axis] = step
        step *= shape[axis]
    return out


def convolve(device: TorchDevice, problem: ConvProblem, x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
    """Compute a convolution or one of its gradients with torch's own operators, which autograd would call, too.

    The direction of ``problem`` decides which operator is called: F (forward), B (gradient of the input) or W (gradient
    of the weights).
    """
    aten = device.torch.ops.aten
    stride, pad, dilation = geometry(problem)
    zeros, groups = [0] * problem.spatial, problem.groups or 1
    if problem.direction == "F":
        return aten.convolution(x, w, None, stride, pad, dilation, False, zeros, groups)
    mask = [problem.direction == "B", problem.direction == "W", False]
    gradients = aten.convolution_backward(dy, x, w, None, stride, pad, dilation, False, zeros, groups, mask)
    return gradients[0] if problem.direction == "B" else gradients[1]
