"""Ranges of ``torch.profiler.record_function`` that are open when a window of ours ends.

PyTorch keeps, in an open range, the address of the record of the profiler that was on when the range began.  If that
profiler has ended, and another one is on when the range ends, PyTorch writes to the freed address.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, List, Set

import torch

_kept: List[Any] = []
"""Handles of ranges that were cut off: PyTorch would end the range when its handle is freed."""


def open_ranges() -> Set[int]:
    """The ids of the ranges that are open now, in any thread, and of some that have ended and are still referenced."""
    return {id(each) for each in _ranges()}


def cut_off(before: Set[int]) -> None:
    """Let the ranges that have begun since ``before`` end without the profiler: they hold a record that it never saw.

    They still end as the job ends them, because its modes see that.
    """
    for each in _ranges():
        if id(each) not in before and each.run_callbacks_on_exit:
            _kept.append(each.record)
            with torch._C.DisableTorchFunction():
                each.record = torch.ops.profiler._record_function_enter_new(each.name, each.args)


def _ranges() -> List[Any]:
    """The ranges that have a record.

    Only what refers to their class is asked for.  A list of all objects would hold tuples that other threads are still
    building, and Python refuses to finish a tuple that somebody else refers to: SystemError in the job's code.
    """
    kind = torch.autograd.profiler.record_function
    found = gc.get_referrers(kind) if sys.version_info >= (3, 9) else gc.get_objects()  # 3.8: objects name no class
    return [each for each in found if type(each) is kind and each.record is not None]
