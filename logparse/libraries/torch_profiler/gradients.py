"""Split the kernels of a convolution's backward pass into the input gradient (B) and the weight gradient (W).

PyTorch computes B, then W.  Each gradient is computed by one or more main kernels, with helpers of the library around
them::

    nchwToNhwc…  sm90_xmma_dgrad_…  nhwcToNchw…  │  nchwToNhwc…  nchwToNhwc…  sm90_xmma_wgrad_…
    SubTensorOpWithScalar1d  batched_transpose…  batched_transpose…  igemm_bwd_gtcx3_nhwc_…
        SubTensorOpWithCastTensor1d  batched_transpose…  │  SubTensorOpWithScalar1d  batched_transpose…
        batched_transpose…  igemm_wrw_gtcx3_nhwc_…  SubTensorOpWithCastTensor1d  batched_transpose…

PyTorch's own depthwise kernels come in the opposite order (``aten/src/ATen/native/cuda/DepthwiseConv2d.cu``)::

    conv_depthwise2d_grad_weight_kernel  │  conv_depthwise2d_backward_kernel

So the kernels of an operator are cut into two groups at one place.  Main kernels are assigned by their names (MIOpen,
CK, MLIR, cuDNN, CUTLASS, PyTorch's own depthwise kernels).  The names of kernels of GEMM libraries (Tensile, nvjet)
show no direction.  These kernels are assigned by their place.

A helper goes to the main kernel that it serves:

* A helper that prepares an operand or clears a result goes to the next main kernel.
* A helper that converts or adds up a result goes to the previous main kernel.
* A transposition may do either.  If B's operands were transposed before its main kernel, the first transposition behind
  that kernel is the transposition of its result (MIOpen ``implicitgemm_ck_util.hpp``,
  ``ConvAsmImplicitGemmGTCDynamic*``: a kernel of another layout gets all of its tensors converted).
* Helpers that are still open are cut by order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from logparse.libraries.kinds.patterns import regex

BACKWARD_DATA = regex(
    r"dgrad|bwd_?data|backward_?(?:data|input)|igemm_bwd_|conv2d_(?:v\dr\d_)?bwd|naive_conv_(?:ab_)?(?:\w*packed_)?bwd_"
    r"|depthwise[23]d_backward_kernel",
    re.IGNORECASE,
)
BACKWARD_WEIGHTS = regex(r"wgrad|_?wrw|bwd_?weight|backward_?(?:weight|filter)|bwd_?filter|grad_?weight", re.IGNORECASE)
"""Regular expression for the names of the kernels that compute the weight gradient of a convolution.

``BACKWARD_DATA`` is the one for the input gradient.  Both know the names of MIOpen, CK, MLIR, cuDNN, CUTLASS and
PyTorch.
"""
_SUM = regex(r"reduc", re.IGNORECASE)
_INPUT = regex(
    r"nchwToNhwc|NCHW2CNHW|im[23]?d?2?col|SubTensorOpWithScalar|fillBuffer|scalePackedTensor|init_device_workspace"
    r"|OffsetsKernel|WinogradTiles|flip_filter|fft2d_r2c|kernel_elementwise_(?:batched_)?dual",
    re.IGNORECASE,
)
_OUTPUT = regex(
    r"nhwcToNchw|CNHW2NCHW|splitKreduce|ReduceSplitK|col2im|SubTensorOpWithCastTensor|fft2d_c2r|kernel_elementwise",
    re.IGNORECASE,
)
_WEIGHTS_FIRST = regex(r"W+B+")
"""Roles of the kernels (see ``_role``) if the weight gradient is computed first, without helper kernels.

Then the names of the kernels alone decide which gradient they compute.
"""
_EITHER = regex(r"tensorTransform|batched_transpose|convertTensor", re.IGNORECASE)


class Split(NamedTuple):
    """Where the kernels of a convolution's backward pass are split into the kernels of its two gradients.

    ``second`` is the index of the first kernel of the weight gradient, or of the input gradient if ``weights_first``.
    """

    second: int
    weights_first: bool = False


def separate_gradients(kernels: Sequence[str]) -> Split | None:
    """Find out which kernels of a convolution's backward pass compute which of the two gradients.

    ``kernels`` are names in order of time.  Returns None if one gradient has no main kernel of its own.
    """
    roles = "".join(map(_role, kernels))
    if _WEIGHTS_FIRST.fullmatch(roles):
        return Split(roles.index("B"), weights_first=True)
    mains = _find_main_kernels(roles, kernels)
    if mains is None:
        return None
    last, first = mains
    return Split(last + 1 + _between(roles[last + 1 : first], before=roles[:last]))


def _find_main_kernels(roles: str, kernels: Sequence[str]) -> tuple[int, int] | None:
    """Find the last kernel that computes the input gradient, and the first one that computes the weight gradient.

    Returns the positions of both, or None if the two gradients cannot be separated.
    """
    # Kernels that only prepare or convert data are ignored.
    mains = [i for i, role in enumerate(roles) if role in "BW?"]
    first = next((i for i in mains if roles[i] == "W"), None)
    added = roles.find("w")
    if added >= 0 and (first is None or added < first):  # a main kernel of W computed the parts that are added up
        first = max((i for i in mains if i < added), default=None)
    last_b = roles.rfind("B")
    if first is None:
        after = [i for i in mains if i > last_b] if last_b >= 0 else _second(mains, kernels)
        return (max(i for i in mains if i < after[0]), after[0]) if after else None
    before = [i for i in mains if i < first]
    return (before[-1], first) if before and first > last_b else None


def _second(mains: Sequence[int], kernels: Sequence[str]) -> list[int]:
    """Guess the positions of the kernels that compute the second gradient, if no kernel's name shows it.

    Returns an empty list if there is no good guess.
    """
    runs = [list(run) for _, run in groupby(mains, key=lambda i: kernels[i])]
    # Two groups of equal names are taken as two gradients, and so are two kernels.
    return runs[1] if len(runs) == 2 else list(mains[1:]) if len(mains) == 2 else []


def _between(roles: str, before: str) -> int:
    """Return how many helper kernels between two gradients of a convolution belong to the first one (input gradient).

    * ``roles``: a letter for each helper between the two main kernels (see ``_role``).
    * ``before``: the letters of the helpers before the first main kernel.
    """
    # A helper kernel prepares or converts data.
    rest = roles.partition("i")[0]
    clear = rest.rfind("o") + 1
    return clear + int("t" in before and "t" in rest[clear:])


def is_main(name: str) -> bool:
    """Return True if a kernel computes a matrix product or convolution itself.

    Returns False if the kernel only prepares or converts data.
    """
    return _role(name) in "BW?"


@lru_cache(maxsize=4096)  # a trace launches the same few hundred kernels again and again
def _role(name: str) -> str:
    """Return as one letter what a kernel does in a convolution's backward pass.

    | letter | what the kernel does |
    |---|---|
    | ``B``, ``W`` | computes the input (B) or the weight gradient (W), as its name shows |
    | ``w`` | adds up partial weight gradients |
    | ``i`` | prepares an operand or clears a result |
    | ``o`` | converts or adds up a result |
    | ``t`` | transposes an operand or a result |
    | ``?`` | computes a gradient, but its name does not show which |
    """
    b, w = BACKWARD_DATA.search(name), BACKWARD_WEIGHTS.search(name)
    if w and not b and _SUM.search(name) and not re.search(r"implicit|xmma", name, re.IGNORECASE):
        return "w"
    for role, pattern in (("i", _INPUT), ("o", _OUTPUT), ("t", _EITHER)):
        if pattern.search(name):
            return role
    return "?" if bool(b) == bool(w) else "B" if b else "W"
