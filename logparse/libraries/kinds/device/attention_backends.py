"""Names of the backends with which PyTorch can compute ``scaled_dot_product_attention``."""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

BACKENDS: Mapping[str, str] = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""PyTorch's name of each attention backend, as ``torch.nn.attention.SDPBackend`` spells it.

On ROCm, the backends flash and efficient use the kernels of AOTriton or CK (libraries of AMD).
"""
_OPERATOR = regex(
    r"aten::_(?:scaled_dot_product_)?(flash|efficient|cudnn)_attention(?:_for_cpu)?(?:_forward)?(?:_backward)?"
)
ELSEWHERE = {"CPU": frozenset({"efficient", "cudnn"}), "HIP": frozenset({"cudnn"})}
"""The attention backends that a kind of device does not have.

The CPU has only one fused kernel, which belongs to the backend flash.  ROCm has no cuDNN.
"""


def backend_of(name: str) -> str | None:
    """Return the attention backend that an operator in a trace uses, or None if the operator is not an attention.

    Example: ``aten::_flash_attention_forward`` gives ``flash``.
    """
    found = _OPERATOR.fullmatch(name)
    return str(found[1]) if found else None
