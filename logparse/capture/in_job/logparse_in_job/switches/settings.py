"""Settings of the process: flags of PyTorch, the order of attention backends, rows of TunableOp."""

from __future__ import annotations

import atexit
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from ..changes.attention import prefer_attention
from .base import Job, RefusedError, Switch

_ON_A_GPU = "it acts only on a GPU, and this process uses none"


class Flag:
    """One setting, named by its path: ``backends.cudnn.benchmark``."""

    def __init__(self, path: str) -> None:
        self.path = f"torch.{path}"
        *self._way, self._name = path.split(".")

    def _holder(self) -> Any:
        found: Any = torch
        for name in self._way:
            found = getattr(found, name)
        return found

    def read(self) -> Any:
        return getattr(self._holder(), self._name)

    def write(self, value: Any) -> None:
        setattr(self._holder(), self._name, value)


class BlasLibrary:
    """PyTorch's preferred BLAS library. Its words are CUDA's on ROCm, too."""

    path = "torch.backends.cuda.preferred_blas_library"

    def read(self) -> Any:
        return torch.backends.cuda.preferred_blas_library()

    def write(self, value: Any) -> None:
        torch.backends.cuda.preferred_blas_library(value)


class Flags(Switch):
    """Settings that get new values when switched on, and get back their previous values when switched off."""

    def __init__(self, values: Sequence[Tuple[Any, Any]], roundoff: float = 0.0) -> None:
        self._values = values
        self.roundoff = roundoff
        self._before: List[Any] = []
        self._after: List[Any] = []

    def on(self, job: Job) -> None:
        """Set the values."""
        before = [flag.read() for flag, _ in self._values]
        try:
            for flag, value in self._values:
                flag.write(value)
        except BaseException:
            self._write(before)
            raise
        after = [flag.read() for flag, _ in self._values]
        if after == before:
            raise RefusedError("the job already runs with it")
        self._before, self._after = before, after

    def off(self) -> None:
        """Restore the previous values, except settings that the job has changed meanwhile."""
        before, self._before = self._before, []
        for (flag, _), value, own in zip(self._values, before, self._after):
            if flag.read() == own:
                flag.write(value)

    def disturbed(self) -> str:
        """Name the first setting whose value the job has changed. Return an empty text if there are no changes."""
        if not self._before:
            return ""
        changed = [flag.path for (flag, _), own in zip(self._values, self._after) if flag.read() != own]
        return f"the job sets {changed[0]} itself" if changed else ""

    def _write(self, values: Sequence[Any]) -> None:
        for (flag, _), value in zip(self._values, values):
            flag.write(value)


ATTENTION = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""Names of PyTorch's backends (``torch.nn.attention.SDPBackend``)."""


class Attention(Switch):
    """Attention on this backend first.  The other backends follow in their present order."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._context: Any = None
        self._own: Any = None

    def on(self, job: Job) -> None:
        """Enter the context that ``apply.py`` enters."""
        from torch.nn.attention import SDPBackend

        first = ATTENTION[self._backend]
        before = _order()
        now = [SDPBackend(int(x)).name for x in before[0]]
        rest = [x for x in now if x not in (first, "ERROR") and x in ATTENTION.values() and _enabled(x)]
        context: Any = prefer_attention(first, *rest)
        atexit.unregister(context.__exit__)  # here ``off`` leaves it
        if _order() == before:
            context.__exit__(None, None, None)
            raise RefusedError("the job already runs with it")
        self._context, self._own = context, _order()

    def off(self) -> None:
        """Leave the context."""
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(None, None, None)

    def disturbed(self) -> str:
        """Tell whether the job itself has chosen an order. Return an empty text if it has not."""
        return "" if self._context is None or _order() == self._own else "the job sets the attention backends itself"


class OneFlashKernel(Switch):
    """Attention without the fused kernel, on a CPU. A CPU has only one fused kernel and no order of backends."""

    def __init__(self) -> None:
        self._before: Any = None

    def on(self, job: Job) -> None:
        """Forbid the kernel."""
        if not torch.backends.cuda.flash_sdp_enabled():
            raise RefusedError("the job already runs with it")
        self._before = True
        torch.backends.cuda.enable_flash_sdp(False)

    def off(self) -> None:
        """Allow the kernel."""
        before, self._before = self._before, None
        if before:
            torch.backends.cuda.enable_flash_sdp(True)

    def disturbed(self) -> str:
        """Tell whether the job itself has allowed the kernel. Return an empty text if it has not."""
        allowed = self._before and torch.backends.cuda.flash_sdp_enabled()
        return "the job sets torch.backends.cuda.enable_flash_sdp itself" if allowed else ""


def _enabled(backend: str) -> bool:
    asked = {"FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "mem_efficient", "CUDNN_ATTENTION": "cudnn"}
    name = asked.get(backend, "math")
    return bool(getattr(torch.backends.cuda, f"{name}_sdp_enabled")())


def _order() -> Tuple[List[int], List[bool]]:
    """Return the backends in their order, and for each backend of ``ATTENTION`` True if it is allowed."""
    order = getattr(torch._C, "_get_sdp_priority_order", None)
    if order is None:
        raise RefusedError("PyTorch before 2.6 has no order of attention backends")
    return [int(x) for x in order()], [_enabled(x) for x in ATTENTION.values()]


class TunableRows(Switch):
    """Rows of TunableOp files. While the switch is on, TunableOp is on and does not tune."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._is_read = False
        self._before: Any = None

    def on(self, job: Job) -> None:
        """Read the files the first time, and let TunableOp use their rows."""
        tunable = torch.cuda.tunable
        if not torch.cuda.is_initialized():
            raise RefusedError(_ON_A_GPU)
        if not self._files:
            raise RefusedError("name a TunableOp file with --rows FILE")
        if tunable.is_enabled():
            raise RefusedError("the job itself has TunableOp on, whose rows cannot be removed from memory again")
        if not self._is_read:
            for path in self._files:
                if not tunable.read_file(path):
                    raise RefusedError(
                        f"TunableOp does not accept {path}: the file is missing, or is from another build"
                    )
            self._is_read = True
        self._before = tunable.tuning_is_enabled()
        tunable.enable(True)
        tunable.tuning_enable(False)

    def off(self) -> None:
        """Switch TunableOp off again."""
        before, self._before = self._before, None
        if before is not None:
            torch.cuda.tunable.enable(False)
            torch.cuda.tunable.tuning_enable(before)

    def disturbed(self) -> str:
        """Tell whether the job itself has switched TunableOp on or off. Return an empty text if it has not."""
        on = self._before is None or torch.cuda.tunable.is_enabled()
        return "" if on else "the job sets torch.cuda.tunable itself"


class Refused(Switch):
    """Action that this process cannot switch."""

    def __init__(self, why: str) -> None:
        self._why = why

    def on(self, job: Job) -> None:
        """Raise RefusedError with the reason."""
        raise RefusedError(self._why)

    def off(self) -> None:
        """Do nothing, because the action is never on."""


def _tf32(files: Sequence[str]) -> Switch:
    if not torch.cuda.is_initialized():
        return Refused(_ON_A_GPU)
    return Flags([(Flag("backends.cuda.matmul.allow_tf32"), True)], roundoff=2.0**-11)


def _cudnn_benchmark(files: Sequence[str]) -> Switch:
    if not torch.cuda.is_initialized():
        return Refused(_ON_A_GPU)
    if torch.version.hip is not None:  # ``Conv_miopen.cpp``: NCHW and channels_last may be one entry of the cache
        return Refused("on ROCm PyTorch keeps the solver of each convolution that has run, maybe in every layout")
    return Flags([(Flag("backends.cudnn.benchmark"), True), (Flag("backends.cudnn.benchmark_limit"), 0)])


def _blas(library: str, hip: bool, word: str) -> Callable[[Sequence[str]], Switch]:
    def switch(files: Sequence[str]) -> Switch:
        if not torch.cuda.is_initialized():
            return Refused(_ON_A_GPU)
        if (torch.version.hip is not None) != hip:
            return Refused(f"this PyTorch does not have {library}")
        return Flags([(BlasLibrary(), word)])

    return switch


def _attention(backend: str) -> Callable[[Sequence[str]], Switch]:
    def switch(files: Sequence[str]) -> Switch:
        if torch.cuda.is_initialized():
            elsewhere = torch.version.hip is not None and backend == "cudnn"
            return Refused("ROCm has no cuDNN") if elsewhere else Attention(backend)
        return OneFlashKernel() if backend == "math" else Refused("on a CPU there is only one fused attention kernel")

    return switch


KNOWN: Dict[str, Callable[[Sequence[str]], Switch]] = {
    "tf32": _tf32,
    "blas_cublaslt": _blas("cublaslt", False, "cublaslt"),
    "blas_rocblas": _blas("rocblas", True, "cublas"),
    "blas_hipblaslt": _blas("hipblaslt", True, "cublaslt"),
    **{f"attention_{backend}": _attention(backend) for backend in ATTENTION},
    "cudnn_benchmark": _cudnn_benchmark,
    "tunableop_rows": TunableRows,
}
"""Functions that make each switch of a setting, by name. They get the files of ``tunableop_rows``."""


def made(part: str, files: Sequence[str]) -> Switch:
    """Make the switch of a setting."""
    return KNOWN[part](files)
