"""Functions that tell whether logparse may do something in the job now without disturbing it.

For example, at some moments it is unsafe to read a tensor's size, to record a GPU event, or to start or stop the
profiler. The functions read PyTorch's own state. If this version of PyTorch cannot tell a state (for example whether a
transform is on), it is assumed that this version also lacks the feature.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Mapping

import torch


def _find(path: str, absent: Any) -> Callable[[], Any]:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else lambda: absent


is_compiling: Callable[[], bool] = _find("compiler.is_compiling", False)


class _Asked(Dict[str, bool]):
    """Calls ``is_compiling`` for every name that is looked up."""

    def __missing__(self, name: str) -> bool:
        return is_compiling()


COMPILING = "_is_compiling_flag"
_known = COMPILING in getattr(getattr(is_compiling, "__code__", None), "co_names", ())
flags: Mapping[str, Any] = vars(torch.compiler) if _known else _Asked()
"""``flags[COMPILING]`` is the result of ``is_compiling()``, without a call of its two Python functions."""
is_tracing: Callable[[], bool] = _find("_C._is_tracing", False)
dispatch_modes: Callable[[], int] = _find("_C._len_torch_dispatch_stack", 0)
transforms: Callable[[], Any] = _find("_C._functorch.peek_interpreter_stack", None)
"""Function that returns None unless a functorch transform is on in this thread."""
backward_task: Callable[[], int] = _find("_C._current_graph_task_id", -1)
"""Function that returns -1 unless autograd runs a backward pass in this thread."""


_COMPILER = os.path.join("torch", "_inductor", "")


def is_plain() -> bool:
    """Return True if PyTorch's operators just compute in this thread, and nothing records or transforms them.

    It is False if PyTorch is compiling or tracing, or if a dispatch mode or a functorch transform (such as ``vmap``) is
    on.
    """
    return only_computes() and not is_compiling()


def only_computes() -> bool:
    """Return True if no tracer, dispatch mode or functorch transform is on in this thread.

    Unlike ``is_plain`` it does not check whether ``torch.compile`` is compiling.
    """
    return not is_tracing() and not dispatch_modes() and transforms() is None


def in_backward() -> bool:
    return backward_task() != -1


def is_compiling_now() -> bool:
    """Return True if ``torch.compile`` is compiling in this thread.

    PyTorch's own ``is_compiling`` is True only inside the code that is being compiled. This function is also True in
    other code that runs meanwhile.
    """
    guards = sys.modules.get("torch._guards")
    context = getattr(guards, "CompileContext", None)
    return is_compiling() or (context is not None and context.try_get() is not None)


def on_gpu() -> bool:
    """Return True if this process has begun to use a GPU.

    ``torch.cuda.is_available`` is not called, because after that call the process could no longer be forked safely.
    """
    return bool(torch.cuda.is_initialized())


def is_data_worker() -> bool:
    """Return True in a process that loads data for a DataLoader. Modules that it calls transform samples."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def is_compile_worker() -> bool:
    """Return True in a process that compiles or times kernels for ``torch.compile``. It does no step of the job."""
    program = os.path.normpath((getattr(sys, "argv", None) or [""])[0])
    return os.sep + _COMPILER in program


def is_capturing() -> bool:
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def is_importing() -> bool:
    """Return True if a module of torch is being imported at this moment.

    The profiler imports other modules of torch, and would then find a half-imported module.
    """
    own = [module for name, module in list(sys.modules.items()) if name.startswith("torch.")]
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in own)
