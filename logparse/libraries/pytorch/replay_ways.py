"""Describes one way in which PyTorch can compute something, for example with another setting or memory layout."""

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
    """One way in which PyTorch can compute an operation. For example, a convolution can be computed in NHWC or NCHW.

    * ``make`` takes the operands and returns the function to time, which runs within the context ``around``.
    * ``thread`` is the name of a separate thread for the calls.  In each thread PyTorch keeps cuDNN's plan of a
      convolution, so a later change of ``benchmark`` has no effect in a thread (``ATen/native/cudnn/Conv_v8.cpp``).
    * ``raced`` is False for a way that computes something else, for example in lower precision.  It is timed only if
      the user asks for it.
    """

    solution: Solution
    make: Callable[[Any], Call]
    around: Around = contextlib.nullcontext
    thread: str | None = None
    raced: bool = True


def name_way(*words: str) -> Solution:
    """Return the name of a way in which PyTorch can compute something: ``torch:word,word``.

    Without words it is the name of PyTorch's default.
    """
    return Solution("torch", ",".join(words)) if words else DEFAULT


@contextlib.contextmanager
def without_mkldnn(device: TorchDevice) -> Iterator[None]:
    """Context in which PyTorch does not use oneDNN.

    On a CPU this is another way to compute the same result, so that both ways can be timed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own switch for Intel GPUs
        with device.torch.backends.mkldnn.flags(enabled=False):
            yield
