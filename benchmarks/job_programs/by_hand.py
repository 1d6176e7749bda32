"""Change a job, for example to TF32, in the way in which a user writes such changes by hand.

``tried.py`` uses this module to check what ``logparse try`` says about a change: it runs the program with the change
made here before the first step. The module has the same functions as a generated ``apply.py``: ``settings(*names)`` and
``model(model, *names)``. Most changes are one line of PyTorch. For the others the functions of ``apply.py`` are called.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from logparse_in_job.changes.attention import prefer_attention
from logparse_in_job.changes.gelu import use_one_kernel_gelu
from logparse_in_job.changes.padding import pad_output
from torch import nn

_ATTENTION = {
    "attention_flash": "FLASH_ATTENTION",
    "attention_efficient": "EFFICIENT_ATTENTION",
    "attention_cudnn": "CUDNN_ATTENTION",
    "attention_math": "MATH",
}


def settings(*names: str) -> None:
    """Set PyTorch's switches for the named changes, for example ``tf32``."""
    for name in names:
        if name == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
        elif name == "cudnn_benchmark":
            torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
        elif name == "blas_cublaslt":
            torch.backends.cuda.preferred_blas_library("cublaslt")
        elif name in _ATTENTION:
            # Without these variables, PyTorch's first attention call on an H100 or H200 overwrites the order.
            os.environ |= {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "TORCH_CUDNN_SDPA_PREFERRED": "0"}
            prefer_attention(_ATTENTION[name], *(x for x in _ATTENTION.values() if x != _ATTENTION[name]))


def model(made: nn.Module, *names: str) -> nn.Module:
    """Make the named changes to the model. Call this before its optimizer is made."""
    for name in names:
        if name == "channels_last":
            made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            made.register_forward_pre_hook(_turned)
        elif name == "padded_output":
            layers = [x for x in made.modules() if isinstance(x, nn.Linear) and x.out_features % 64]
            size = max(layers, key=lambda x: x.weight.numel()).out_features
            pad_output(made, size, -(-size // 64) * 64)
        elif name == "one_kernel_gelu":
            use_one_kernel_gelu(made)
    return made


def _turned(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        x.contiguous(memory_format=torch.channels_last) if torch.is_tensor(x) and x.dim() == 4 else x for x in inputs
    )
