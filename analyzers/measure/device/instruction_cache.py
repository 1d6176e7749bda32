"""A kernel whose code is larger than the instruction caches: whatever runs after it fetches its own code anew.

Straight-line code of distinct multiply-adds, 8 to 16 bytes each and 4 times over where the compiler works on four
elements at once: 4,096 of them are 64 to 256 KiB, against 64 KiB that two compute units of an MI300 share and 128 KiB
next to an SM of a Hopper.  PyTorch compiles it at run time (NVRTC or hipRTC, through its jiterator), so no compiler
need be installed.
"""

from __future__ import annotations

from typing import Any

STATEMENTS = 4096
_THREADS_PER_UNIT = 2048


def source(statements: int) -> str:
    """C++ of one element's computation; every statement is another one, so that no compiler can roll them up."""
    lines = "\n".join(f"x = x * 0.9{index:05d}f + 0.1{index:05d}f;" for index in range(statements))
    return f"template <typename T> T logparse_flush_{statements}(T x) {{\n{lines}\nreturn x; }}"


class InstructionFlush:
    """Call it to enqueue the kernel on every compute unit of a torch device; compiled at the first call."""

    def __init__(self, torch: Any, device: Any, units: int, statements: int = STATEMENTS) -> None:
        self._kernel = torch.cuda.jiterator._create_jit_fn(source(statements))
        self._data = torch.ones(units * _THREADS_PER_UNIT, device=device)

    def __call__(self) -> None:
        self._kernel(self._data)
