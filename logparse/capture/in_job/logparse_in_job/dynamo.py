"""Keep Dynamo from compiling our wrappers.  Dynamo then treats them like the function of PyTorch that they wrap."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any, Callable

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
set_callback: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda callback: None)
"""Function that sets the compiler of the frames that begin from now on in this thread.  It returns the previous
compiler.

Beneath ``torch.compile``, Dynamo compiles every function that is called where its graph breaks.  So our functions first
set the compiler to None.
"""


def _asked() -> Any:
    found = set_callback(None)
    if found is not None:
        set_callback(found)
    return found


callback: Callable[[], Any] = getattr(_frames, "get_eval_frame_callback", _asked)
"""Function that returns None if no frame is being compiled now.

In PyTorch 2.4 and 2.5 the only way to learn this is to set another compiler.
"""


def skip(code: CodeType) -> None:
    """Have Dynamo run frames of this code as they are, and compile the functions that they call as usual."""
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):  # PyTorch until 2.6
        frames.skip_code(code)
    elif hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))


def compiled_graphs() -> int:
    """Return the number of graphs that Dynamo has made in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def trace_instead(wrapper: Any, original: Any) -> None:
    """Have Dynamo trace the original in place of the wrapper, if compiled code calls the wrapper."""
    wrapper._torchdynamo_inline = original


def is_part_of_graph(module: Any) -> bool:
    """Tell whether a call of this module is a piece of Dynamo's compiled code.

    Some backends run such pieces as modules.
    """
    if not issubclass(type(module), torch.fx.GraphModule) or "torch._dynamo.eval_frame" not in sys.modules:
        return False
    file = sys.modules["torch._dynamo.eval_frame"].__file__
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def take_for_original(original: Any, wrapper: Any) -> None:
    """Have Dynamo treat the wrapper of ``torch.nn.Module.__call__`` as the original.

    Dynamo compares the two functions to see whether the job has replaced the original.  It stores the original when it
    is imported.  If that happens after the installation of our wrapper (the usual case), nothing needs to be done.
    """
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call", None) is original:
            module.unpatched_nn_module_call = wrapper  # type: ignore[union-attr]
