"""PyTorch's operators that compute matrix products or convolutions, each with a function that reads its inputs.

To add an operator, add a line to ``OPERATORS``: its name, and a function from ``gemms`` or ``convolutions``.  An
operator of an inference engine is a line of ``serving.PRODUCTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logparse.libraries.torch_profiler import gemms
from logparse.libraries.torch_profiler.convolutions import Places, backward, forward, forward_transposed
from logparse.libraries.torch_profiler.inputs import Backend, Operation, Reader, inputs_of
from logparse.libraries.torch_profiler.serving import PRODUCTS, product

_PLAIN = Places(stride=3, padding=4, dilation=5, groups=8, transposed=6)
_FUSED = Places(stride=3, padding=4, dilation=5, groups=6, fused=True)
_FUSED_ADD = Places(stride=5, padding=6, dilation=7, groups=8, fused=True)
_CUDNN = Places(padding=2, stride=3, dilation=4, groups=5)
_CUDNN_TRANSPOSED = Places(padding=2, stride=4, dilation=5, groups=6, transposed=True)
_MIOPEN = Places(padding=3, stride=4, dilation=5, groups=6)
_MIOPEN_TRANSPOSED = Places(padding=3, stride=5, dilation=6, groups=7, transposed=True)
_DEPTHWISE = Places(stride=4, padding=5, dilation=6, groups=-1)
_SLOW = Places(stride=4, padding=5, dilation=-1, groups=-2)

OPERATORS: Mapping[str, Reader] = {
    "aten::mm": gemms.mm,
    "aten::_int_mm": gemms.int_mm,
    "aten::addmm": gemms.addmm,
    "aten::_addmm_activation": gemms.addmm_activation,
    "aten::bmm": gemms.bmm,
    "aten::baddbmm": gemms.baddbmm,
    "aten::linear": gemms.linear,
    "aten::matmul": gemms.matmul,
    "aten::_scaled_mm": gemms.scaled_mm,
    "aten::convolution": forward(_PLAIN),
    "aten::_convolution": forward(_PLAIN),
    "aten::convolution_overrideable": forward(_PLAIN),
    "aten::cudnn_convolution": forward(_CUDNN, "cudnn"),
    "aten::cudnn_convolution_relu": forward(_FUSED, "cudnn"),
    "aten::cudnn_convolution_add_relu": forward(_FUSED_ADD, "cudnn"),
    "aten::cudnn_convolution_transpose": forward_transposed(_CUDNN_TRANSPOSED, "cudnn"),
    "aten::miopen_convolution": forward(_MIOPEN, "miopen"),
    "aten::miopen_depthwise_convolution": forward(_MIOPEN, "miopen"),
    "aten::miopen_convolution_relu": forward(_FUSED, "miopen"),
    "aten::miopen_convolution_add_relu": forward(_FUSED_ADD, "miopen"),
    "aten::miopen_convolution_transpose": forward_transposed(_MIOPEN_TRANSPOSED, "miopen"),
    "aten::_conv_depthwise2d": forward(_DEPTHWISE),
    "aten::conv_depthwise3d": forward(_DEPTHWISE),
    "aten::_slow_conv2d_forward": forward(_SLOW),
    "aten::convolution_backward": backward(1),
    "aten::convolution_backward_overrideable": backward(0),
    **{name: product(at) for name, at in PRODUCTS.items()},
}
"""For each operator name, the function that reads the operator's inputs.

The order of ``aten`` arguments follows PyTorch's ``aten/src/ATen/native/native_functions.yaml``.
"""


def operation(name: str, args: Mapping[str, Any], backend: Backend | None = None) -> Operation | None:
    """Return the matrix product or convolution that an operator such as ``aten::mm`` computes.

    ``args`` are the arguments of its trace event.  Returns None if the sizes are not in them.  The sizes are recorded
    only if the profiler ran with ``record_shapes=True``.
    """
    reader, inputs = OPERATORS.get(name), inputs_of(args, backend)
    if reader is None or inputs is None:
        return None
    try:
        return reader(inputs)
    except (ValueError, IndexError, OverflowError):
        return None
