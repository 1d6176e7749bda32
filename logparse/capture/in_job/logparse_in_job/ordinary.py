"""Tell whether this moment of the job is safe: for reading a size, recording an event, or beginning or ending a window.

Each function reads PyTorch's own state.  If a PyTorch version has no such name, the function assumes that the version
lacks the feature.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch


def _find(path: str, absent: Any) -> Callable[[], Any]:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else lambda: absent


is_compiling: Callable[[], bool] = _find("compiler.is_compiling", False)
_tracing_state = _find("_C._get_tracing_state", None)
_dispatch_modes = _find("_C._len_torch_dispatch_stack", 0)
_transforms = _find("_C._functorch.peek_interpreter_stack", None)
backward_task: Callable[[], int] = _find("_C._current_graph_task_id", -1)
"""Function that returns -1 unless autograd runs a backward pass in this thread."""


def is_plain() -> bool:
    """Tell whether operators of this thread only compute.

    That is so if no tracer, no dispatch mode and no functorch transform is on.
    """
    return only_computes() and not is_compiling()


def only_computes() -> bool:
    """Tell the same as ``is_plain``, if Dynamo is known not to compile."""
    return _tracing_state() is None and not _dispatch_modes() and _transforms() is None


def in_backward() -> bool:
    return backward_task() != -1


def is_compiling_now() -> bool:
    """Tell whether Dynamo works in this thread, as seen from outside the code that it compiles."""
    guards = sys.modules.get("torch._guards")
    context = getattr(guards, "CompileContext", None)
    return is_compiling() or (context is not None and context.try_get() is not None)


def on_gpu() -> bool:
    """Tell whether this process has begun to use a GPU.

    ``torch.cuda.is_available`` is not called, because after it the process can no longer be forked safely.
    """
    return bool(torch.cuda.is_initialized())


def is_capturing() -> bool:
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def is_importing() -> bool:
    """Tell whether a module of torch is being imported.

    The profiler imports other modules, and would find a module that is only half imported.
    """
    own = [module for name, module in list(sys.modules.items()) if name.startswith("torch.")]
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in own)
