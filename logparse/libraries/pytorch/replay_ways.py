"""A way of doing a problem in PyTorch: a solution, how to make its call, and the settings around it."""

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
    """``make`` takes the problem's operands and gives the call, which runs within ``around``.

    ``thread`` names a thread for settings that the first call of a thread decides for all its later ones: PyTorch keeps
    cuDNN's plan of a problem per thread, whatever ``benchmark`` is set to later (``ATen/native/cudnn/Conv_v8.cpp``).
    One that is not ``raced`` computes something else (in lower precision), so it is timed only where it is asked for.
    """

    solution: Solution
    make: Callable[[Any], Call]
    around: Around = contextlib.nullcontext
    thread: str | None = None
    raced: bool = True


def named(*words: str) -> Solution:
    """``torch:word,word``; ``Default`` without words."""
    return Solution("torch", ",".join(words)) if words else DEFAULT


@contextlib.contextmanager
def without_mkldnn(device: TorchDevice) -> Iterator[None]:
    """Without oneDNN: the CPU's other honest solution."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own switch for Intel GPUs
        with device.torch.backends.mkldnn.flags(enabled=False):
            yield
