"""A virtual GPU that is loaded into this process, as the conformance suite does (``tests/conformance/virtual_gpu``).

Libraries launch their kernels on it through the HIP runtime's functions, and operands are the host's memory.  Only its
own clock advances by the times that its kernels are given, so it is the clock to measure by.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class VirtualGpu:
    """Its clock in µs, and its facts as a GPU reports them."""

    now_us: Callable[[], float]
    facts: Mapping[str, str]


def virtual_gpu() -> VirtualGpu | None:
    """The one of this process, which exports ``vgpu_now_us`` and ``vgpu_fact``; None on any other device."""
    try:
        process = ctypes.CDLL(None)
        clock, fact = process.vgpu_now_us, process.vgpu_fact
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no handle of the process
        return None
    clock.restype, fact.restype = ctypes.c_double, ctypes.c_char_p
    facts = {name: bytes(fact(name.encode())).decode() for name in ("device", "arch", "cu_count")}
    return VirtualGpu(lambda: float(clock()), {**facts, "backend": "HIP"})
