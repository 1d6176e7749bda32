"""Keep ``torch.compile`` (Dynamo) from compiling logparse's functions.

logparse wraps functions of PyTorch, and adds hooks. Dynamo compiles the wrapped function as if it had no wrapper, and
compiles nothing for a hook.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
set_callback: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda callback: None)
"""Function that sets which compiler Dynamo uses in this thread from now on, and returns the previous one.

Within ``torch.compile``, Dynamo compiles every function that is called where its graph breaks. So logparse's functions
first set the compiler to None, and set it back at their end.
"""


def _asked() -> Any:
    found = set_callback(None)
    if found is not None:
        set_callback(found)
    return found


callback: Callable[[], Any] = getattr(_frames, "get_eval_frame_callback", _asked)
"""Function that returns the compiler that Dynamo uses in this thread, or None if Dynamo compiles nothing.

In PyTorch 2.4 and 2.5 the only way to learn this is to set another compiler.
"""


def hide(function: Any, instead: Any = None) -> None:
    """Keep Dynamo (``torch.compile``) from compiling a function of logparse.

    Dynamo meets the function in two ways:

    * Code that is not compiled calls the function, for example after a graph break. Dynamo then leaves the function
      uncompiled, and compiles the functions that it calls as usual.
    * Dynamo compiles the code that calls the function. In place of the function it then compiles ``instead``, which
      does what PyTorch does without logparse. Without ``instead``, Dynamo compiles the function itself.

    ``instead`` must not be a method that PyTorch itself keeps from Dynamo, such as ``Optimizer.zero_grad``. Dynamo
    would call it without its object.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):  # PyTorch until 2.6
        frames.skip_code(function.__code__)
    elif hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    if instead is not None:
        function.__dict__ = _NotCopied(function.__dict__)
        function._torchdynamo_inline = instead


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of logparse so that Dynamo compiles neither it nor any function that it calls.

    This is needed if the job compiles a function that logparse has wrapped: Dynamo then also meets the functions that
    logparse calls before and after it.
    """

    def call(*args: Any) -> Any:
        prior = set_callback(None)
        try:
            return function(*args)
        finally:
            if prior is not None:
                set_callback(prior)

    hide(call)
    return call


class _NotCopied(Dict[str, Any]):
    """The attributes of a function of logparse. ``functools.wraps`` copies them without the one for Dynamo.

    If the job wraps ``Module.__call__`` once more, Dynamo would otherwise leave out the job's own wrapper, too.
    """

    def keys(self) -> Any:
        return [name for name in super().__iter__() if name != "_torchdynamo_inline"]

    def __iter__(self) -> Any:  # Without this, ``dict.update`` would not call ``keys``
        return iter(self.keys())


def compiled_graphs() -> int:
    """Return how many graphs ``torch.compile`` (Dynamo) has made in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def is_part_of_graph(module: Any) -> bool:
    """Return True if a call of a module comes from code that ``torch.compile`` has made, and not from the user's code.

    Some backends run pieces of the compiled code as modules. These are not modules of the user.
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
    """Make Dynamo treat logparse's wrapper of ``torch.nn.Module.__call__`` as PyTorch's own function.

    This is only needed if Dynamo was imported before the wrapper was installed.
    """
    # Dynamo remembers PyTorch's function when Dynamo is imported, and later compares, to see whether the user has
    # replaced the function. If Dynamo is imported after the wrapper was installed, which is usual, it remembers the
    # wrapper.
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call", None) is original:
            module.unpatched_nn_module_call = wrapper  # type: ignore[union-attr]
