"""Keep Dynamo from compiling our wrappers.  Dynamo treats them as it treats PyTorch's own function beneath them."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any, Callable

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
set_callback: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda callback: None)
"""Function that sets what compiles the frames that begin from now on in this thread.

It returns what did so until now.  Beneath ``torch.compile`` Dynamo compiles every function that is called where its
graph breaks.  So our functions set None first.
"""


def _asked() -> Any:
    found = set_callback(None)
    if found is not None:
        set_callback(found)
    return found


callback: Callable[[], Any] = getattr(_frames, "get_eval_frame_callback", _asked)
"""Function that returns None if no frame is compiled now.

PyTorch 2.4 and 2.5 tell this only when another callback is set.
"""


def skip(code: CodeType) -> None:
    """Let Dynamo run frames of this code as they are, and compile the frames beneath them as usual."""
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
    """Let Dynamo trace the original wherever code that it compiles calls the wrapper."""
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
    """Let Dynamo take the wrapper of ``torch.nn.Module.__call__`` for the original.

    Dynamo compares the two to see whether the job has replaced the function.  It reads the function when Dynamo is
    imported.  That is usually later than the installation of our wrapper, and then nothing has to be done.
    """
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call", None) is original:
            module.unpatched_nn_module_call = wrapper  # type: ignore[union-attr]
