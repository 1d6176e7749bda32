"""A virtual GPU that is loaded into this process, as the conformance suite does (``tests/conformance/virtual_gpu``).

Libraries launch their kernels on it through the HIP runtime's functions, and operands are the host's memory.  Its
streams and events are reached through the same functions, by as much of ``torch.cuda`` as measuring needs: torch is not
built for that device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NOT_READY = 600
"""hipErrorNotReady (hip_runtime_api.h)."""


class _Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


ONE = _Dim3(1, 1, 1)


class Event:
    """``torch.cuda.Event`` over HIP's functions, on the one stream."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._event = runtime, ctypes.c_void_p()
        runtime.ask("hipEventCreate", ctypes.byref(self._event))

    def __del__(self) -> None:
        self._runtime.ask("hipEventDestroy", self._event)

    def record(self) -> None:
        """Enqueue it."""
        self._runtime.ask("hipEventRecord", self._event, self._runtime.stream)

    def query(self) -> bool:
        """Whether the device has reached it."""
        status = self._runtime.hip.hipEventQuery(self._event)
        if status not in (0, _NOT_READY):
            raise RuntimeError(f"hipEventQuery returned {status}")
        return bool(status == 0)

    def synchronize(self) -> None:
        """Wait for it."""
        self._runtime.ask("hipEventSynchronize", self._event)

    def elapsed_time(self, end: Event) -> float:
        """From this one to another, ms."""
        ms = ctypes.c_float()
        self._runtime.ask("hipEventElapsedTime", ctypes.byref(ms), self._event, end._event)
        return ms.value


class Runtime:
    """The HIP runtime of this process, and a stream of it.  Raises RuntimeError with function and status."""

    def __init__(self, process: ctypes.CDLL) -> None:
        self.hip: Any = process
        self.stream = ctypes.c_void_p()
        self.ask("hipStreamCreate", ctypes.byref(self.stream))
        self._spin = ctypes.create_string_buffer(1)  # its address stands for the kernel's function on the host
        register = self.hip["__hipRegisterFunction"]
        register.restype = None
        register(None, self._spin, None, b"spin_kernel", 0, None, None, None, None, None)

    def ask(self, function: str, *arguments: Any) -> None:
        status = self.hip[function](*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def event(self) -> Event:
        """A new one."""
        return Event(self)

    def sleep(self, cycles: int) -> None:
        """Hold the device, as ``torch.cuda._sleep``: a kernel that spins."""
        count = ctypes.c_int64(cycles)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(count))
        self.ask("hipLaunchKernel", self._spin, ONE, ONE, arguments, ctypes.c_size_t(0), self.stream)

    def synchronize(self) -> None:
        """Wait for everything."""
        self.ask("hipDeviceSynchronize")


@dataclass(frozen=True)
class VirtualGpu:
    """Its runtime, and its facts as a GPU reports them."""

    runtime: Runtime
    facts: Mapping[str, str]


def virtual_gpu() -> VirtualGpu | None:
    """The one of this process, which exports ``vgpu_fact`` beside HIP's functions; None on any other device."""
    try:
        process = ctypes.CDLL(None)
        fact = process.vgpu_fact
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no handle of the process
        return None
    fact.restype = ctypes.c_char_p
    facts = {name: bytes(fact(name.encode())).decode() for name in ("device", "arch", "cu_count")}
    return VirtualGpu(Runtime(process), {**facts, "backend": "HIP"})
