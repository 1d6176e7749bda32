"""A GPU or CPU that PyTorch can use: facts about it, its clock, and calls that are ready to be timed on it.

torch provides memory, streams and events on CUDA, ROCm (which torch also calls ``cuda``) and the CPU, even for kernels
of a vendor's library.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from logparse.devices import device_of
from logparse.libraries.kinds.backend import HostBoundError, OutOfMemoryError

Tensor: TypeAlias = Any
"""A torch.Tensor.  It is declared as ``Any``, because torch is not installed where types are checked."""

Call: TypeAlias = Callable[[int], Tensor]
"""A function that launches one execution of a kernel, on the copy of the inputs with the given number.

The function returns the output, or the buffer that will hold the output.
"""

Around: TypeAlias = Callable[[], AbstractContextManager[object]]
"""A function that returns a context in which kernels are launched.

The context makes settings for these kernels, and takes the settings back at its end.
"""


T = TypeVar("T")

_TRIES = 3
"""How often a measurement is tried if the host launched the kernels too late.

Each further try lets the device wait longer, so that the host has more time.
"""


class Operands(Protocol):
    """The inputs and outputs of one call of an operator, in several copies (sets) that are used in turn."""

    sets: int
    evict: bool

    def poison(self) -> None:
        """Fill the first copy of the output with NaN, so that elements that a kernel does not write are found."""

    def error(self, output: Tensor) -> float:
        """Return the relative error of a kernel's output for the first copy of the inputs.

        The error is NaN if the output is not finite.
        """

    def fault(self, run: Callable[[], Tensor]) -> str:
        """Check the output of a kernel, and describe what is wrong with it.  Returns an empty text if it is right.

        ``run`` is called to compute the output from the first copy of the inputs.
        """


class TorchDevice:
    """A GPU or CPU on which PyTorch runs kernels, with torch's name for it (``cuda:0``, ``cpu``).

    Raises RuntimeError if torch has no such device.
    """

    def __init__(self, name: str) -> None:
        import torch

        self.torch = torch
        self.name = name
        self.device = torch.device(name)
        self.is_gpu = self.device.type == "cuda"
        if self.is_gpu:
            torch.cuda.set_device(self.device)
            torch.cuda.init()
        self.is_rocm = torch.version.hip is not None
        self.has_events = self.is_gpu
        self.facts = self._facts()
        self.cache_bytes = self._cache_bytes()
        self.host_us: float | None = None
        self._host_us_each = 20.0
        self._eviction: Tensor = None
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def _facts(self) -> Mapping[str, str]:
        torch = self.torch
        facts = {"pytorch_version": str(torch.__version__)}
        if not self.is_gpu:
            facts |= {"device": _cpu_name(), "arch": platform.machine(), "backend": "CPU"}
            return facts | {"cu_count": str(os.cpu_count() or 1), "threads": str(torch.get_num_threads())}
        props = torch.cuda.get_device_properties(self.device)
        facts |= {"device": props.name, "cu_count": str(props.multi_processor_count), "driver": _driver()}
        if self.is_rocm:
            facts |= {"arch": props.gcnArchName, "backend": "HIP", "hip_version": str(torch.version.hip)}
            return facts | {"miopen_version": _miopen_version(torch.backends.cudnn.version())}
        facts |= {"arch": f"sm_{props.major}{props.minor}", "backend": "CUDA", "cuda_version": str(torch.version.cuda)}
        return facts | {"cudnn_version": str(torch.backends.cudnn.version())}

    def _cache_bytes(self) -> int:
        """Return the size of the device's last-level cache, in bytes."""
        if not self.is_gpu:
            return _cpu_cache_bytes()
        known = device_of(self.facts)
        reported = getattr(self.torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
        # AMD's Infinity Cache lies behind the L2, and torch only reports the L2. So the size from the device's data
        # sheet is returned if it is larger.
        return max(int(reported), known.cache_bytes if known else 0)

    def synchronize(self) -> None:
        """Wait until the device has finished everything that was launched.

        Raises the device's error if there was one.
        """
        if self.is_gpu:
            self.torch.cuda.synchronize(self.device)

    @property
    def stream(self) -> int:
        """The GPU stream on which all kernels are launched, as the number that libraries take.  It is 0 on a CPU."""
        return int(self.torch.cuda.current_stream(self.device).cuda_stream) if self.is_gpu else 0

    def on_thread(self, name: str | None, task: Callable[[], T]) -> T:
        """Run a function on the thread with this name and return its result.  The thread is started at the first call.

        Without a name the function runs on the caller's thread.
        """
        if name is None:
            return task()
        if name not in self._threads:
            select = partial(self.torch.cuda.set_device, self.device) if self.is_gpu else None
            self._threads[name] = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=select)
        return self._threads[name].submit(task).result()

    def healthy(self) -> bool:
        """Return True if the GPU still computes a small matrix product correctly. A bad kernel may have broken it."""
        try:
            ones = self.torch.ones((16, 16), device=self.device)
            return bool((ones @ ones).sum().item() == 16.0**3)
        except RuntimeError:
            return False

    @contextlib.contextmanager
    def memory_errors(self, need_bytes: float | None) -> Iterator[None]:
        """Context in which torch's out-of-memory error becomes an ``OutOfMemoryError``.

        The text of the error states the size that did not fit.
        """
        try:
            yield
        except (self.torch.OutOfMemoryError, MemoryError) as error:
            self.empty_cache()
            size = "" if need_bytes is None else f"needs {need_bytes / 2**30:.2f} GiB: "
            raise OutOfMemoryError(f"{size}{str(error).splitlines()[0] if str(error) else 'out of memory'}") from error
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):  # the CPU allocator's wording
                raise
            raise OutOfMemoryError(str(error).splitlines()[0]) from error

    def empty_cache(self) -> None:
        """Give unused memory back to the device, so that other libraries can use it."""
        if self.is_gpu:
            self.torch.cuda.empty_cache()

    def evict(self) -> None:
        """Remove all other data from the last-level cache, by writes to twice the cache's size.

        The writes are launched, but this function does not wait for them.
        """
        if self._eviction is None:
            self._eviction = self.torch.zeros(2 * self.cache_bytes, dtype=self.torch.uint8, device=self.device)
        self._eviction.add_(1)

    def time_us(self, call: Call, first: int, count: int, *, evict: bool = False) -> float:
        """Run a call ``count`` times back to back and return the mean time of one execution, in µs.

        * ``first``: the first copy of the inputs.  The next executions use the next copies.
        * ``evict``: empty the last-level cache before.

        Raises HostBoundError if the host was too slow in every try.
        """
        if not self.has_events:
            if evict:
                self.evict()
            started = time.perf_counter_ns()
            for turn in range(first, first + count):
                call(turn)
            return (time.perf_counter_ns() - started) / 1e3 / count
        for _ in range(_TRIES):
            if evict:
                self.evict()
            time_us, in_time = self._events_us(call, first, count)
            if in_time:
                return time_us
        raise HostBoundError(
            f"not measured, because the host launched the kernels too slowly in each of {_TRIES} tries: the time of "
            f"{time_us:.1f} µs includes waits for the host"
        )

    def _events_us(self, call: Call, first: int, count: int) -> tuple[float, bool]:
        """Time ``count`` executions of a call with GPU events. Return the µs per execution, and if this time is valid.

        A time is valid if the host had launched all executions before the device began the first one.
        """
        start, end = self._event(), self._event()
        # Short kernels would otherwise be timed at the speed of Python. So a kernel that only waits runs first, and
        # holds the device until everything is launched.
        self._hold(int(2e3 * (50 + 1.5 * self._host_us_each * count)))  # cycles, at about 2 GHz
        start.record()
        begun = time.perf_counter_ns()
        for turn in range(first, first + count):
            call(turn)
        self.host_us = (time.perf_counter_ns() - begun) / 1e3 / count
        end.record()
        in_time = not start.query()
        self._host_us_each = min(2_000.0, max(5.0, self.host_us))
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / count, in_time

    def _event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)

    def _hold(self, cycles: int) -> None:  # the virtual GPU overrides this (tests/conformance)
        self.torch.cuda._sleep(cycles)


@cache
def torch_device(name: str) -> TorchDevice:
    return TorchDevice(name)


class TorchRunnable:
    """A call of a kernel that is ready to be timed and checked.

    The inputs and outputs exist in several copies (sets), which the executions use in turn.  Only the result of the
    first set can be checked.
    """

    def __init__(
        self,
        device: TorchDevice,
        operands: Operands,
        call: Call,
        *,
        around: Around = contextlib.nullcontext,
        workspace_bytes: int | None = None,
        thread: str | None = None,
    ) -> None:
        self._device, self._operands, self._call, self._around = device, operands, call, around
        self._turn, self._thread = 0, thread
        self.workspace_bytes, self.host_us = workspace_bytes, device.host_us
        device.on_thread(thread, self._warm_up)

    def _warm_up(self) -> None:
        """Run the call once before it is timed, because plans, handles and kernels are made at the first call."""
        with self._device.memory_errors(None), self._around():
            self._call(0)
            self._device.synchronize()

    def error(self) -> float:
        return self._operands.error(self._device.on_thread(self._thread, self._checked))

    def fault(self) -> str:
        return self._operands.fault(lambda: self._device.on_thread(self._thread, self._checked))

    def _checked(self) -> Tensor:
        """Run the call once on the first copy of the inputs, to check its result. Return the output.

        Before the call the output is filled with NaN, so that elements that are not written are found.
        """
        with self._device.memory_errors(None), self._around():
            self._operands.poison()
            output = self._call(0)
            self._device.synchronize()
        return output

    def sample_us(self, count: int) -> float:
        first, self._turn = self._turn, (self._turn + count) % self._operands.sets
        return self._device.on_thread(self._thread, lambda: self._timed_us(first, count))

    def _timed_us(self, first: int, count: int) -> float:
        with self._device.memory_errors(None), self._around():
            call, sets = self._call, self._operands.sets
            time_us = self._device.time_us(lambda turn: call(turn % sets), first, count, evict=self._operands.evict)
            self.host_us = self._device.host_us
            return time_us


def _driver() -> str:
    for path in ("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/sys/module/amdgpu/version"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="utf-8")
            found = re.search(r"\d+\.\d+(\.\d+)*", text)
            if found:
                return found.group()
    return platform.release()  # an amdgpu driver that is part of the kernel


def _miopen_version(number: int | None) -> str:
    """Return MIOpen's version as text, for example ``3.5.1``.

    ``number`` is the number that ``torch.backends.cudnn.version()`` returns on ROCm: major·10⁶ + minor·10³ + patch.
    """
    return "" if number is None else f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()


def _cpu_cache_bytes() -> int:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(path.read_text(encoding="ascii").strip().removesuffix("K")) << 10)
    # The cache belongs to a whole socket, which other processes use as well.
    return min(max(sizes, default=32 << 20), 64 << 20)
