"""Ranges of ``torch.profiler.record_function`` that are open when a window of ours ends.

In an open range PyTorch keeps the address of a record.  The record belongs to the profiler that was on when the range
began.  If that profiler has ended, and another profiler is on when the range ends, PyTorch writes to the freed address.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, List, Set

import torch

_kept: List[Any] = []
"""Handles of ranges that were cut off.  They are kept, because PyTorch would end a range once its handle is freed."""


def open_ranges() -> Set[int]:
    """Return the ids of the ranges that are open now, in any thread.

    Some ranges that have ended are included, if an object still refers to them.
    """
    return {id(each) for each in _ranges()}


def cut_off(before: Set[int]) -> None:
    """Detach from the profiler the ranges that have begun since ``before``.

    They get a record that the profiler never saw.  They still end when the job ends them, because the job's modes see
    this end.
    """
    for each in _ranges():
        if id(each) not in before and each.run_callbacks_on_exit:
            _kept.append(each.record)
            with torch._C.DisableTorchFunction():
                each.record = torch.ops.profiler._record_function_enter_new(each.name, each.args)


def _ranges() -> List[Any]:
    """Return the ranges that have a record.

    The function asks only for objects that refer to the class of ranges.  A list of all objects would contain tuples
    that other threads are still building.  Python cannot finish a tuple to which another object refers, and raises
    SystemError in the job's code.
    """
    kind = torch.autograd.profiler.record_function
    found = gc.get_referrers(kind) if sys.version_info >= (3, 9) else gc.get_objects()  # 3.8: objects name no class
    return [each for each in found if type(each) is kind and each.record is not None]
