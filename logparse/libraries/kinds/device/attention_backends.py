"""Names of PyTorch's backends of ``scaled_dot_product_attention``."""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

BACKENDS: Mapping[str, str] = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""PyTorch's name of each backend (``torch.nn.attention.SDPBackend``).

On ROCm, AOTriton or CK computes flash and efficient.
"""
_OPERATOR = regex(
    r"aten::_(?:scaled_dot_product_)?(flash|efficient|cudnn)_attention(?:_for_cpu)?(?:_forward)?(?:_backward)?"
)
ELSEWHERE = {"CPU": frozenset({"efficient", "cudnn"}), "HIP": frozenset({"cudnn"})}
"""Backends that a device does not have, by device.  The CPU has one fused kernel, and ROCm has no cuDNN."""


def backend_of(name: str) -> str | None:
    """Return the backend of an attention operator (``flash``) from its name in a trace.

    Return None for any other operator.
    """
    found = _OPERATOR.fullmatch(name)
    return str(found[1]) if found else None
