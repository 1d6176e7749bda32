"""Better solutions that no override file can make a library take: what the user changes instead.

Texts of solutions: the torch backend's formulations (``measure/backends/torch_convs.py``, ``torch_gemms.py``), a user's
own kernels, and cuDNN's plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logparse.model import DEFAULT, ConvProblem, Problem, Solution

LAYOUT = (
    "Change the layout: model.to(memory_format=channels_last) in PyTorch, with PYTORCH_MIOPEN_SUGGEST_NHWC=1 on ROCm."
)
PADDING = "Pad the model's own sizes (vocabulary, heads, hidden) to multiples of 64 where they are free."
FUSION = (
    "Fuse the epilogue: torch.compile, torch._addmm_activation or the library's own epilogue "
    "(HIPBLASLT_MATMUL_DESC_EPILOGUE)."
)
_LIBRARIES = frozenset({"torch", "kernel", "cudnn"})
_ADVICE: Mapping[str, str] = {
    r"torch:layout=.*|cudnn:layout=.*": LAYOUT,
    r"torch:benchmark": "Set torch.backends.cudnn.benchmark = True (MIOpen's find on ROCm): shapes should not vary.",
    r"torch:pad=.*": PADDING,
    r"torch:ld=.*": "Store the operands with longer leading dimensions: torch.empty(n, k + 64)[:, :k].",
    r"torch:fused": FUSION,
    r"torch:blas=.*": "Choose the library: torch.backends.cuda.preferred_blas_library(…), which holds for all calls.",
    r"torch:transposed": "Write the product transposed: (Bᵀ·Aᵀ)ᵀ.",
    r"torch:gemm|torch:im2col": "Write the convolution as a matrix product.",
    r"kernel:.*": "Call your own kernel in place of the library's, or let the action own_kernel put it in.",
    r"cudnn:.*": "No setting makes PyTorch take one plan of cuDNN's; benchmark mode lets it time several.",
}


_OUT_OF_REACH: Mapping[str, str] = {
    r"cudnn:.*": "no setting makes PyTorch take one plan of cuDNN's",
    r"torch:layout=.*\bstored\b.*": "a layout is chosen for a whole model: what that does is an action",
}


def out_of_reach(solution: Solution) -> str | None:
    """Why nothing that a person can do makes one problem alone take this solution; None where something does."""
    return next((why for pattern, why in _OUT_OF_REACH.items() if re.fullmatch(pattern, solution.text)), None)


def by_hand(solution: Solution) -> bool:
    """Whether no file makes any library take this solution."""
    return solution.library in _LIBRARIES and solution.text != DEFAULT.text


def may_be_so(problem: Problem, measured: str, solution: str) -> bool:
    """Whether the call may be in the layout already to which ``solution``, measured on another text, changes it."""
    unknown = isinstance(problem, ConvProblem) and problem.in_layout is None
    return unknown and measured != problem.text and re.match(r"(?:torch|cudnn):layout=", solution) is not None


def advice(solution: Solution) -> str | None:
    """What to change in the program; None where an override file can express it, or no advice is known."""
    known = (text for pattern, text in _ADVICE.items() if re.fullmatch(pattern, solution.text))
    return next(known, None) if by_hand(solution) else None
