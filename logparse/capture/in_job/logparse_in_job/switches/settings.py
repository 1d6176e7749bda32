"""Switch settings of PyTorch on and off in a running job: flags, the attention kernels, and TunableOp files."""

from __future__ import annotations

import atexit
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from ..changes.attention import allows_attention, prefer_attention
from ..changes.tf32 import computes_in_tf32
from .base import Job, RefusedError, Switch

_ON_A_GPU = "the change has an effect only on a GPU, and this process uses no GPU"


class Flag:
    """A setting of PyTorch, named by its path below ``torch``, for example ``backends.cudnn.benchmark``."""

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


class Tf32(Flag):
    """The setting that says whether float32 matrix products are computed in TF32."""

    def __init__(self) -> None:
        super().__init__("backends.cuda.matmul.allow_tf32")

    def read(self) -> bool:
        return computes_in_tf32()

    def write(self, value: Any) -> None:
        if self.read() != value:  # A value that the job set by ``fp32_precision`` stays as it is.
            super().write(value)


class BlasLibrary:
    """The PyTorch setting that says which BLAS library is preferred.

    On ROCm, too, PyTorch uses CUDA's names for its values: ``cublas`` means rocBLAS, and ``cublaslt`` means hipBLASLt.
    """

    path = "torch.backends.cuda.preferred_blas_library"

    def read(self) -> Any:
        return torch.backends.cuda.preferred_blas_library()

    def write(self, value: Any) -> None:
        torch.backends.cuda.preferred_blas_library(value)


class Flags(Switch):
    """Switches settings of PyTorch to new values, and later back to their previous values.

    ``values`` holds each setting with its new value.
    """

    def __init__(self, values: Sequence[Tuple[Any, Any]], roundoff: float = 0.0) -> None:
        self._values = values
        self.roundoff = roundoff
        self._before: List[Any] = []
        self._after: List[Any] = []

    def on(self, job: Job) -> None:
        """Give the settings their new values. Raises RefusedError if the job already uses these values."""
        before = [flag.read() for flag, _ in self._values]
        try:
            for flag, value in self._values:
                flag.write(value)
        except BaseException:
            self._write(before)
            raise
        after = [flag.read() for flag, _ in self._values]
        if after == before:
            raise RefusedError("the job already runs with this setting")
        self._before, self._after = before, after

    def off(self) -> None:
        """Restore the previous values. A setting that the job itself has changed since then stays as it is."""
        before, self._before = self._before, []
        for (flag, _), value, own in zip(self._values, before, self._after):
            if flag.read() == own:
                flag.write(value)

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has altered one of the settings while they were switched.

        The sentence names the first such setting. Otherwise returns an empty text.
        """
        if not self._before:
            return ""
        changed = [flag.path for (flag, _), own in zip(self._values, self._after) if flag.read() != own]
        return f"the job itself sets {changed[0]}" if changed else ""

    def _write(self, values: Sequence[Any]) -> None:
        for (flag, _), value in zip(self._values, values):
            flag.write(value)


ATTENTION = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""Names of PyTorch's attention backends in ``torch.nn.attention.SDPBackend``."""


class Attention(Switch):
    """Makes PyTorch prefer one attention backend. The other backends come after it, in the same order as before."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._context: Any = None
        self._own: Any = None

    def on(self, job: Job) -> None:
        """Make PyTorch try this attention backend first. Raises RefusedError if the job already does so."""
        from torch.nn.attention import SDPBackend

        first = ATTENTION[self._backend]
        before = _order()
        now = [SDPBackend(int(x)).name for x in before[0]]
        rest = [x for x in now if x not in (first, "ERROR") and x in ATTENTION.values() and allows_attention(x)]
        context: Any = prefer_attention(first, *rest)
        atexit.unregister(context.__exit__)  # here ``off`` leaves it
        if _order() == before:
            context.__exit__(None, None, None)
            raise RefusedError("the job already runs with this setting")
        self._context, self._own = context, _order()

    def off(self) -> None:
        """Restore PyTorch's previous order of attention backends."""
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(None, None, None)

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has changed PyTorch's choice of attention kernels.

        logparse had set the choice for a measurement. Otherwise returns an empty text.
        """
        return "" if self._context is None or _order() == self._own else "the job itself sets the attention backends"


class OneFlashKernel(Switch):
    """Forbids PyTorch to use the fused attention kernel on a CPU.

    A CPU has only one fused kernel and no order of backends. On a GPU, ``Attention`` is used instead.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def on(self, job: Job) -> None:
        """Forbid the fused attention kernel. Raises RefusedError if the job itself has forbidden it already."""
        if not torch.backends.cuda.flash_sdp_enabled():
            raise RefusedError("the job already runs with this setting")
        self._before = True
        torch.backends.cuda.enable_flash_sdp(False)

    def off(self) -> None:
        """Allow the fused kernel again."""
        before, self._before = self._before, None
        if before:
            torch.backends.cuda.enable_flash_sdp(True)

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has allowed PyTorch's fused attention kernel again.

        logparse had forbidden it for a measurement. Otherwise returns an empty text.
        """
        allowed = self._before and torch.backends.cuda.flash_sdp_enabled()
        return "the job itself sets torch.backends.cuda.enable_flash_sdp" if allowed else ""


def _order() -> Tuple[List[int], List[bool]]:
    """Return PyTorch's order of attention backends (as numbers), and which backends are allowed.

    The second list has a bool for each backend in ``ATTENTION``. Raises RefusedError if PyTorch is older than 2.6,
    because it has no such order.
    """
    order = getattr(torch._C, "_get_sdp_priority_order", None)
    if order is None:
        raise RefusedError("PyTorch before 2.6 has no setting for the order in which it tries attention backends")
    return [int(x) for x in order()], [allows_attention(x) for x in ATTENTION.values()]


class TunableRows(Switch):
    """Makes PyTorch use the kernels that are listed in TunableOp files. TunableOp itself then searches for none."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._is_read = False
        self._before: Any = None

    def on(self, job: Job) -> None:
        """Switch TunableOp on, so that PyTorch uses the kernels in the files.

        Raises RefusedError if no GPU is used, a file is missing or not accepted, or the job itself uses TunableOp.
        """
        tunable = torch.cuda.tunable
        if not torch.cuda.is_initialized():
            raise RefusedError(_ON_A_GPU)
        if not self._files:
            raise RefusedError("this change needs a TunableOp file; name the file with --rows FILE")
        if tunable.is_enabled():
            raise RefusedError(
                "the job itself uses TunableOp, and the rows that TunableOp reads cannot be removed from memory again"
            )
        # The files are read only the first time.
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
        """Switch TunableOp off again, so that PyTorch makes its own choice of kernels."""
        before, self._before = self._before, None
        if before is not None:
            torch.cuda.tunable.enable(False)
            torch.cuda.tunable.tuning_enable(before)

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has switched off TunableOp.

        logparse had switched TunableOp (PyTorch's choice of tuned kernels) on for a measurement. Otherwise returns an
        empty text.
        """
        on = self._before is None or torch.cuda.tunable.is_enabled()
        return "" if on else "the job's own code switches TunableOp off (torch.cuda.tunable)"


class Refused(Switch):
    """Takes the place of a change of the job, such as TF32, that is impossible in this process.

    ``why`` is the reason for the user.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def on(self, job: Job) -> None:
        """Always raise RefusedError, with the reason why the change is impossible in this process."""
        raise RefusedError(self._why)

    def off(self) -> None:
        """Do nothing, because an impossible change is never switched on."""


def _tf32(files: Sequence[str]) -> Switch:
    if not torch.cuda.is_initialized():
        return Refused(_ON_A_GPU)
    return Flags([(Tf32(), True)], roundoff=2.0**-11)


def _cudnn_benchmark(files: Sequence[str]) -> Switch:
    if not torch.cuda.is_initialized():
        return Refused(_ON_A_GPU)
    if torch.version.hip is not None:  # ``Conv_miopen.cpp``: NCHW and channels_last may be one entry of the cache
        return Refused(
            "on ROCm, PyTorch keeps the solver with which a convolution first ran (perhaps also for another layout), "
            "so cudnn.benchmark has no effect on a job that already runs"
        )
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
        return (
            OneFlashKernel() if backend == "math" else Refused("PyTorch has only one fused attention kernel on a CPU")
        )

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
"""For each setting, by its name, the function that makes its switch. It gets the TunableOp files of ``tunableop_rows``.
"""


def made(part: str, files: Sequence[str]) -> Switch:
    """Return an object that switches a setting of PyTorch on and off. ``part`` is the setting's name.

    ``files`` are the files that the setting ``tunableop_rows`` reads. They list the kernels to use.
    """
    return KNOWN[part](files)
