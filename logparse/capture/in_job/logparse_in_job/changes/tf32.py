"""Tell whether PyTorch computes float32 matrix products in TF32, a shorter format."""

from __future__ import annotations


def computes_in_tf32() -> bool:
    """Tell whether PyTorch computes float32 matrix products in TF32."""
    import torch

    matmul = torch.backends.cuda.matmul
    # Once a job has used ``fp32_precision`` (PyTorch 2.9), to read ``allow_tf32`` raises an error.
    newer = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if newer is None else newer == "tf32"
