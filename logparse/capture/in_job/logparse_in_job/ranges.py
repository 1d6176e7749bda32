"""Avoid a crash if a range of ``torch.profiler.record_function`` is still open when logparse stops the profiler.

If another profiler is on when such a range ends, PyTorch writes to memory that was freed.
"""

# An open range holds the memory address of a record of the profiler that was on when the range began.

from __future__ import annotations

import gc
import sys
from typing import Any, List, Set

import torch

_kept: List[Any] = []
"""Handles of ``record_function`` ranges that were separated from the profiler.

The handles are kept here, because PyTorch would end a range once its handle is freed.
"""


def open_ranges() -> Set[int]:
    """Return the ids of the ``record_function`` ranges that are open now, in any thread.

    A range that has ended may be included, if an object still refers to it.
    """
    return {id(each) for each in _ranges()}


def cut_off(before: Set[int]) -> None:
    """Detach the open ``record_function`` ranges from the profiler, because they may end after it has stopped.

    Ranges whose ids are in ``before`` are left alone. The job notices no difference.
    """
    for each in _ranges():
        if id(each) not in before and each.run_callbacks_on_exit:
            # Each range gets a new record that the profiler does not know. The range still ends when the job ends it.
            _kept.append(each.record)
            with torch._C.DisableTorchFunction():
                each.record = torch.ops.profiler._record_function_enter_new(each.name, each.args)


def _ranges() -> List[Any]:
    """Return all ``torch.profiler.record_function`` objects of this process that were begun (``with`` was entered)."""
    # Only objects that refer to the class are searched. A list of all objects would contain tuples that other threads
    # are still building. If another object refers to such a tuple, Python cannot finish the tuple, and raises
    # SystemError in the job's code.
    kind = torch.autograd.profiler.record_function
    found = gc.get_referrers(kind) if sys.version_info >= (3, 9) else gc.get_objects()  # 3.8: objects name no class
    return [each for each in found if type(each) is kind and each.record is not None]
