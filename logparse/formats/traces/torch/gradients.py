"""Which kernels of a ``convolution_backward`` computed the input gradient (B) and which the weight gradient (W).

PyTorch computes B, then W, each with the library's kernels for layout conversion around one or more main kernels::

    nchwToNhwc…  sm90_xmma_dgrad_…  nhwcToNchw…  │  nchwToNhwc…  nchwToNhwc…  sm90_xmma_wgrad_…

They are separated only where that is certain: all kernels named for B stand before all named for W (or there are just
two main kernels, of which the first must be B's), and between the last of B and the first of W there are only
conversions of an output followed by conversions of an input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_B = re.compile(r"dgrad|bwd_?data|backward_?data|igemm_bwd_|naive_conv_(?:ab_)?(?:\w*packed_)?bwd_", re.IGNORECASE)
_W = re.compile(r"wgrad|_?wrw|bwd_?weight|backward_?(?:weight|filter)|bwd_?filter", re.IGNORECASE)
_OUTPUT = re.compile(r"nhwcToNchw|splitKreduce|Col2Im", re.IGNORECASE)
_INPUT = re.compile(r"nchwToNhwc|Im2d?2?Col|SubTensorOpWithScalar", re.IGNORECASE)
_CONVERSION = re.compile(r"tensorTransform|batched_transpose|convertTensor|scalePackedTensor", re.IGNORECASE)


def first_of_weights(kernels: Sequence[str]) -> int | None:
    """Index of the first kernel of W in an operator's kernels (in order of time), or None where that is not certain."""
    roles = [_role(name) for name in kernels]
    mains = [i for i, role in enumerate(roles) if role in "BW?"]
    named_b = [i for i in mains if roles[i] == "B"]
    named_w = [i for i in mains if roles[i] == "W"]
    if named_b and named_w and named_b[-1] < named_w[0]:
        last, first = named_b[-1], named_w[0]
    elif len(mains) == 2 and roles[mains[0]] != "W" and roles[mains[1]] != "B":
        last, first = mains
    else:
        return None
    between = "".join(roles[last + 1 : first])
    return last + 1 + between.count("o") if re.fullmatch("o*i*", between) else None


@lru_cache(maxsize=4096)  # a trace launches the same few hundred kernels again and again
def _role(name: str) -> str:
    """B or W by the name, ``o``/``i`` conversion of an output or input, ``t`` of either, ``?`` a main kernel."""
    for role, pattern in (("o", _OUTPUT), ("i", _INPUT), ("t", _CONVERSION)):
        if pattern.search(name):
            return role
    b, w = _B.search(name), _W.search(name)
    return "?" if bool(b) == bool(w) else "B" if b else "W"
