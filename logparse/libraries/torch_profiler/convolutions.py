"""Turn PyTorch's convolution operators into the convolutions that the math library computes.

All sizes belong to the forward convolution, also for a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.torch_profiler.inputs import Backend, Inputs, Operation, Reader, contiguous_strides
from logparse.model import ConvProblem, Direction

_TYPES = {x.cpp: x.conv for x in TORCH_TYPES}


@dataclass(frozen=True)
class Places:
    """The positions of a convolution operator's arguments, for example of its stride and padding.

    ``groups`` is not a position if it is negative: -1 means as many groups as channels, and -2 means one group.
    """

    stride: int
    padding: int
    dilation: int
    groups: int
    # Index of the input that is True for a transposed convolution.  If the operator is always transposed: True.
    transposed: bool | int = False
    fused: bool = False


def _ints(text: str, count: int) -> list[int]:
    """Parse a list of numbers such as ``[1, 1]``, as a trace prints it in the field ``Concrete Inputs``.

    A single number is repeated for each of the ``count`` dimensions.  Raises ValueError if the text is not such a list.
    """
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"{text[:80]!r} is not a list")
    values = [int(part) for part in text[1:-1].split(",")]
    if len(values) == 1:
        values *= count
    if len(values) != count:
        raise ValueError(f"{len(values)} numbers for {count} dimensions")
    return values


def _layout(tensor: tuple[list[int], list[int]]) -> str:
    """Return the memory layout (NCHW or NHWC) of a tensor with these sizes and strides.

    If both fit, PyTorch's own rule decides (``c10/core/MemoryFormat.h``).
    """
    dims, strides = tensor
    plain, last = {3: ("NCHW", "NHWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[len(dims)]
    # A view with gaps gets the layout in which PyTorch copies it, because libraries get tensors without gaps.
    least = 0
    for i in (1, *range(len(dims) - 1, 1, -1), 0):
        if strides[i] < least or (i == 0 and least == strides[1]):
            return plain
        least = strides[i] * max(dims[i], 1)
    return last


def _convolution(
    x: Inputs, at: Places, input_: int, weight: int, grad_output: int | None
) -> tuple[dict[str, Any], bool]:
    """Return the convolution that the library computes for an operator, and True if the operator is transposed.

    The fields describe the forward convolution.
    """
    dims, weights = x.tensor(input_)[0], x.tensor(weight)[0]
    spatial = len(dims) - 2
    if spatial not in (1, 2, 3) or len(weights) != len(dims):
        raise ValueError(
            "the convolution has not 1, 2 or 3 spatial dimensions, or its weight has another number of dimensions"
        )
    one_d, rank = spatial == 1, max(spatial, 2)
    stride = _ints(x.value(at.stride), spatial)
    padding = _ints(x.value(at.padding), spatial)
    dilation = _ints(x.value(at.dilation), spatial) if at.dilation >= 0 else [1] * spatial
    transposed = x.value(at.transposed) == "True" if type(at.transposed) is int else bool(at.transposed)
    groups = {-1: dims[1], -2: 1}.get(at.groups) or int(x.value(at.groups))
    reach = [d * (f - 1) for d, f in zip(dilation, weights[2:], strict=True)]
    if grad_output is not None:
        out = x.tensor(grad_output)[0][2:]
    elif transposed:
        raise ValueError(
            "the output size of a transposed convolution is unknown, because it does not follow from the sizes of "
            "the inputs"
        )
    else:
        out = [(i + 2 * p - r - 1) // s + 1 for i, p, r, s in zip(dims[2:], padding, reach, stride, strict=True)]
    # A transposed convolution is computed as the input gradient of an ordinary one, whose output is the input of the
    # transposed one.
    inner, outer = (out, dims[2:]) if transposed else (dims[2:], out)
    c, k = (weights[1] * groups, weights[0]) if transposed else (dims[1], weights[0])
    if one_d:  # PyTorch runs a 1-D convolution as 2-D with height 1
        inner, outer, filter_ = [1, *inner], [1, *outer], [1, *weights[2:]]
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    else:
        filter_ = weights[2:]
    values: dict[str, Any] = {"spatial": rank, "n": dims[0], "c": c, "k": k, "groups": groups}
    sizes = {"": inner, "out_": outer, "filter_": filter_, "stride_": stride, "pad_": padding, "dilation_": dilation}
    for stem, numbers in sizes.items():
        values |= dict(zip((f"{stem}{axis}" for axis in "dhw"[3 - rank :]), numbers, strict=True))
    in_type = _TYPES.get(x.type(input_))
    values |= {"in_type": in_type, "weights_type": _TYPES.get(x.type(weight)), "out_type": in_type}
    values |= {"mode": "convolution", "bias": None if at.fused else 0}
    return values, transposed


def _layouts(x: Inputs, input_: int, weight: int, backend: Backend | None, *, packed: bool) -> dict[str, Any]:
    """Return the memory layout (such as NHWC) in which PyTorch passes the tensors of a convolution to the library.

    All tensors have the same layout. PyTorch chooses it by the strides of input and weights, and copies tensors of
    another layout (``ConvUtils.h``):

    * For cuDNN it chooses NHWC if input or weights are NHWC and neither is double
      (``cudnn_conv_suggest_memory_format``).
    * For MIOpen it chooses NHWC only if a setting asks for it.
    * A ``packed`` input was copied already, so it has the chosen layout.
    """
    plain = "NCDHW" if len(x.tensor(input_)[0]) == 5 else "NCHW"
    found = {_layout(x.tensor(input_)), _layout(x.tensor(weight))}
    last = "NDHWC" if plain == "NCDHW" else "NHWC"
    one: str | None = None
    if found == {plain} or (backend == "cudnn" and "double" in (x.type(input_), x.type(weight))):
        one = plain
    elif backend == "cudnn":
        one = last
    elif backend == "miopen" and packed:
        one = _layout(x.tensor(input_))
    return dict.fromkeys(("in_layout", "weights_layout", "out_layout"), one)


def forward(at: Places, backend: Backend | None = None) -> Reader:
    """Return a function that reads a forward convolution from the recorded inputs of an operator.

    * ``at`` states the positions of the inputs.
    * ``backend`` is given for the operator of one library, such as ``aten::cudnn_convolution``.
    """

    def read(x: Inputs) -> Operation:
        values, _ = _convolution(x, at, 0, 1, None)
        # The inputs of a library's operator already have its layout, unless the operator is fused with a bias and an
        # activation.
        layouts = _layouts(x, 0, 1, backend, packed=not at.fused)
        return Operation((ConvProblem(direction="F", **values, **layouts),))

    return read


def forward_transposed(at: Places, backend: Backend) -> Reader:
    """Return a function that reads a transposed convolution from the recorded inputs of a backend's operator.

    For example, the operator is ``aten::miopen_convolution_transpose``.
    """

    def read(x: Inputs) -> Operation:
        dims, weights = x.tensor(0)[0], x.tensor(1)[0]
        spatial = len(dims) - 2
        # The inputs do not include the output, so its size is computed from the others. The input ``output_padding``
        # comes just before ``stride``.
        extra = _ints(x.value(at.stride - 1), spatial)
        numbers = [_ints(x.value(i), spatial) for i in (at.stride, at.padding, at.dilation)]
        out = [
            (i - 1) * s - 2 * p + d * (f - 1) + e + 1
            for i, f, e, s, p, d in zip(dims[2:], weights[2:], extra, *numbers, strict=True)
        ]
        groups = int(x.value(at.groups))
        size = [dims[0], weights[1] * groups, *out]
        whole = Inputs([*x.dims, size], [*x.strides, contiguous_strides(size)], x.types, x.values)
        values, _ = _convolution(whole, at, 0, 1, len(x.dims))
        return Operation((ConvProblem(direction="B", **values, **_layouts(x, 0, 1, backend, packed=True)),))

    return read


def backward(shift: int) -> Reader:
    """Return a function that reads a convolution from the inputs of the operator ``aten::convolution_backward``.

    The inputs are (grad_output, input, weight, [bias_sizes,] stride, padding, dilation, transposed, …).  ``shift`` is 1
    if the operator has ``bias_sizes``, otherwise 0.
    """
    at = Places(stride=3 + shift, padding=4 + shift, dilation=5 + shift, groups=8 + shift, transposed=6 + shift)

    def read(x: Inputs) -> Operation | None:
        values, transposed = _convolution(x, at, 1, 2, 0)
        values |= _layouts(x, 1, 2, x.backend, packed=False)
        mask = [part.strip() == "True" for part in x.value(9 + shift).strip("[]").split(",")]
        names: tuple[Direction, Direction] = ("F" if transposed else "B", "W")
        ran = [name for name, did in zip(names, mask[:2], strict=True) if did]
        problems = tuple(ConvProblem(direction=name, **values) for name in ran)
        if not problems:
            return None
        both: Literal["B+W"] = "B+W"
        whole = ConvProblem(direction=both, **values) if len(ran) == 2 and not transposed else None
        return Operation(problems, whole if len(ran) == 2 else problems[0])

    return read
