"""A way of solving a problem in PyTorch: a solution, the function that makes its call, and the settings around it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from logparse.libraries.kinds.device.torch_device import Around, Call, TorchDevice
from logparse.model import DEFAULT, Solution


@dataclass(frozen=True)
class Way:
    """One way of solving a problem.

    * ``make``: takes the problem's operands and returns the call, which runs within ``around``.
    * ``thread``: name of a thread of its own.  The first call of a thread decides some settings for all later calls of
      the thread.  PyTorch keeps cuDNN's plan of a problem per thread, whatever ``benchmark`` is set to later
      (``ATen/native/cudnn/Conv_v8.cpp``).
    * ``raced``: False for a way that computes something else (for example in lower precision).  It is timed only if it
      is asked for.
    """

    solution: Solution
    make: Callable[[Any], Call]
    around: Around = contextlib.nullcontext
    thread: str | None = None
    raced: bool = True


def named(*words: str) -> Solution:
    """Return the solution ``torch:word,word``.  Without words return ``Default``."""
    return Solution("torch", ",".join(words)) if words else DEFAULT


@contextlib.contextmanager
def without_mkldnn(device: TorchDevice) -> Iterator[None]:
    """Turn oneDNN off in this context.  On a CPU this is the other way to compute the same result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own switch for Intel GPUs
        with device.torch.backends.mkldnn.flags(enabled=False):
            yield
