"""Let logparse measure kernels on the virtual GPU (``virtual_gpu/``), which imitates a GPU on the CPU."""

# Libraries launch kernels on the virtual GPU through functions of the HIP runtime. Operands are in the host's memory.
# Torch is not built for this GPU. So streams and events use functions of HIP, instead of the parts of torch.cuda that a
# measurement needs.

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from logparse.libraries.hipblaslt import replay as hipblaslt
from logparse.libraries.kinds.backend import Backend, BackendType, Place
from logparse.libraries.kinds.device import device_backend
from logparse.libraries.kinds.device.torch_device import TorchDevice
from logparse.libraries.miopen import replay as miopen
from logparse.libraries.rocblas import replay as rocblas

_NOT_READY = 600
"""The value of hipErrorNotReady (hip_runtime_api.h)."""


class _Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


ONE = _Dim3(1, 1, 1)


class Event:
    """Stand-in for ``torch.cuda.Event`` that uses HIP's functions. There is only one stream."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._event = runtime, ctypes.c_void_p()
        runtime.ask("hipEventCreate", ctypes.byref(self._event))

    def __del__(self) -> None:
        self._runtime.ask("hipEventDestroy", self._event)

    def record(self) -> None:
        """Enqueue the event on the stream."""
        self._runtime.ask("hipEventRecord", self._event, self._runtime.stream)

    def query(self) -> bool:
        """Return True if the GPU has reached the event.

        Raises RuntimeError for any other status than ready or not ready.
        """
        status = self._runtime.hip.hipEventQuery(self._event)
        if status not in (0, _NOT_READY):
            raise RuntimeError(f"hipEventQuery returned {status}")
        return bool(status == 0)

    def synchronize(self) -> None:
        """Wait until the GPU has reached the event."""
        self._runtime.ask("hipEventSynchronize", self._event)

    def elapsed_time(self, end: Event) -> float:
        """Return the time from this event to another in ms."""
        ms = ctypes.c_float()
        self._runtime.ask("hipEventElapsedTime", ctypes.byref(ms), self._event, end._event)
        return ms.value


class Runtime:
    """The HIP runtime of this process, with one stream.

    Raises RuntimeError with function and status if a call fails.
    """

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

    def sleep(self, cycles: int) -> None:
        """Keep the GPU busy for this many cycles with a kernel that does nothing, as ``torch.cuda._sleep`` does."""
        count = ctypes.c_int64(cycles)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(count))
        self.ask("hipLaunchKernel", self._spin, ONE, ONE, arguments, ctypes.c_size_t(0), self.stream)


class VirtualDevice(TorchDevice):
    """A device on which logparse can measure kernels without a real GPU.

    Operands are in torch's CPU memory. Streams and events are on the virtual GPU.
    """

    def __init__(self, name: str) -> None:
        self.process = ctypes.CDLL(None)
        self.runtime = Runtime(self.process)
        super().__init__(name)
        self.has_events = True

    def _facts(self) -> Mapping[str, str]:
        fact = self.process.vgpu_fact
        fact.restype = ctypes.c_char_p
        facts = {name: bytes(fact(name.encode())).decode() for name in ("device", "arch", "cu_count")}
        return {"pytorch_version": str(self.torch.__version__), **facts, "backend": "HIP"}

    def synchronize(self) -> None:
        self.runtime.ask("hipDeviceSynchronize")

    @property
    def stream(self) -> int:
        return self.runtime.stream.value or 0

    def _event(self) -> Event:
        return Event(self.runtime)

    def _hold(self, cycles: int) -> None:
        self.runtime.sleep(cycles)


def _over_virtual_gpu(kind: BackendType) -> BackendType:
    """Make logparse time a GPU library's kernels on the virtual GPU, which imitates a GPU on the CPU.

    The returned object must be used in a process of its own, because opening it replaces the process's GPU.
    """

    def opened(place: Place) -> Backend:
        device_backend.torch_device = cache(VirtualDevice)
        return kind.open(place)

    return replace(kind, open=opened)


HIPBLASLT, MIOPEN, ROCBLAS = map(_over_virtual_gpu, (hipblaslt.BACKEND, miopen.BACKEND, rocblas.BACKEND))
